"""Sliders over a figure that is built once: a slider changes the data of its lines, nothing else.

The live picture is SVG text in an HTML widget, which a browser swaps without a blank frame; beside it the
output carries a PNG and one line of plain text, for readers who have no kernel and for tests.
"""

from __future__ import annotations

import base64
import dataclasses
import html
import inspect
import io
import itertools
import math
import numbers
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import ipywidgets as widgets
import numpy as np

from course_utils.curves import KINDS, Curve, as_panels
from course_utils.plotting import MARKERS, STYLES, as_grid, gradient_curves, new_figure
from course_utils.svg import LiveSVG

#: The arguments that a slider can set.
_BY_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

#: How many steps a logarithmic slider has.
LOG_STEPS = 60


@dataclasses.dataclass(frozen=True)
class Slider:
    """The range of one slider.

    Args:
        low: Lowest value.
        high: Highest value, above `low`.
        step: Distance of two values; by default a fiftieth of the range, 1 where both ends are integers.
            Ignored where `log` is set.
        value: Where the slider stands at first; by default the middle. With `log` the next of its steps.
        unit: Unit of the value, shown beside the name.
        log: Move over powers of ten: `low` and `high` must be positive.

    Raises:
        TypeError: One of them is no number.
        ValueError: The range is empty, or `value` is outside of it.

    Example:
        >>> Slider(0.1, 5.0, unit="1/s").value
        2.55
    """

    low: float
    high: float
    step: float | None = None
    value: float | None = None
    unit: str = ""
    log: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high", "step", "value"):
            number = getattr(self, name)
            if not isinstance(number, numbers.Real) and (number is not None or name in ("low", "high")):
                raise TypeError(f"{name} is {number!r}: give a number")
            if number is not None and not math.isfinite(number):
                raise ValueError(f"{name} is {number}: give a finite number")
        if self.step is not None and self.step <= 0:
            raise ValueError(f"step is {self.step}: give a number above 0")
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"a slider from {self.low} to {self.high} is empty: give the lower end first")
        whole = all(isinstance(end, numbers.Integral) for end in (self.low, self.high)) and not self.log
        step = self.step or (1 if whole else (self.high - self.low) / 50)
        middle = (self.low * self.high) ** 0.5 if self.log else (self.low + self.high) / 2
        value = middle if self.value is None else self.value
        if not self.low <= value <= self.high:
            raise ValueError(f"value is {value}: give a number from {self.low} to {self.high}")
        if self.log:  # a browser moves it onto the slider's grid, and would then show another picture
            grid = np.linspace(np.log10(self.low), np.log10(self.high), LOG_STEPS + 1)
            value = float(10 ** grid[np.argmin(abs(grid - np.log10(value)))])
        object.__setattr__(self, "step", step)
        object.__setattr__(self, "value", round(value) if whole and step == int(step) else value)

    def widget(self, name: str, continuous: bool) -> widgets.Widget:
        """Make the ipywidgets slider that a reader moves by mouse or keyboard.

        Args:
            name: The argument that it sets.
            continuous: Whether it reports every move, or only where it is released.
        """
        label = name.replace("_", " ") + (f" [{self.unit}]" if self.unit else "")
        common = {
            "description": label,
            "value": self.value,
            "continuous_update": continuous,
            "style": {"description_width": "initial"},
            "layout": {"width": "420px"},
        }
        if self.log:
            ends = np.log10([self.low, self.high])
            return widgets.FloatLogSlider(min=ends[0], max=ends[1], step=np.ptp(ends) / LOG_STEPS, **common)
        kind = widgets.IntSlider if isinstance(self.value, int) else widgets.FloatSlider
        return kind(min=self.low, max=self.high, step=self.step, **common)


