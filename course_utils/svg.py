"""A figure as SVG text for a web page, named for screen readers, and the sliders beside it with it."""

from __future__ import annotations

import functools
import html
import io
import re
import uuid
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

#: It would reach every drawing of the page; on the root the same is inherited inside only.
_PAGE_STYLE = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'

#: Where a line is left out.
_PLACE = re.compile(r'<g id="curve-\d+"\s*(?:/>|>\s*</g>)')

# ipywidgets gives a slider no name that a screen reader could say, and as the value of a logarithmic one the
# exponent; it has no option for either. Scripts in a widget's HTML do not run, but an animation's onbegin
# does, whenever the browser shows a new picture.
_TELL_SLIDERS = """<set attributeName="class" to="shown" onbegin="
  for (const slider of this.closest('.widget-vbox')?.querySelectorAll('.widget-slider') ?? []) {
    const [name, handle, value] = slider.querySelectorAll('label, [role=slider], .widget-readout');
    handle.setAttribute('aria-label', name.textContent);
    handle.setAttribute('aria-valuetext', value.textContent);
  }"/>"""


class LiveSVG:
    """A figure as an SVG element of which only some lines are drawn anew.

    A whole figure takes Matplotlib tens of milliseconds, most of it for ticks and labels; a line takes a few.
    So all but the lines is drawn once, and the lines are put in their places, below the legend.

    Args:
        figure: The figure, laid out already and without a layout engine; its dpi is set to that of SVG.
        lines: The lines of its axes that change. The limits of the axes must not.

    Example:
        >>> figure = Figure()
        >>> (line,) = figure.subplots().plot([0, 1], [0, 1])
        >>> LiveSVG(figure, [line]).render("a line").startswith('<svg role="img"')
        True
    """

    def __init__(self, figure: Figure, lines: Iterable[Line2D]) -> None:
        self._figure, self._lines = figure, list(lines)
        # Names of clip paths and markers: the same in every drawing of one figure, others in other figures.
        self._settings: Any = {"svg.fonttype": "none", "svg.hashsalt": uuid.uuid4().hex}  # text stays text
        figure.dpi = 72
        self._frame = self._draw_frame()

    def render(self, title: str) -> str:
        """Draw the lines as they are now; `title` is what a screen reader says for the picture."""
        head, first, *others = self._frame
        parts = [head, f"<title>{html.escape(title)}</title>", _TELL_SLIDERS, first]
        for line, rest in zip(self._lines, others, strict=True):
            parts += [self._draw(line), rest]
        return "".join(parts)

    def _draw_frame(self) -> list[str]:
        """Give the opening tag, and then all but the lines, cut where the lines belong."""
        for number, line in enumerate(self._lines):
            line.set_gid(f"curve-{number}")
            # Not hidden or emptied: the legend avoids it.
            line.draw = functools.partial(_leave_a_place, line)  # type: ignore[method-assign]
        buffer = io.StringIO()
        with mpl.rc_context(self._settings):
            hidden = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            self._figure.savefig(buffer, format="svg", metadata=hidden)
        for line in self._lines:
            del line.draw
        _, _, element = buffer.getvalue().replace(_PAGE_STYLE, "").partition("<svg ")
        attributes, _, body = element.partition(">")
        style = "max-width: 100%; height: auto; stroke-linejoin: round; stroke-linecap: butt"
        return [f'<svg role="img" style="{style}" {attributes}>', *_PLACE.split(body)]

    def _draw(self, line: Line2D) -> str:
        """Give one line as a group, with the definitions that it needs."""
        buffer = io.StringIO()
        with mpl.rc_context(self._settings):
            width, height = self._figure.get_size_inches() * 72
            renderer = RendererSVG(width, height, buffer, image_dpi=72)
            line.draw(renderer)
            renderer.finalize()
        drawing = buffer.getvalue()
        return drawing[drawing.index('<g id="curve-') : drawing.rindex("</svg>")]


def _leave_a_place(line: Line2D, renderer) -> None:
    renderer.open_group("line2d", line.get_gid())
    renderer.close_group("line2d")
