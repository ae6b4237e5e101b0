"""The named curves that `explore` draws, and their form."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

#: How a style is called, and what matplotlib draws for it.
KINDS: dict = {
    "line": {},
    "points": {"linestyle": "none"},
    "steps": {"drawstyle": "steps-mid"},
}


@dataclasses.dataclass(frozen=True)
class Curve:
    """One named curve.

    Args:
        x, y: Numbers, 1-D arrays of one length; computed with and drawn in float64. NaN leaves a gap.
        kind: How it is drawn: `"line"`, `"points"` or `"steps"`.

    Raises:
        ValueError: `kind` is none of the three, or the shapes are others.

    Example:
        >>> Curve([0, 1], [2, 3], kind="points").kind
        'points'
    """

    x: np.ndarray
    y: np.ndarray
    kind: str = "line"

    def __post_init__(self) -> None:
        if self.kind not in list(KINDS):
            raise ValueError(f"kind is {self.kind!r}: give one of {', '.join(KINDS)}")
        try:
            x, y = np.asarray(self.x, np.float64), np.asarray(self.y, np.float64)
        except (TypeError, ValueError):
            raise ValueError("a curve needs two 1-D arrays of real numbers") from None
        if x.ndim != 1 or x.shape != y.shape:
            raise ValueError(
                f"a curve needs two 1-D arrays of one length, not shapes {x.shape} and {y.shape}"
            )
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)


def as_panels(curves) -> dict[str, dict[str, Curve]]:
    """Return what a function of `explore` gives as `{panel: {label: Curve}}`; check its form."""
    if not isinstance(curves, Mapping) or not curves:
        raise ValueError(f"f gives {type(curves).__name__}: return a dict of named curves")
    if not isinstance(next(iter(curves.values())), Mapping):
        curves = {"": curves}
    for panel, named in curves.items():
        if not isinstance(named, Mapping) or not named:
            raise ValueError(f"f gives {named!r:.80} for panel {panel!r}: return a dict of named curves")
    return {p: {label: _as_curve(label, c) for label, c in named.items()} for p, named in curves.items()}


def _as_curve(label, curve) -> Curve:
    if isinstance(curve, Curve):
        return curve
    if not isinstance(curve, tuple | list) or len(curve) not in (2, 3):
        raise ValueError(f"f gives {curve!r:.80} for {label!r}: give (x, y) or a Curve")
    return Curve(*curve)