class Explorer(widgets.VBox):
    """A figure with sliders; `explore` and `explore_op` make it.

    Attributes:
        sliders: The ipywidgets slider of each name.
        error: What the last update raised, or None.
        instances: Every explorer of this process that is still in use.
    """

    instances: ClassVar[weakref.WeakSet[Explorer]] = weakref.WeakSet()

    def __init__(self, f, specs, *, title, xlabel, ylabel, ylim, on_release) -> None:
        self.f, self.specs, self.title = f, specs, title
        self.error: Exception | None = None
        self._wants_progress = "progress" in inspect.signature(f).parameters
        self._progress = widgets.FloatProgress(min=0, max=1, description="computing")
        self.curves = self.compute(**{name: spec.value for name, spec in specs.items()})
        self._build_figure(xlabel, ylabel, ylim)
        self.sliders = {name: spec.widget(name, continuous=not on_release) for name, spec in specs.items()}
        self._view = widgets.HTML()
        for slider in self.sliders.values():
            slider.observe(self._update, "value")
        self._draw()
        children = [*self.sliders.values(), *([self._progress] if self._wants_progress else []), self._view]
        super().__init__(children, layout={"align_items": "flex-start"})
        Explorer.instances.add(self)

    @property
    def values(self) -> dict[str, float]:
        """Where the sliders stand."""
        return {name: slider.value for name, slider in self.sliders.items()}

    def compute(self, **values) -> dict[str, dict[str, Curve]]:
        """Call the function and give its curves as `{panel: {label: Curve}}`; check their form."""
        extra = {"progress": self._show_progress} if self._wants_progress else {}
        try:
            curves = as_panels(self.f(**values, **extra))
        finally:
            self._progress.layout.visibility = "hidden"
        known = getattr(self, "curves", curves)
        if {panel: list(c) for panel, c in curves.items()} != {panel: list(c) for panel, c in known.items()}:
            raise ValueError(f"f gives other panels or curves for {values}: the names must not change")
        return curves

    def settings(self) -> Iterator[dict[str, float]]:
        """All settings that a test looks at: the default, each slider's two ends, and every corner."""
        default = {name: spec.value for name, spec in self.specs.items()}
        yield default
        ends = {name: (spec.low, spec.high) for name, spec in self.specs.items()}
        if len(ends) > 1:  # with one slider its ends are the corners
            yield from ({**default, name: end} for name, pair in ends.items() for end in pair)
        yield from (dict(zip(ends, corner, strict=True)) for corner in itertools.product(*ends.values()))

    def svg(self) -> str:
        """The picture as it stands, as SVG with a title for screen readers."""
        return self._svg.render(str(self))

    def _build_figure(self, xlabel, ylabel, ylim):
        panels = list(self.curves)
        ylabels = ylabel if isinstance(ylabel, tuple) else (ylabel,) * len(panels)
        if len(ylabels) != len(panels):
            raise ValueError(f"ylabel is {ylabel!r}: give a text, or one for each panel of {panels}")
        limits = _limits(ylim, panels)
        self.figure, axes = new_figure(panels, self.title, xlabel, ylabels)
        self._lines = {}
        for ax, (panel, curves) in zip(axes, self.curves.items(), strict=True):
            styles = itertools.cycle(zip(STYLES, MARKERS, strict=True))
            for (label, curve), (style, marker) in zip(curves.items(), styles, strict=False):
                mark = {"marker": marker, "markersize": 5} if curve.kind == "points" else {}
                (line,) = ax.plot(curve.x, curve.y, label=label, **{**style, **mark, **KINDS[curve.kind]})
                self._lines[panel, label] = line
            ax.legend(loc="best" if limits.get(panel) is None else "upper left")
            ax.set_ylim(limits.get(panel) or ax.get_ylim())
            ax.set_xlim(ax.get_xlim())
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")  # laid out once, not on every frame
        self._svg = LiveSVG(self.figure, self._lines.values())

    def _update(self, _change=None):
        try:
            self.curves = self.compute(**self.values)
        except Exception as error:  # a kernel swallows what a callback raises: show it
            self.error = error
            message = html.escape(f"{type(error).__name__}: {error}")
            self._view.value = f'<p role="alert"><strong>{message}</strong></p>'
        else:
            self.error = None
            self._draw()

    def _draw(self):
        for panel, curves in self.curves.items():
            for label, curve in curves.items():
                self._lines[panel, label].set_data(curve.x, curve.y)
        self._view.value = self.svg()

    def _show_progress(self, fraction: float):
        self._progress.layout.visibility = "visible"
        self._progress.value = fraction

    def __repr__(self) -> str:
        values = ", ".join(f"{name} = {value:.4g}" for name, value in self.values.items())
        return f"{self.title}: {values}"

    __str__ = __repr__

    def _repr_mimebundle_(self, **kwargs):
        """Give the live view, the picture for readers without a kernel, and the text that tests compare."""
        data = super()._repr_mimebundle_(**kwargs)
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=100, metadata={"Software": None})
        return {**data, "text/plain": repr(self), "image/png": base64.b64encode(buffer.getvalue()).decode()}


