"""Committed notebooks without a kernel: what a code host or nbviewer shows, which is nbconvert's HTML."""

import ast
import re

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbconvert import HTMLExporter

from tests.browser.lab import ROOT, open_chromium
from tests.refresh import VIEW

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXPORTER = HTMLExporter()  # it compiles its templates once
#: What stands in place of a widget that a viewer cannot show: a box, or the widget's own name for itself.
LOST = re.compile(r"model not found|widget not found|loading widget|displaying widget|VBox\(", re.IGNORECASE)
IMAGES = """all => all.map(image => [image.naturalWidth, image.naturalHeight, image.checkVisibility()])"""


def render(notebook) -> str:
    """Give a notebook as the HTML page of a reader who has no kernel."""
    html, _ = EXPORTER.from_notebook_node(notebook)
    return html


def pictures_wanted(cell) -> int:
    """Count the pictures of a code cell: figures by their text, an explorer by the call on its last line."""
    texts = [output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    last = ast.parse(cell.source).body[-1] if cell.source else None
    call = last.value if isinstance(last, ast.Expr) else None
    explorer = isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("explore", "explore_op")
    return sum(text.startswith("<Figure") for text in texts) + explorer


def faults(notebook) -> list[str]:
    """Say what a reader without a kernel misses in a notebook, or sees in place of a widget."""
    cells = BeautifulSoup(render(notebook), "html.parser").select(".jp-Cell")
    found = []
    for shown, cell in zip(cells, notebook.cells, strict=True):
        if cell.cell_type != "code":
            continue
        area, wanted = shown.select_one(".jp-Cell-outputWrapper"), pictures_wanted(cell)
        pictures = area.select("img, svg") if area else []
        if len(pictures) != wanted:
            found.append(f"{len(pictures)} pictures of {wanted}: {cell.source.splitlines()[-1]}")
        if area and (lost := LOST.search(area.get_text(" "))):
            found.append(f"no widget but {lost.group()!r}: {cell.source.splitlines()[-1]}")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_every_explorer_and_figure_is_a_picture(path):
    notebook = nbformat.read(path, as_version=4)
    pictures = sum(pictures_wanted(c) for c in notebook.cells if c.cell_type == "code")
    assert bool(pictures) == path.stem[0].isdigit()  # the cheat sheet has none
    assert faults(notebook) == []


@pytest.fixture
def landing():
    """The landing notebook, and the output of its explorer."""
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    output = next(o for c in notebook.cells for o in c.get("outputs", []) if "image/png" in o.get("data", {}))
    return notebook, output


def test_a_lost_picture_is_found(landing):
    notebook, output = landing
    del output.data["image/png"]
    assert [fault for fault in faults(notebook) if fault.startswith("0 pictures of 1")]


def test_a_widget_without_its_state_is_found(landing):
    notebook, output = landing
    del output.data["image/png"]
    output.data.update(
        {VIEW: {"model_id": "gone"}, "text/plain": "VBox(children=(FloatSlider(value=1.0), HTML()))"}
    )
    assert any("no widget but 'VBox('" in fault for fault in faults(notebook))


def test_chromium_shows_the_pictures(tmp_path):
    path = tmp_path / "rendered.html"
    notebook = nbformat.read(NOTEBOOKS[1], as_version=4)
    path.write_text(render(notebook), encoding="utf-8")
    with open_chromium() as browser:
        page = browser.new_page()
        page.route(re.compile("^https?:"), lambda route: route.abort())  # the page's own fonts and scripts
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        page.wait_for_function("() => [...document.images].every(image => image.complete)")
        images = page.locator(".jp-OutputArea-output img").evaluate_all(IMAGES)
        headings = page.get_by_role("heading", level=1).all_inner_texts()
    assert headings[0].startswith("01 · The layer and the op")
    assert len(images) == sum(pictures_wanted(c) for c in notebook.cells if c.cell_type == "code")
    assert all(width >= 300 and height >= 200 and visible for width, height, visible in images), images
