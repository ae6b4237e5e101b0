"""Each notebook in a real JupyterLab: it runs, its sliders move its pictures, its exercises answer."""

import importlib
import itertools
import types

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import course
from course_utils.collect.submissions import checks
from tests.browser.explorer_view import same_number
from tests.browser.lab import PATIENCE, ROOT, Notebook, find_chromium
from tests.test_notebooks_solved import stub_name

NOTEBOOKS = sorted(p.name for p in (ROOT / "notebooks").glob("*.ipynb"))
#: One with the plain explorer, one that trains, one whose stubs are to be mended, and one without a number.
IN_EVERY_RUN = ("00", "05", "13", "cheat")
VIEW = "application/vnd.jupyter.widget-view+json"

# Lab puts a ¶ behind each heading.
HEADINGS = "all => all.map(h => [Number(h.tagName[1]), h.textContent.replace('¶', '').trim()])"
# In the order of the page: a description, or a picture, and whether a description is the last of its kind.
PICTURES = """cells => {
  let described = false;
  return cells.flatMap((cell, number) => {
    if (cell.classList.contains('jp-MarkdownCell'))
      described = [...cell.querySelectorAll('em')].some(e => e.textContent.startsWith('Figure:'));
    const pictures = cell.querySelectorAll('.jp-OutputArea-output :is(.jp-RenderedImage img, svg[role=img])');
    return [...pictures].map(() => ({number, described}));
  });
}"""


@pytest.fixture(scope="module")
def lab_page(lab, page):
    """The browser tab with JupyterLab in it."""
    lab.open(page)
    return page


def param(name):
    """Mark the notebooks that the test line leaves out."""
    marks = [] if name.startswith(IN_EVERY_RUN) else pytest.mark.full
    return pytest.param(name, id=name.removesuffix(".ipynb"), marks=marks)


@pytest.fixture(scope="module", params=map(param, NOTEBOOKS))
def notebook(lab, lab_page, request):
    """A notebook in JupyterLab after Run All; it is closed before the next one is opened."""
    notebook = Notebook(lab_page, f"notebooks/{request.param}")
    notebook.number, notebook.result = request.param[:2], notebook.run_all()
    notebook.lesson = request.param[0].isdigit()  # the cheat sheet has no figure and no exercise
    yield notebook
    notebook.close()
    wait_until_no_kernel_runs(lab, lab_page)


def wait_until_no_kernel_runs(lab, page):
    """Wait for the kernel of a closed notebook to end, as the course's settings ask."""
    page.wait_for_function(
        "async token => !(await (await fetch(`/api/kernels?token=${token}`)).json()).length", arg=lab.token
    )


def outline_faults(headings):
    """Say which headings skip a level; the first is the title, of level 1, and no other is."""
    found = [] if headings and headings[0][0] == 1 else ["no title"]
    for (above, _), (level, text) in itertools.pairwise(headings):
        if level == 1:
            found.append(f"a second title: {text}")
        elif level > above + 1:
            found.append(f"level {level} after {above}: {text}")
    return found


def axe_faults(explorer):
    """Say what axe finds serious or critical in an explorer."""
    explorer.root.evaluate("root => { root.id = 'judged' }")
    found = Axe().run(explorer.page, "#judged").response["violations"]
    explorer.root.evaluate("root => { root.removeAttribute('id') }")
    grave = [v for v in found if v["impact"] in ("serious", "critical")]
    return [f"{v['id']}: {[n['html'] for n in v['nodes']]}" for v in grave]