def explore(
    f: Callable,
    *,
    title: str | None = None,
    xlabel: str = "x",
    ylabel: str | tuple[str, ...] = "y",
    ylim: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    on_release: bool = False,
    **sliders,
) -> Explorer:
    """Show the curves of a function, with a slider for each of its arguments.

    Args:
        f: Called with one value for each slider, it returns named curves: `{label: (x, y)}` or
            `{label: Curve}`, or `{panel: {label: ...}}` for several panels. The names must be the same for
            all values, and the function must be pure: it is called again for every move. Where that is slow,
            let it take an argument `progress` and call `progress(fraction)` on its way.
        title: Title of the figure; by default the name of `f`.
        xlabel: Label of the horizontal axes, with the unit.
        ylabel: Label of the vertical axes, or a tuple with one for each panel.
        ylim: Limits of the vertical axes, or a dict of them by panel; by default what the first curves need.
        on_release: Compute when the slider is released, not while it moves.
        **sliders: For each argument of `f` a `Slider`, or `(low, high)`, or `(low, high, step)`; the last two
            start at the default that `f` has for it, else in the middle.

    Returns:
        A widget, to be the last line of a notebook cell.

    Raises:
        TypeError: `f` is not callable, or its arguments and the sliders differ.
        ValueError: A slider's range is empty, `f` gives no named curves, or `ylabel` or `ylim` does not fit
            the panels.

    Example:
        >>> def wave(frequency=1.0):
        ...     x = np.linspace(0, 6, 100)
        ...     return {"sine": (x, np.sin(frequency * x))}
        >>> explore(wave, frequency=(0.5, 3.0), title="a wave")
        a wave: frequency = 1
    """
    if not callable(f):
        raise TypeError(f"f is {f!r}: give a function that returns named curves")
    taken = _signature("f", f).parameters.items()
    parameters = {n: p for n, p in taken if n != "progress" and p.kind in _BY_KEYWORD}
    if set(parameters) != set(sliders) or not sliders:
        raise TypeError(f"f takes {sorted(parameters)}, the sliders are {sorted(sliders)}: give one for each")
    specs = {name: _as_slider(name, spec, parameters[name].default) for name, spec in sliders.items()}
    title = title or getattr(f, "__name__", "explorer")
    return Explorer(f, specs, title=title, xlabel=xlabel, ylabel=ylabel, ylim=ylim, on_release=on_release)


