"""How long a slider takes from key press to new picture: an explorer against `interact` with `plt.show`.

    python -m tests.benchmarks.bench_sliders [ROUNDS]

Both draw the same curves on one page of a real JupyterLab in Chromium. Key presses and drags alternate
between the two, so that a busy machine slows both alike; the ratios count, the milliseconds are this
machine's. A frame is blank when the browser draws it without a picture.
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile

import nbformat

from tests.browser.lab import Notebook, open_chromium, start_lab
from tests.refresh import KERNEL

ROUNDS, DRAGS, MOVES = 40, 3, 60
CELLS = {
    "interact": """
import course_utils.quiet
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from ipywidgets import FloatSlider, interact

from course_utils import ops
from course_utils.plotting import gradient_curves

grid = np.linspace(-3, 3, 201)


def draw(bound):
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3))
    for op in (lambda x: ops.square_with_clipped_grad(x, bound), tf.square):
        for ax, curve in zip(axes, gradient_curves(op, grid)):
            ax.plot(grid, curve)
    plt.show()


interact(draw, bound=FloatSlider(min=0.5, max=7, step=0.1, value=3));
""",
    "explorer": """
from course_utils import explore_op


def make_op(bound=3.0):
    return lambda x: ops.square_with_clipped_grad(x, bound)


explore_op(make_op, bound=(0.5, 7.0, 0.1), reference=tf.square)
""",
}
# A new picture is a new element in both: the text of an SVG need not be compared in each frame.
RECORD = """area => {
  const shown = () => {
    const picture = area.querySelector('.jp-RenderedImage img, svg[role=img]');
    const loaded = picture && (picture.complete ?? true) && picture.getBoundingClientRect().height > 20;
    return loaded ? picture : null;
  };
  const record = {frames: 0, blank: 0, pictures: 0, pressed: null, first: null, last: null};
  let before = shown(), on = true;
  const press = event => { record.pressed ??= performance.now(); };
  for (const name of ['keydown', 'mousedown']) document.addEventListener(name, press, {capture: true});
  const look = () => {
    const now = shown();
    if (record.pressed !== null) {
      record.frames += 1;
      record.blank += now ? 0 : 1;
      if (now && now !== before) {
        record.pictures += 1;
        record.last = performance.now();
        record.first ??= record.last;
      }
      before = now ?? before;
    }
    if (on) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
  window.recorder = {record, stop: () => {
    on = false;
    for (const name of ['keydown', 'mousedown']) document.removeEventListener(name, press, {capture: true});
    return record;
  }};
}"""
# The kernel has answered, and what it sent is drawn.
SETTLED = """() => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const {first, last} = window.recorder.record;
  return first !== null && kernel.status === 'idle' && performance.now() - last > 200;
}"""


class Slider:
    """The slider and the picture in the output of one cell."""

    def __init__(self, page, area):
        self.page, self.area = page, area
        self.handle, self.track = area.locator(".noUi-handle").first, area.locator(".noUi-target").first

    def press(self, key: str) -> dict:
        """Press a key and give what was seen until the new picture stood."""
        self.handle.focus()
        self.area.evaluate(RECORD)
        self.page.keyboard.press(key)
        return self._seen()

    def drag(self, moves: int) -> dict:
        """Drag the handle to the right and back, one move for each two frames; give what was seen."""
        start, track = self.handle.bounding_box(), self.track.bounding_box()
        x, y = start["x"] + start["width"] / 2, start["y"] + start["height"] / 2
        self.page.mouse.move(x, y)
        self.area.evaluate(RECORD)
        self.page.mouse.down()
        for move in range(1, moves + 1):
            there = 1 - abs(1 - 2 * move / moves)
            self.page.mouse.move(x + 0.4 * there * track["width"], y)
            self.page.wait_for_timeout(33)
        self.page.mouse.up()
        return self._seen()

    def _seen(self) -> dict:
        self.page.wait_for_function(SETTLED, timeout=60_000)
        return self.page.evaluate("() => window.recorder.stop()")


def main(rounds: int) -> None:
    """Start JupyterLab, measure, print."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cells = [nbformat.v4.new_code_cell(code.strip()) for code in CELLS.values()]
        (folder / "files").mkdir()
        notebook = nbformat.v4.new_notebook(cells=cells)
        notebook.metadata.kernelspec = KERNEL  # without it JupyterLab asks, and waits
        nbformat.write(notebook, folder / "files" / "bench.ipynb")
        with start_lab(folder / "files", folder / "settings") as lab, open_chromium() as browser:
            page = browser.new_page(viewport={"width": 1200, "height": 1400})
            lab.open(page)
            print_table(*measure(Notebook(page, "bench.ipynb"), rounds))


def measure(notebook: Notebook, rounds: int) -> tuple[dict[str, list[dict]], dict[str, list[dict]]]:
    """Move both sliders in turn; give what each key press and each drag showed."""
    errors = notebook.run_all()["errors"]
    if errors:
        raise RuntimeError(errors)
    outputs = notebook.cells.locator(".jp-Cell-outputArea").all()
    sliders = {name: Slider(notebook.page, area) for name, area in zip(CELLS, outputs, strict=True)}
    for slider in sliders.values():
        slider.area.locator(".jp-RenderedImage img, svg[role=img]").first.wait_for()
        slider.press("ArrowRight")  # the first move warms up
    presses, drags = ({name: [] for name in CELLS} for _ in range(2))
    for number in range(rounds):
        for name, slider in sliders.items():
            presses[name].append(slider.press("ArrowLeft" if number % 2 else "ArrowRight"))
    for _ in range(DRAGS):
        for name, slider in sliders.items():
            drags[name].append(slider.drag(MOVES))
    return presses, drags


def print_table(presses: dict[str, list[dict]], drags: dict[str, list[dict]]) -> None:
    """Print a line for each of the two, and their ratios."""
    rows = {name: summary(presses[name], drags[name]) for name in CELLS}
    print(f"{'':10}{'median ms':>12}{'p90 ms':>10}{'pictures/s in a drag':>23}{'blank frames':>15}")
    for name, (median, p90, rate, blank) in rows.items():
        print(f"{name:10}{median:12.0f}{p90:10.0f}{rate:23.1f}{blank:15.1%}")
    ratios = [mine / other for mine, other in zip(rows["explorer"][:3], rows["interact"][:3], strict=True)]
    print(f"{'ratio':10}{ratios[0]:12.2f}{ratios[1]:10.2f}{ratios[2]:23.2f}")


def summary(presses: list[dict], drags: list[dict]) -> tuple[float, float, float, float]:
    """Give median and 90th percentile of the latency, pictures/s in drags, and the share of blank frames."""
    latencies = [seen["first"] - seen["pressed"] for seen in presses]
    p90 = statistics.quantiles(latencies, n=10)[-1]
    seconds = sum(seen["last"] - seen["pressed"] for seen in drags) / 1000
    every = presses + drags
    blank = sum(seen["blank"] for seen in every) / sum(seen["frames"] for seen in every)
    return statistics.median(latencies), p90, sum(seen["pictures"] for seen in drags) / seconds, blank


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
