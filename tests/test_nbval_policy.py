"""The policy of tests/README.md holds: what is wrong in a notebook makes the run fail."""

import os
import pathlib
import shutil
import subprocess
import sys

import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "00_start_here.ipynb"
SANITIZE = f"--nbval-sanitize-with={ROOT / 'tests' / 'nbval_sanitize.cfg'}"


def nbval(path: pathlib.Path) -> subprocess.CompletedProcess:
    """Run nbval on one notebook as the test line does, in a process of its own."""
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "--nbval",
        "--nbval-current-env",
        SANITIZE,
        f"--rootdir={path.parent}",
    ]
    command = [sys.executable, "-m", "pytest", *options, "-c", os.devnull, str(path)]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path):
    """Give a copy of the landing notebook and a function that stores a changed one."""
    path = tmp_path / NOTEBOOK.name
    shutil.copy(NOTEBOOK, path)
    return path


def change(path: pathlib.Path, old: str, new: str, where: str) -> None:
    """Replace text in the sources or the printed outputs of a notebook."""
    notebook, found = nbformat.read(path, as_version=4), False
    for cell in notebook.cells:
        if where == "source" and old in cell.source:
            cell.source, found = cell.source.replace(old, new), True
        for output in cell.get("outputs", []):
            if where == "output" and old in output.get("text", ""):
                output.text, found = output.text.replace(old, new), True
    assert found
    nbformat.write(notebook, path)


def test_a_right_copy_passes(copy):
    result = nbval(copy)
    assert result.returncode == 0, result.stdout[-2000:]


def test_a_wrong_number_fails(copy):
    change(copy, "slope at 1.0: 2.0", "slope at 1.0: 2.1", "output")
    result = nbval(copy)
    assert result.returncode == 1
    assert "slope at 1.0: 2.1" in result.stdout


def test_a_slider_that_raises_at_its_default_fails(copy):
    change(copy, "line = point**2", "line = point.no_such_thing", "source")
    assert nbval(copy).returncode == 1


def test_a_changed_default_of_a_slider_fails(copy):
    change(copy, "def tangent(point=1.0)", "def tangent(point=1.5)", "source")
    assert nbval(copy).returncode == 1
