"""How long a slider takes from key press to new picture: an explorer against `interact` with `plt.show`.

    python tests/benchmarks/bench_sliders.py [CHROMIUM]

Both draw the same curves on one page of a real JupyterLab in Chromium, and key presses alternate between the
two, so that a busy machine slows both alike. It prints medians, 90th percentiles, their ratio, and the share
of animation frames in which no picture was there.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import nbformat
from playwright.sync_api import sync_playwright

ROUNDS = 24
CELLS = {
    "interact": """
import course_utils.quiet
import matplotlib.pyplot as plt, numpy as np, tensorflow as tf
from ipywidgets import interact, FloatSlider
from course_utils import ops
from course_utils.plotting import gradient_curves
grid = np.linspace(-3, 3, 201)
def draw(bound):
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3))
    for op in (lambda x: ops.square_with_clipped_grad(x, bound), tf.square):
        for ax, curve in zip(axes, gradient_curves(op, grid)):
            ax.plot(grid, curve)
    plt.show()
interact(draw, bound=FloatSlider(min=0.5, max=7, step=0.25, value=1));
""",
    "explorer": """
from course_utils import explore_op
def make_op(bound=1.0):
    return lambda x: ops.square_with_clipped_grad(x, bound)
explore_op(make_op, bound=(0.5, 7.0, 0.25), reference=tf.square)
""",
}
#: Waits for the picture to differ from what it was, and counts the frames without one on the way.
MEASURE = """(area) => new Promise((resolve, reject) => {
  const picture = () => area.querySelector('.jp-RenderedImage img, .widget-html svg');
  const signature = () => { const p = picture(); return p ? (p.src || p.outerHTML) : null; };
  const before = signature(); let start = null, frames = 0, blank = 0;
  document.addEventListener('keydown', () => { start = performance.now(); }, {capture: true, once: true});
  const look = () => {
    const p = picture();
    if (start !== null) { frames += 1; blank += p && p.getBoundingClientRect().height > 20 ? 0 : 1; }
    if (p && signature() !== before && (p.complete === undefined || p.complete))
      return resolve({ms: performance.now() - start, frames, blank});
    if (start !== null && performance.now() - start > 20000) return reject(new Error('no new picture'));
    requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""
RUN_ALL = """async () => {
  const app = window.jupyterapp, panel = app.shell.currentWidget;
  await panel.context.ready; await panel.revealed; await panel.sessionContext.ready;
  await app.commands.execute('notebook:run-all-cells');
}"""
#: Debian's Chromium as root, on a machine without a way out.
SWITCHES = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main(chromium: str) -> None:
    """Start JupyterLab, measure, print."""
    with tempfile.TemporaryDirectory() as folder:
        cells = [nbformat.v4.new_code_cell(code.strip()) for code in CELLS.values()]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), pathlib.Path(folder, "bench.ipynb"))
        server, address = start_lab(folder)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium, args=SWITCHES)
                report(measure(browser.new_page(viewport={"width": 1200, "height": 1400}), address))
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(20)


def start_lab(folder: str) -> tuple[subprocess.Popen, str]:
    """Start JupyterLab on a free port, with no settings but its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    environment = {**os.environ, **{name: f"{folder}/.{name}" for name in own}}
    options = ["--no-browser", "--allow-root", f"--port={port}", "--IdentityProvider.token="]
    options += ["--expose-app-in-browser", f"--ServerApp.root_dir={folder}"]
    command = [sys.executable, "-m", "jupyterlab", *options]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    server = subprocess.Popen(command, env=environment, **quiet)
    address = f"http://127.0.0.1:{port}"
    for _ in range(120):
        try:
            urllib.request.urlopen(f"{address}/api/status", timeout=5).close()
            return server, address
        except OSError:
            time.sleep(1)
    raise RuntimeError("JupyterLab did not answer within two minutes")


def measure(page, address: str) -> dict[str, list[dict]]:
    """Press keys on both sliders in turn; give milliseconds and frames of each press."""
    page.goto(f"{address}/lab/tree/bench.ipynb?reset")
    page.wait_for_function("() => window.jupyterapp?.shell.currentWidget?.context?.path === 'bench.ipynb'")
    page.evaluate(RUN_ALL)
    page.wait_for_selector(".widget-html svg", timeout=120_000)
    areas = dict(zip(CELLS, page.locator(".jp-CodeCell .jp-Cell-outputArea").all(), strict=True))
    found = {name: [] for name in areas}
    for number in range(ROUNDS + 2):  # the first two warm up
        for name, area in areas.items():
            area.locator(".noUi-handle").first.focus()
            page.evaluate_handle("(a) => { window.__area = a }", area.element_handle())
            page.evaluate(f"() => {{ window.__result = ({MEASURE})(window.__area) }}")
            page.keyboard.press("ArrowRight" if number % 2 == 0 else "ArrowLeft")
            result = page.evaluate("() => window.__result")
            found[name] += [result] if number > 1 else []
            page.wait_for_timeout(150)
    return found


def report(found: dict[str, list[dict]]) -> None:
    """Print a line for each variant and the ratio of the medians."""
    medians = {}
    for name, results in found.items():
        times = sorted(r["ms"] for r in results)
        medians[name] = statistics.median(times)
        blank = sum(r["blank"] for r in results) / sum(r["frames"] for r in results)
        p90 = times[int(0.9 * len(times))]
        print(f"{name:>9}: median {medians[name]:.0f} ms, p90 {p90:.0f} ms, blank frames {blank:.1%}")
    print(f"explorer / interact: {medians['explorer'] / medians['interact']:.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium") or "chromium")
