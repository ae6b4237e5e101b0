"""The authors' tool leaves no diff when nothing changed, and stores nothing that differs from run to run."""

import nbformat
import pytest

from tests import refresh

CODE = """
import ipywidgets
from course_utils import explore
print("one", flush=True)
print("two")
explore(lambda slope=1.0: {"line": ([0, 1], [0, slope])}, title="a line", slope=(0.0, 2.0))
"""


def write(path, *codes):
    """Store a notebook of a text cell and code cells, and give its path."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("text")])
    notebook.cells += map(nbformat.v4.new_code_cell, codes)
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A notebook that was refreshed, and the ids that its cells had before."""
    path = write(tmp_path_factory.mktemp("refresh") / "a.ipynb", CODE, "", "1 + 1")
    ids = [c.id for c in nbformat.read(path, as_version=4).cells]
    assert refresh.refresh(path)
    return path, ids


def test_second_run_changes_nothing(fresh):
    path, ids = fresh
    first = path.read_bytes()
    assert not refresh.refresh(path)
    assert path.read_bytes() == first
    assert [c.id for c in nbformat.read(path, as_version=4).cells] == ids


def test_keeps_text_and_picture_and_drops_the_rest(fresh):
    path, _ = fresh
    notebook = nbformat.read(path, as_version=4)
    stream, explorer = notebook.cells[1].outputs
    assert stream.text == "one\ntwo\n"
    assert sorted(explorer.data) == ["image/png", "text/plain"]
    assert explorer.data["text/plain"] == "a line: slope = 1"
    assert "widgets" not in notebook.metadata
    assert [c.execution_count for c in notebook.cells if c.cell_type == "code"] == [1, None, 2]
    assert not any("execution" in c.metadata for c in notebook.cells)


def test_a_cell_that_raises_leaves_the_file_alone(tmp_path, capsys):
    path = write(tmp_path / "a.ipynb", "print(1)", "1 / 0")
    before = path.read_bytes()
    assert refresh.main([str(path)]) == 1
    told = capsys.readouterr().err
    assert "not written, a cell raised" in told
    assert "ZeroDivisionError" in told
    assert path.read_bytes() == before
