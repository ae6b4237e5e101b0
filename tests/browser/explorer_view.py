"""An explorer in the page: what it shows, and how a reader moves its sliders."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

from playwright.sync_api import Locator, Page

# Matplotlib gives its clip paths new names in every picture, so only what is drawn is compared.
STATE = """root => {
  const svg = root.querySelector('svg[role=img]');
  return {
    alert: root.querySelector('[role=alert]')?.textContent || '',
    title: svg?.querySelector('title')?.textContent || '',
    drawing: svg ? [...svg.querySelectorAll('path, use')]
      .map(e => e.getAttribute('d') || `${e.getAttribute('x')} ${e.getAttribute('y')}`).join('|') : '',
    readouts: [...root.querySelectorAll('.widget-readout')].map(e => e.textContent),
  };
}"""


@dataclasses.dataclass(frozen=True)
class State:
    """What an explorer shows at one moment."""

    alert: str
    title: str
    drawing: str
    readouts: list[str]

    def agree(self) -> bool:
        """Tell whether the number beside each slider is the one that the picture was drawn for."""
        pairs = self.title.rpartition(": ")[2].split(", ")
        drawn = [pair.rpartition(" = ")[2] for pair in pairs]
        return len(drawn) == len(self.readouts) and all(map(same_number, drawn, self.readouts))


def same_number(drawn: str, shown: str) -> bool:
    """Tell whether two texts round one number, each to its own digits."""
    drawn, shown = Decimal(drawn), Decimal(shown.replace("−", "-"))
    last_digits = sum(Decimal(1).scaleb(n.as_tuple().exponent) for n in (drawn, shown))
    return abs(drawn - shown) <= last_digits / 2


class ExplorerView:
    """One explorer of the open notebook."""

    def __init__(self, page: Page, root: Locator):
        self.page, self.root = page, root
        self.handles = root.locator(".noUi-handle")

    def state(self) -> State:
        """Give what it shows now."""
        return State(**self.root.evaluate(STATE))

    def wait(self, number: int, before: State, redrawn: bool = True, seconds: float = 60) -> State:
        """Wait until slider `number` and the picture have left `before` and agree; give the new state."""
        deadline = self.page.evaluate("() => performance.now()") + 1000 * seconds
        while True:
            now = self.state()
            if now.alert:
                raise AssertionError(f"the explorer shows an error: {now.alert}")
            moved = now.readouts[number] != before.readouts[number]
            drawn = now.drawing != before.drawing
            if moved and now.agree() and (drawn or not redrawn):
                return now
            if self.page.evaluate("() => new Promise(next => requestAnimationFrame(next))") > deadline:
                seen = f"readout {'moved' if moved else 'the same'}, picture {'new' if drawn else 'the same'}"
                seen += f"; the sliders say {now.readouts}, the picture {now.title!r}"
                raise AssertionError(f"slider {number + 1} of {before.title!r}: {seen}")

    def press(self, number: int, key: str) -> None:
        """Press a key on slider `number`."""
        self.handles.nth(number).focus()
        self.page.keyboard.press(key)

    def in_upper_half(self, number: int) -> bool:
        """Tell whether slider `number` stands in the upper half of its range."""
        handle, track = self.handles.nth(number).bounding_box(), self.track(number)
        return handle["x"] + handle["width"] / 2 > track["x"] + track["width"] / 2

    def track(self, number: int) -> dict[str, float]:
        """Give where on the page slider `number` can move."""
        return self.root.locator(".noUi-target").nth(number).bounding_box()

    def drag(self, number: int, fraction: float) -> None:
        """Drag the handle of slider `number` with the mouse to a fraction of its range."""
        self.handles.nth(number).scroll_into_view_if_needed()
        start, track = self.handles.nth(number).bounding_box(), self.track(number)
        self.page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
        self.page.mouse.down()
        self.page.mouse.move(
            track["x"] + fraction * track["width"], track["y"] + track["height"] / 2, steps=5
        )
        self.page.mouse.up()
