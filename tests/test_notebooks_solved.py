"""Each notebook with its stubs replaced by the solutions; its explorers at all corners; its memory."""

import importlib
import pathlib

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from course_utils.collect.submissions import exercise_tags
from tests.refresh import execute

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("[0-9]*.ipynb"))  # lessons
MOST_MEMORY = 1_000_000_000  # bytes; Binder promises one gigabyte

AFTERWARDS = """
import pathlib
from course_utils.explorers import sweep
print("\\n".join(sweep()))
# Linux alone tells the peak of a process in this way; elsewhere the line is empty.
status = pathlib.Path("/proc/self/status")
peak = next(line for line in status.read_text().splitlines() if "VmHWM" in line) if status.exists() else ""
print("peak kB:", peak.split()[1] if peak else 0)
"""


def stub_name(cell) -> str | None:
    """Give the name of the exercise whose stub a cell holds, from its tag, or None."""
    return next(iter(exercise_tags(cell)), None)


def solve(notebook, module) -> list[str]:
    """Replace each stub by its solution, in place; give the names of the exercises."""
    names = []
    for cell in notebook.cells:
        if name := stub_name(cell):
            cell.source = getattr(module, name).solution_source()
            names.append(name)
    return names


def run_solved(notebook, number: str) -> tuple[list[str], list[str]]:
    """Run a notebook with every solution; give the exercises and the lines that `AFTERWARDS` prints."""
    names = solve(notebook, importlib.import_module(f"course_utils.exercises.nb{number}"))
    notebook.cells.append(nbformat.v4.new_code_cell(AFTERWARDS))
    execute(notebook)
    return names, notebook.cells[-1].outputs[0].text.splitlines()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_with_every_solution(path):
    notebook = nbformat.read(path, as_version=4)
    names, (*explorers, memory) = run_solved(notebook, path.stem[:2])
    texts = [o.get("data", {}).get("text/plain", "") for c in notebook.cells for o in c.get("outputs", [])]
    assert sum("✓ correct" in text for text in texts) == len(names)
    assert not any(mark in text for text in texts for mark in ("✗ wrong", "! error", "○ not attempted"))
    assert explorers
    assert all(int(line.rsplit(": ")[-1].split()[0]) >= 3 for line in explorers)
    assert int(memory.split()[-1]) * 1024 < MOST_MEMORY


def test_a_slider_that_raises_at_one_end_fails():
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    cell = next(c for c in notebook.cells if "def tangent" in c.source)
    cell.source = cell.source.replace("x = np", "assert point < 2.4, 'too far'\n    x = np")
    with pytest.raises(CellExecutionError, match="too far"):
        run_solved(notebook, "00")
