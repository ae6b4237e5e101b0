"""JupyterLab in Chromium: how tests start it, and how they work in a notebook and on an explorer."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

import course
from tests.browser.explorer_view import ExplorerView

ROOT = pathlib.Path(__file__).parents[2]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: A container has no sandbox for root and no display; nothing here may ask the network for anything.
SWITCHES = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
PATIENCE = 180_000  # milliseconds; a loaded machine is slow, and a wait that is over costs nothing

RESTORED = "async () => { await window.jupyterapp?.restored; return Boolean(window.jupyterapp); }"
# No command is awaited in the page, where a dialog would hold it up for ever; READY and FINISHED have limits.
OPEN = """path => { window.jupyterapp.commands.execute('docmanager:open', {path, factory: 'Notebook'}); }"""
READY = """path => {
  const panel = window.jupyterapp.shell.currentWidget;
  return panel?.context?.path === path && panel.context.isReady && panel.sessionContext.isReady;
}"""
# The stored counts would look as if the cells had run, so they go first.
RUN_ALL = """() => {
  for (const command of ['clear-all-cell-outputs', 'run-all-cells'])
    window.jupyterapp.commands.execute(`notebook:${command}`);
}"""
# Where a cell raises on purpose the cells after it still run.
FINISHED = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const code = panel.context.model.toJSON().cells
    .filter(c => c.cell_type === 'code' && [].concat(c.source).join('').trim());
  const errors = code.filter(c => !(c.metadata.tags || []).includes('raises-exception'))
    .flatMap(c => c.outputs.filter(o => o.output_type === 'error').map(o => `${o.ename}: ${o.evalue}`));
  const idle = panel.sessionContext.session?.kernel?.status === 'idle';
  return errors.length || (idle && code.every(c => c.execution_count)) ? {errors, cells: code.length} : false;
}"""
CLOSE = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.save();   // a changed notebook would ask
  panel.close();
}"""


def find_chromium(playwright: Playwright) -> str:
    """Give the path of the Chromium of this machine, or fail with a sentence that says what to install."""
    found = next(filter(None, map(shutil.which, NAMES)), playwright.chromium.executable_path)
    if not pathlib.Path(found).exists():
        raise AssertionError(
            "The browser tests drive Chromium and there is none: install it with `sudo apt install chromium` "
            "or `python -m playwright install chromium`."
        )
    return found


@contextlib.contextmanager
def open_chromium() -> Iterator[Browser]:
    """Start the Chromium of this machine, without a window, and close it afterwards."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(playwright), args=SWITCHES)
        yield browser
        browser.close()


def lab_environment(folder: pathlib.Path, token: str) -> dict[str, str]:
    """Give the environment of a JupyterLab that has the course's settings and none of this user's."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    names += ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR")
    own = {name: str(folder / name.lower()) for name in names}
    # Kernels import the course, and the wrong answers of its tests, from this repository.
    paths = {"PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_PATH": course.JUPYTER_DEFAULTS}
    return {**os.environ, **own, **paths, "JUPYTER_TOKEN": token}


@contextlib.contextmanager
def start_lab(files: pathlib.Path, settings: pathlib.Path) -> Iterator[Lab]:
    """Start JupyterLab as `course.py lab` does, but on the folder `files`, and end it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex()
    # Another server that has taken the port in between must not answer in its place: no other port is tried.
    options = ["--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}"]
    options += ["--ServerApp.port_retries=0", f"--ServerApp.root_dir={files}", "--expose-app-in-browser"]
    settings.mkdir(parents=True, exist_ok=True)
    log = settings / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            course.lab_command(sys.executable, options),
            env=lab_environment(settings, token),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    lab = Lab(f"http://127.0.0.1:{port}", token)
    try:
        deadline = time.monotonic() + PATIENCE / 1000
        while not lab.answers():
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"JupyterLab did not answer:\n{log.read_text()}")
            time.sleep(0.1)
        yield lab
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)


class Lab:
    """A running JupyterLab: its address and token."""

    def __init__(self, address: str, token: str):
        self.address, self.token = address, token

    def get(self, path: str):
        """Give the server's answer to a path of it; raise OSError when it refuses."""
        request = urllib.request.Request(
            self.address + path, headers={"Authorization": f"token {self.token}"}
        )
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({})
        )  # this machine, whatever the proxy
        return opener.open(request, timeout=10)

    def answers(self) -> bool:
        """Tell whether the server is up."""
        try:
            self.get("/api/status").close()
        except OSError:
            return False
        return True

    def open(self, page: Page) -> None:
        """Open JupyterLab in `page`, with nothing left from before."""
        page.goto(f"{self.address}/lab?reset&token={self.token}")
        page.wait_for_function(RESTORED, timeout=PATIENCE)


class Notebook:
    """The notebook that is open in a JupyterLab page."""

    def __init__(self, page: Page, path: str):
        self.page = page
        page.evaluate(OPEN, path)
        page.wait_for_function(READY, arg=path, timeout=PATIENCE)
        self.panel = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        self.cells = self.panel.locator(".jp-Cell")

    def run_all(self) -> dict:
        """Run all cells as the menu does; give unmeant errors and the number of code cells."""
        self.page.evaluate(RUN_ALL)
        return self.page.wait_for_function(FINISHED, timeout=PATIENCE).json_value()

    def model(self) -> dict:
        """Give the notebook as it would be stored."""
        return self.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.model.toJSON()")

    def answer(self, index: int, below: int, code: str) -> str:
        """Type `code` over a stub, run the cells down to its check; give what the check shows."""
        check = self.cells.nth(below).locator(".jp-OutputArea-output [role=status]")
        old = check.element_handle(timeout=PATIENCE)
        editor = self.cells.nth(index).locator(".cm-content")
        editor.click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(code)
        for _ in range(index, below + 1):  # each goes on to the next cell
            self.page.keyboard.press("Shift+Enter")
        self.page.wait_for_function("old => !old.isConnected", arg=old, timeout=PATIENCE)
        check.wait_for(timeout=PATIENCE)
        return check.text_content()

    def explorers(self) -> list[ExplorerView]:
        """Give the explorers of the notebook, from top to bottom."""
        found = self.panel.locator(".jp-OutputArea-output .widget-vbox:has(> .widget-html)")
        return [ExplorerView(self.page, root) for root in found.all()]

    def close(self) -> None:
        """Close the notebook, which ends its kernel too."""
        self.page.evaluate(CLOSE)
