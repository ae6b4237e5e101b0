"""A figure as SVG text for a web page, named for screen readers, and the sliders beside it with it."""

from __future__ import annotations

import html
import io

import matplotlib as mpl
from matplotlib.figure import Figure

#: It would reach every drawing of the page; on the root the same is inherited inside only.
_PAGE_STYLE = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'

# ipywidgets gives a slider no name that a screen reader could say, and as the value of a logarithmic one the
# exponent; it has no option for either. Scripts in a widget's HTML do not run, but an animation's onbegin
# does, whenever the browser shows a new picture.
_TELL_SLIDERS = """<set attributeName="class" to="shown" onbegin="
  for (const slider of this.closest('.widget-vbox')?.querySelectorAll('.widget-slider') ?? []) {
    const [name, handle, value] = slider.querySelectorAll('label, [role=slider], .widget-readout');
    handle.setAttribute('aria-label', name.textContent);
    handle.setAttribute('aria-valuetext', value.textContent);
  }"/>"""


def explorer_svg(figure: Figure, title: str) -> str:
    """Give a figure as an SVG element that names itself and the sliders of the explorer around it.

    Args:
        figure: The figure, laid out already.
        title: What a screen reader says for the picture.

    Returns:
        The element, without the header of an SVG file.

    Example:
        >>> explorer_svg(Figure(), "an empty figure").startswith('<svg role="img"')
        True
    """
    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none"}):  # text stays text: smaller, and a reader can select it
        hidden = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=hidden)
    _, _, element = buffer.getvalue().replace(_PAGE_STYLE, "").partition("<svg ")
    attributes, _, rest = element.partition(">")
    style = "max-width: 100%; height: auto; stroke-linejoin: round; stroke-linecap: butt"
    name = f"<title>{html.escape(title)}</title>"
    return f'<svg role="img" style="{style}" {attributes}>{name}{_TELL_SLIDERS}{rest}'