class TestNotebook:
    def test_runs_to_its_end_without_an_error(self, notebook):
        cells = notebook.model()["cells"]
        assert notebook.result == {"errors": [], "cells": sum(c["cell_type"] == "code" for c in cells)}
        assert not [o for c in cells for o in c.get("outputs", []) if o.get("name") == "stderr"]

    def test_shows_every_explorer(self, notebook):
        outputs = [o for c in notebook.model()["cells"] for o in c.get("outputs", [])]
        expected = [o["data"]["text/plain"] for o in outputs if VIEW in o.get("data", {})]
        assert bool(expected) == notebook.lesson
        assert [e.state().title for e in notebook.explorers()] == ["".join(text) for text in expected]

    @pytest.mark.parametrize("way", ["keyboard", "mouse"])
    def test_every_slider_moves_the_picture(self, notebook, way):
        for explorer in notebook.explorers():
            state = explorer.state()
            assert state.agree(), state
            for number in range(explorer.handles.count()):
                high = explorer.in_upper_half(number)
                if way == "mouse":
                    explorer.drag(number, 0.25 if high else 0.75)
                    state = explorer.wait(number, state)
                    continue
                explorer.press(number, "Home" if high else "End")
                state = explorer.wait(number, state)
                explorer.press(number, "ArrowRight" if high else "ArrowLeft")
                state = explorer.wait(number, state, redrawn=False)  # one step may lie on a flat stretch

    def test_sliders_have_names_and_values_for_a_screen_reader(self, notebook):
        for explorer in notebook.explorers():
            explorer.root.scroll_into_view_if_needed()  # what is far away is not laid out, so axe skips it
            labels = explorer.root.locator(".widget-slider > label").all_text_contents()
            spoken = [handle.aria_snapshot() for handle in explorer.handles.all()]
            assert spoken == [f'- slider "{label}"' for label in labels]
            values = [handle.get_attribute("aria-valuetext") for handle in explorer.handles.all()]
            assert values == explorer.state().readouts
            assert axe_faults(explorer) == []

    def test_exercise_takes_the_solution_and_refuses_a_wrong_answer_with_its_hint(self, notebook):
        cells = nbformat.from_dict(notebook.model()["cells"])
        stubs = [(i, stub_name(c)) for i, c in enumerate(cells) if stub_name(c)]
        assert bool(stubs) == notebook.lesson
        if not stubs:
            return
        index, name = stubs[0]
        told = ((i, checks([c])) for i, c in enumerate(cells) if c.cell_type == "code")
        below, answer = next((i, answers[name]) for i, answers in told if name in answers)
        wrong = importlib.import_module(f"tests.wrong_answers.nb{notebook.number}").WRONG[name]
        mistake, (_, hint) = next(iter(wrong.items()))
        source = f"from tests.wrong_answers import nb{notebook.number} as wrong\n"
        shown = notebook.answer(index, below, f"{source}{answer} = wrong.WRONG[{name!r}][{mistake!r}][0]")
        assert "✗ wrong" in shown
        assert hint in shown
        exercise = getattr(importlib.import_module(f"course_utils.exercises.nb{notebook.number}"), name)
        assert "✓ correct" in notebook.answer(index, below, exercise.solution_source())

    def test_headings_are_an_outline(self, notebook):
        headings = notebook.panel.locator(".jp-RenderedMarkdown :is(h1, h2, h3, h4, h5, h6)")
        assert outline_faults(headings.evaluate_all(HEADINGS)) == []

    def test_each_picture_has_a_description_beside_it(self, notebook):
        pictures = notebook.cells.evaluate_all(PICTURES)
        assert bool(pictures) == notebook.lesson
        assert [p["number"] for p in pictures if not p["described"]] == []

    def test_links_lead_to_what_the_server_has(self, notebook, lab):
        links = notebook.panel.locator(".jp-RenderedMarkdown a:not(.jp-InternalAnchorLink)")
        addresses = links.evaluate_all("all => all.map(a => a.href)")
        here = [a.removeprefix(lab.address) for a in addresses if a.startswith(lab.address)]
        assert here
        for path in here:
            lab.get(path).close()


def test_link_of_the_landing_page_opens_its_notebook(lab, lab_page):
    landing = Notebook(lab_page, course.LANDING)
    landing.panel.get_by_role("link", name="01 · The layer and the op").first.click()
    opened = "() => window.jupyterapp.shell.currentWidget.context?.path === 'notebooks/01_layer_and_op.ipynb'"
    lab_page.wait_for_function(opened)
    # The notebook is there before its cells are drawn, so this one waits.
    expect(lab_page.get_by_role("heading", name="01 · The layer and the op")).to_be_visible(timeout=PATIENCE)
    landing.close()  # closes what is in front
    landing.close()


@pytest.mark.parametrize(
    ("levels", "faults"),
    [
        ([1, 2, 3, 3, 2], []),
        ([1, 3], ["level 3 after 1: h"]),
        ([2, 3], ["no title"]),
        ([1, 2, 1], ["a second title: h"]),
        ([], ["no title"]),
    ],
)
def test_outline_faults_are_found(levels, faults):
    assert outline_faults([(level, "h") for level in levels]) == faults


@pytest.mark.parametrize(
    ("drawn", "shown", "same"),
    [
        ("1", "1.00", True),
        ("0.956", "0.956", True),
        ("3.162", "3.16", True),
        ("0.0003162", "3.16e-4", True),
        ("-0.5", "−0.50", True),
        ("1.1", "1.00", False),
        ("3.18", "3.16", False),
        ("0.5", "−0.50", False),
    ],
)
def test_same_number_allows_for_rounding_alone(drawn, shown, same):
    assert same_number(drawn, shown) == same


def test_without_chromium_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    playwright = types.SimpleNamespace(chromium=types.SimpleNamespace(executable_path=str(tmp_path / "none")))
    with pytest.raises(AssertionError, match="install it with `sudo apt install chromium`"):
        find_chromium(playwright)
