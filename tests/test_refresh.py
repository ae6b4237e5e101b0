"""The authors' tool leaves no diff when nothing changed, and stores nothing that differs from run to run."""

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from tests import refresh

CODE = """
import ipywidgets
from course_utils import explore
print("one", flush=True)
print("two")
explore(lambda slope=1.0: {"line": ([0, 1], [0, slope])}, title="a line", slope=(0.0, 2.0))
"""


@pytest.fixture
def path(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("text")])
    notebook.cells += [nbformat.v4.new_code_cell(code) for code in (CODE, "", "1 + 1")]
    path = tmp_path / "a.ipynb"
    nbformat.write(notebook, path)
    return path


def test_second_run_changes_nothing(path):
    ids = [c.id for c in nbformat.read(path, as_version=4).cells]
    assert refresh.refresh(path)
    first = path.read_bytes()
    assert not refresh.refresh(path)
    assert path.read_bytes() == first
    assert [c.id for c in nbformat.read(path, as_version=4).cells] == ids


def test_keeps_text_and_picture_and_drops_the_rest(path):
    refresh.refresh(path)
    notebook = nbformat.read(path, as_version=4)
    stream, explorer = notebook.cells[1].outputs
    assert stream.text == "one\ntwo\n"
    assert sorted(explorer.data) == ["image/png", "text/plain"]
    assert explorer.data["text/plain"] == "a line: slope = 1"
    assert "widgets" not in notebook.metadata
    assert [c.execution_count for c in notebook.cells if c.cell_type == "code"] == [1, None, 2]
    assert not any("execution" in c.metadata for c in notebook.cells)


def test_a_cell_that_raises_leaves_the_file_alone(path, capsys):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[3].source = "1 / 0"
    nbformat.write(notebook, path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        refresh.refresh(path)
    assert refresh.main([str(path)]) == 1
    assert "not written, a cell raised" in capsys.readouterr().err
    assert path.read_bytes() == before
