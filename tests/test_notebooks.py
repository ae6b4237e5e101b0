"""Committed notebooks: what nbval does not look at."""

import pathlib
import re

import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
#: Those that teach have a number. A sheet for looking things up has no exercises, and nothing comes next.
LESSONS = [path for path in NOTEBOOKS if path.stem[0].isdigit()]
VIEW = "application/vnd.jupyter.widget-view+json"
MOST_CELLS = {"08": 50, "13": 70}
#: A path of somebody's machine, or an address: neither means anything to a reader.
PRIVATE = re.compile(r"/(?:home|Users|root|tmp|work|usr)/|[A-Z]:\\\\|site-packages|0x[0-9a-f]{6,}")


def faults(notebook) -> list[str]:
    """Say what is wrong with a committed notebook; an empty list when nothing is."""
    code = [c for c in notebook.cells if c.cell_type == "code" and c.source.strip()]
    found = []
    if [c.execution_count for c in code] != list(range(1, len(code) + 1)):
        found.append("a cell was not executed, or out of order")
    if "widgets" in notebook.metadata:
        found.append("widget state is stored")
    if any("execution" in c.metadata for c in notebook.cells):
        found.append("execution times are stored")
    if len({c.id for c in notebook.cells}) != len(notebook.cells):
        found.append("two cells have one id")
    for cell in code:
        allowed = "raises-exception" in cell.metadata.get("tags", [])
        for output in cell.outputs:
            found += output_faults(output, allowed)
    return found


def output_faults(output, error_allowed: bool) -> list[str]:
    """Say what is wrong with one output of a cell."""
    data = output.get("data", {})
    text = output.get("text", "") + "".join(v for k, v in data.items() if k.startswith("text/"))
    found = []
    if output.get("name") == "stderr":
        found.append(f"standard error: {text[:80]}")
    if output.output_type == "error" and not error_allowed:
        found.append(f"an error: {output.ename}")
    if VIEW in data and "image/png" not in data:
        found.append("a widget without a picture")
    if VIEW in data:
        found.append("a widget view, which shows an error box to readers without a kernel")
    if PRIVATE.search(text):
        found.append(f"a path or an address: {PRIVATE.search(text).group()}")
    return found


def prose_of(notebook) -> str:
    """Give the text of all Markdown cells."""
    return "\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")


def structure_faults(notebook, number: str) -> list[str]:
    """Say what a reader would miss in a notebook, whose number is empty where it is no lesson."""
    prose = prose_of(notebook)
    needed = {
        "objectives": r"\*\*After this notebook you can\*\*",
        "what it builds on": r"\*\*Builds on:\*\*",
        "minutes": r"\*\*Time:\*\* \d+ minutes",
        "a recap": r"## Recap",
        "what comes next": r"\*\*Next:\*\*",
    }
    found = [f"no {what}" for what, pattern in needed.items() if number and not re.search(pattern, prose)]
    most = MOST_CELLS.get(number, 40)
    if len(notebook.cells) > most:
        found.append(f"{len(notebook.cells)} cells, {most} at most")
    for cell in notebook.cells:
        lines = len(cell.source.splitlines())
        if cell.cell_type == "code" and lines > 15:
            found.append(f"a code cell of {lines} lines: {cell.source.splitlines()[0]}")
    return found + figure_faults(notebook)


def figure_faults(notebook) -> list[str]:
    """Say which pictures have no description in the prose before them."""
    described, found = False, []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            described = "*Figure:" in cell.source
        elif any("image/png" in o.get("data", {}) for o in cell.get("outputs", [])) and not described:
            found.append(f"a figure without a description: {cell.source.splitlines()[-1]}")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
