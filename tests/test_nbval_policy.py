"""The policy of tests/README.md holds: what is wrong in a notebook makes the run fail."""

import copy
import os
import pathlib
import re
import subprocess
import sys

import nbformat

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "00_start_here.ipynb"
SANITIZE = f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval_sanitize.cfg'}"


SLIDER, SLOPES = "explore(tangent", "slope at {point}"


def nbval(path: pathlib.Path) -> subprocess.CompletedProcess:
    """Run nbval on one notebook as the test line does, in a process of its own."""
    options = ["-rA", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env", SANITIZE]
    options += [f"--rootdir={path.parent}", "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *options, str(path)]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)


def changed(cell, old: str, new: str, where: str):
    """Give a copy of a cell with other text in its source or in what it printed."""
    cell = copy.deepcopy(cell)
    cell.id = nbformat.v4.new_code_cell().id
    holder, key = (cell, "source") if where == "source" else (cell.outputs[0], "text")
    assert old in holder[key]
    holder[key] = holder[key].replace(old, new)
    return cell


def test_each_wrong_cell_fails_and_each_right_one_passes(tmp_path):
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    quiet, slider, slopes = (
        next(cell for cell in notebook.cells if cell.cell_type == "code" and words in cell.source)
        for words in ("course_utils.quiet", SLIDER, SLOPES)
    )
    cells = {
        "start": quiet,
        "right slider": slider,
        "slider that raises at its default": changed(slider, "point**2", "point.no_such_thing", "source"),
        "other default of a slider": changed(slider, "tangent(point=1.0)", "tangent(point=1.5)", "source"),
        "right number": slopes,
        "wrong number": changed(slopes, "slope at 1.0: 2.0", "slope at 1.0: 2.1", "output"),
    }
    notebook.cells = list(cells.values())
    nbformat.write(notebook, tmp_path / NOTEBOOK.name)
    result = nbval(tmp_path / NOTEBOOK.name)
    failed = re.findall(r"^FAILED .*::Cell (\d+)", result.stdout, re.MULTILINE)
    assert [list(cells)[int(number)] for number in failed] == [
        "slider that raises at its default",
        "other default of a slider",
        "wrong number",
    ], result.stdout[-2000:]
    assert "slope at 1.0: 2.1" in result.stdout
