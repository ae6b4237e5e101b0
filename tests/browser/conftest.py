"""One Chromium and one JupyterLab for the tests of a module, on a copy of the notebooks."""

import pathlib
import re
import shutil

import pytest

from tests.browser.lab import PATIENCE, ROOT, open_chromium, start_lab

SCREENSHOTS = pathlib.Path(__file__).parent / "screenshots"


# No wider scope: Playwright's event loop must be gone before other tests of this process use asyncio.
@pytest.fixture(scope="module")
def chromium():
    """The Chromium of this machine; without one the tests fail."""
    with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab on a copy of the notebooks: it stores what it opens."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copytree(ROOT / "notebooks", folder / "files" / "notebooks")
    with start_lab(folder / "files", folder / "settings") as lab:
        yield lab


@pytest.fixture(scope="module")
def page(chromium, request):
    """A browser tab; what it shows is stored when a test fails."""
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    page.set_default_timeout(PATIENCE)
    yield page
    page.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """Store a screenshot of the page when a test that has one fails."""
    report = (yield).get_result()
    page = item.funcargs.get("page") if hasattr(item, "funcargs") else None
    if report.failed and page and not page.is_closed():
        SCREENSHOTS.mkdir(exist_ok=True)
        path = SCREENSHOTS / f"{re.sub('[^A-Za-z0-9_]+', '-', item.name)}-{report.when}.png"
        page.screenshot(path=path)
        report.sections.append(("screenshot", str(path)))