class TestCommitted:
    def test_outputs_are_complete_and_clean(self, path):
        assert faults(nbformat.read(path, as_version=4)) == []

    def test_structure(self, path):
        number = path.stem[:2] if path in LESSONS else ""
        assert structure_faults(nbformat.read(path, as_version=4), number) == []

    def test_starts_quietly(self, path):
        first = next(c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
        assert first.source == "import course_utils.quiet"

    def test_cells_that_are_not_compared_end_in_an_assertion(self, path):
        for cell in nbformat.read(path, as_version=4).cells:
            if "nbval-ignore-output" in cell.metadata.get("tags", []):
                assert cell.source.splitlines()[-1].strip().startswith("assert "), cell.source


@pytest.mark.parametrize("path", LESSONS, ids=lambda p: p.stem)
def test_has_exercises_and_an_explorer(path):
    cells = nbformat.read(path, as_version=4).cells
    stubs = [c for c in cells if any(t.startswith("exercise:") for t in c.metadata.get("tags", []))]
    assert len(stubs) >= (1 if path.stem.startswith("00") else 3)
    assert any("explore(" in c.source or "explore_op(" in c.source for c in cells if c.cell_type == "code")


def titles() -> dict[str, str]:
    """Give the title of each notebook, by file name; the notebooks are the one place for them."""
    return {p.name: nbformat.read(p, as_version=4).cells[0].source.splitlines()[0][2:] for p in NOTEBOOKS}


@pytest.mark.parametrize("place", ["README.md", "notebooks/00_start_here.ipynb"])
def test_tables_name_every_notebook_by_its_title(place):
    text = (ROOT / place).read_text(encoding="utf-8")
    rows = re.findall(r"\| \[([^\]]+)\]\((?:notebooks/)?([^)]+\.ipynb)\)", text)
    assert {name: title for title, name in rows} == titles()


class TestTheGuardsThemselves:
    """Each fault is put into a clean notebook and must be found."""

    @pytest.fixture
    def clean(self):
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [
            nbformat.v4.new_markdown_cell("*Figure: a line.*"),
            nbformat.v4.new_code_cell("1 + 1"),
        ]
        notebook.cells[1].execution_count = 1
        notebook.cells[1].outputs = [
            nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=1)
        ]
        return notebook

    def test_clean_notebook_has_no_fault(self, clean):
        assert faults(clean) == []
        assert figure_faults(clean) == []

    @pytest.mark.parametrize(
        ("name", "damage"),
        [
            ("not executed", lambda nb: nb.cells[1].update(execution_count=None)),
            ("widget state", lambda nb: nb.metadata.update(widgets={})),
            ("execution times", lambda nb: nb.cells[0].metadata.update(execution={})),
            ("one id", lambda nb: nb.cells[0].update(id=nb.cells[1].id)),
            ("standard error", lambda nb: put(nb, "warning", "stderr")),
            ("an error", lambda nb: nb.cells[1].outputs.append(nbformat.v4.new_output("error", ename="E"))),
            ("without a picture", lambda nb: nb.cells[1].outputs[0].data.update({VIEW: {}})),
            ("a path", lambda nb: put(nb, "in /home" + "/me/x.py")),
            (
                "an address",
                lambda nb: put(nb, "<f at 0x7f00" + "aabbcc>"),
            ),
        ],
    )
    def test_finds(self, clean, name, damage):
        damage(clean)
        assert any(name in fault for fault in faults(clean))

    def test_finds_what_a_reader_would_miss(self, clean):
        clean.cells[1].source = "x = 1\n" * 16
        clean.cells += [nbformat.v4.new_markdown_cell("text")] * 40
        found = structure_faults(clean, "01")
        for what in ("objectives", "builds on", "minutes", "recap", "comes next", "42 cells", "16 lines"):
            assert any(what in fault for fault in found)

    def test_finds_a_figure_without_description(self, clean):
        clean.cells[0].source = "no words on it"
        clean.cells[1].outputs[0].data["image/png"] = "AA=="
        assert len(figure_faults(clean)) == 1


def put(notebook, text: str, name: str = "stdout") -> None:
    """Add a stream output to the code cell."""
    notebook.cells[1].outputs.append(nbformat.v4.new_output("stream", name=name, text=text))
