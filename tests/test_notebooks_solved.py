"""Each notebook as a learner leaves it: away from its folder, after wrong answers, with the solutions.

Its explorers are computed at all corners, and its memory is measured.
"""

import copy
import importlib
import pathlib

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from course_utils.collect.submissions import exercise_tags, tasks
from tests.refresh import execute

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))  # lessons
MOST_MEMORY = 1_000_000_000  # bytes; Binder promises one gigabyte

WRONG_ANSWER = """
import sys
sys.path.append({root!r})
from course_utils.exercises import nb{number}
from tests.wrong_answers.nb{number} import WRONG
{answer}, _ = next(iter(WRONG[{exercise!r}].values()))
nb{number}.{exercise}.check({answer})
"""

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


def answer_wrong_first(notebook, path: pathlib.Path) -> None:
    """Put a cell before each stub that gives the exercise a wrong answer and checks it, in place."""
    wrong = {
        task.exercise: WRONG_ANSWER.format(
            root=str(ROOT), number=path.stem[:2], exercise=task.exercise, answer=task.answer
        )
        for task in tasks(path)
    }
    for cell in list(notebook.cells):
        if name := stub_name(cell):
            notebook.cells.insert(notebook.cells.index(cell), nbformat.v4.new_code_cell(wrong[name]))


def run_solved(notebook, number: str, folder: pathlib.Path) -> tuple[list[str], list[str]]:
    """Run a notebook with every solution; give the exercises and the lines that `AFTERWARDS` prints."""
    names = solve(notebook, importlib.import_module(f"course_utils.exercises.nb{number}"))
    notebook.cells.append(nbformat.v4.new_code_cell(AFTERWARDS))
    execute(notebook, folder)
    return names, notebook.cells[-1].outputs[0].text.splitlines()


def verdicts(notebook) -> list[str]:
    """Give the first line of each verdict that a notebook shows."""
    texts = [o.get("data", {}).get("text/plain", "") for c in notebook.cells for o in c.get("outputs", [])]
    return [text.splitlines()[0] for text in texts if text.startswith(("✓", "✗", "!", "○"))]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_with_every_solution(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    answer_wrong_first(notebook, path)
    names, (*explorers, memory) = run_solved(notebook, path.stem[:2], tmp_path)
    assert verdicts(notebook) == ["✗ wrong", "✓ correct"] * len(names)
    assert explorers
    assert all(int(line.rsplit(": ")[-1].split()[0]) >= 3 for line in explorers)
    assert int(memory.split()[-1]) * 1024 < MOST_MEMORY


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs_with_each_cell_twice(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    names = solve(notebook, importlib.import_module(f"course_utils.exercises.nb{path.stem[:2]}"))
    notebook.cells = [c for cell in notebook.cells for c in (cell, copy.deepcopy(cell))]
    execute(notebook, tmp_path)
    assert verdicts(notebook) == ["✓ correct"] * 2 * len(names)


def test_a_slider_that_raises_at_one_end_fails(tmp_path):
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    cell = next(c for c in notebook.cells if "def tangent" in c.source)
    cell.source = cell.source.replace("x = np", "assert point < 2.4, 'too far'\n    x = np")
    with pytest.raises(CellExecutionError, match="too far"):
        run_solved(notebook, "00", tmp_path)
