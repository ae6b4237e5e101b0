"""The list of checks of a layer: what a check is, what it finds, and the decorator that adds one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

#: The checks by name, in the order in which they are made, and those that are made only on request.
CHECKS: dict[str, Check] = {}
ALSO: dict[str, Check] = {}


class Problem(Exception):  # noqa: N818
    """What a check found: `detail`, and `cure` where the check knows better than its standing cure."""

    def __init__(self, detail: str, cure: str = "") -> None:
        super().__init__(detail)
        self.detail, self.cure = detail, cure


class Note(Problem):
    """Something to know that is no fault."""


@dataclasses.dataclass(frozen=True)
class Check:
    """A check; `needs` names those whose failure it would repeat; `fixed` ones leave out random layers."""

    run: Callable
    cure: str
    needs: tuple[str, ...]
    fixed: bool

    @property
    def title(self) -> str:
        """Its line in the report."""
        return (self.run.__doc__ or self.run.__name__).rstrip(".")  # `python -OO` drops docstrings


def check(
    cure: str = "", needs: tuple[str, ...] = (), fixed: bool = False, registry: dict = CHECKS
) -> Callable[[Callable], Callable]:
    """Put a function into the list of checks."""

    def register(run):
        registry[run.__name__] = Check(run, cure, ("runs", "deterministic", *needs), fixed)
        return run

    return register