def explore_op(
    make_op: Callable,
    *,
    x=(-3.0, 3.0),
    reference: Callable | None = None,
    title: str | None = None,
    ylim: Mapping[str, tuple[float, float]] | None = None,
    **sliders,
) -> Explorer:
    """Show an elementwise op forward and backward, with a slider for each argument of its factory.

    Args:
        make_op: Called with one value for each slider, it returns the op: a function of one tensor.
        x: The two ends of the range to draw, or an ascending 1-D array.
        reference: Another op to draw beside it, such as the plain op with its own derivative.
        title: Title of the figure; by default the name of `make_op`.
        ylim: Limits of the vertical axes by panel: `"forward"`, `"backward"`.
        **sliders: As for `explore`.

    Returns:
        A widget, to be the last line of a notebook cell.

    Raises:
        TypeError: `make_op` or `reference` is not callable, or the arguments and the sliders differ.
        ValueError: As for `explore` and `plotting.gradient_curves`.

    Example:
        >>> from course_utils.ops import square_with_clipped_grad
        >>> def make_op(bound):
        ...     return lambda x: square_with_clipped_grad(x, bound)
        >>> explore_op(make_op, bound=(0.5, 4.5), reference=lambda x: x**2)
        make_op: bound = 2.5
    """
    if not callable(make_op):
        raise TypeError(f"make_op is {make_op!r}: give a function that returns an op")
    if reference is not None and not callable(reference):
        raise TypeError(f"reference is {reference!r}: give an op or None")
    grid = as_grid(x, 201)

    def curves(**values):
        panels: dict[str, dict] = {"forward": {}, "backward": {}}
        ops = {"op": make_op(**values)} | ({"reference": reference} if reference else {})
        for label, op in ops.items():
            for panel, y in zip(panels.values(), gradient_curves(op, grid), strict=True):
                panel[label] = (grid, y)
        return panels

    curves.__signature__ = _signature("make_op", make_op)  # type: ignore[attr-defined]  # inspect reads it
    title = title or getattr(make_op, "__name__", "op")
    labels = ("output y", "gradient dy/dx")
    return explore(curves, title=title, xlabel="input x", ylabel=labels, ylim=ylim, **sliders)


def sweep(explorers=None) -> list[str]:
    """Compute explorers at their default, at each slider's ends and at all corners.

    Args:
        explorers: The explorers; by default every one of this process that is still in use.

    Returns:
        One line for each explorer: its title and how many settings were computed.

    Raises:
        Exception: Whatever an explorer's function raises, with a note that names explorer and setting.

    Example:
        >>> def line(slope):
        ...     return {"line": (np.arange(3), slope * np.arange(3))}
        >>> sweep([explore(line, slope=(0.0, 2.0))])
        ['line: 3 settings']
    """
    lines = []
    for explorer in sorted(explorers or Explorer.instances, key=lambda e: e.title):
        settings = list(explorer.settings())
        for values in settings:
            try:
                explorer.compute(**values)
            except Exception as error:
                error.add_note(f"explorer {explorer.title!r} at {values}")
                raise
        lines.append(f"{explorer.title}: {len(settings)} settings")
    return lines


def _signature(name: str, f: Callable) -> inspect.Signature:
    try:
        return inspect.signature(f)
    except ValueError:
        raise TypeError(f"{name} is {f!r}, its arguments are not known: wrap it in a function") from None


def _limits(ylim, panels: list[str]) -> Mapping:
    """Give the limits of each panel's vertical axis, None where it takes what the first curves need."""
    limits = ylim if isinstance(ylim, Mapping) else dict.fromkeys(panels, ylim)
    if unknown := [panel for panel in limits if panel not in panels]:
        raise ValueError(f"ylim names the panels {unknown}: give limits for {panels}")
    for pair in filter(None, limits.values()):
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        finite = is_pair and all(isinstance(end, numbers.Real) and math.isfinite(end) for end in pair)
        if not (finite and pair[0] < pair[1]):
            raise ValueError(f"ylim is {pair!r}: give (low, high), the lower end first")
    return limits


def _as_slider(name: str, spec, default) -> Slider:
    if not isinstance(spec, Slider):
        if not isinstance(spec, tuple | list) or len(spec) not in (2, 3):
            raise TypeError(f"slider {name} is {spec!r}: give (low, high), (low, high, step) or a Slider")
        spec = Slider(*spec)
        if default is not inspect.Parameter.empty:
            spec = dataclasses.replace(spec, value=default)
    return spec
