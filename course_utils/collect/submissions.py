"""Which notebooks were handed in, by whom, and which exercises they should hold."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import nbformat

#: `04_title.ipynb`, in a folder with the name of the person; a browser may have added ` (1)` to it.
IN_FOLDER = re.compile(r"(?P<number>\d\d)_.*\.ipynb", re.IGNORECASE)
#: `person_04.ipynb` or `person_04_title.ipynb`, side by side in one folder.
FLAT = re.compile(r"(?P<person>.*?\D.*?)_(?P<number>\d\d)(_.*|\W.*)?\.ipynb", re.IGNORECASE)

CHECK = re.compile(r"^[^#\n]*\bnb(\d\d)\.(\w+)\.check\(\s*(\w+)\s*\)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Submission:
    """One file that was handed in; `problem` says why it cannot be run, if so.

    Attributes:
        person: Whose it is, from the folder's or the file's name; empty where neither tells.
        path: The file.
        number: The two digits of the notebook, such as `"04"`; empty where the name tells none.
        problem: Why it is no notebook of the course, or `""`.
    """

    person: str
    path: pathlib.Path
    number: str = ""
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Task:
    """One exercise of a notebook: its name, the name of the answer, and the stub as it was handed out."""

    exercise: str
    answer: str
    stub: str


def find_submissions(folder: pathlib.Path) -> list[Submission]:
    """List what lies in a folder, as `person/NN_title.ipynb` or as `person_NN.ipynb`, sorted by path.

    Hidden files and folders are left out, such as the checkpoints that JupyterLab makes.

    Args:
        folder: The folder with all submissions; both forms may be mixed.

    Returns:
        One `Submission` for each file, and one for each person whose folder is empty.
    """
    found = []
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if any(part.startswith((".", "__")) for part in parts):
            continue
        if path.is_file():
            found.append(_from_folder(parts[0], path) if len(parts) > 1 else _flat(path))
        elif len(parts) == 1 and not any(p.is_file() for p in path.rglob("*")):
            found.append(Submission(parts[0], path, problem="the folder is empty"))
    return found


def _from_folder(person: str, path: pathlib.Path) -> Submission:
    match = IN_FOLDER.fullmatch(path.name)
    if match:
        return Submission(person, path, match["number"])
    return _no_notebook(person, path, "NN_title.ipynb")


def _flat(path: pathlib.Path) -> Submission:
    match = FLAT.fullmatch(path.name)
    if match:
        return Submission(match["person"], path, match["number"])
    return _no_notebook("", path, "person_NN.ipynb, or a folder for each person")


def _no_notebook(person: str, path: pathlib.Path, form: str) -> Submission:
    what = f"the name does not have the form {form}" if path.suffix.lower() == ".ipynb" else "not a notebook"
    return Submission(person, path, problem=f"{what}: {path.name}")


def course_notebooks(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Give the notebooks of the course by their numbers, as they are handed out."""
    return {path.name[:2]: path for path in sorted(folder.glob("[0-9][0-9]_*.ipynb"))}


def tasks(path: pathlib.Path) -> list[Task]:
    """List the exercises of a notebook of the course, in its order.

    An exercise is a cell with the tag `exercise:NAME` and a call `nbNN.NAME.check(answer)`.
    """
    cells = code_cells(nbformat.read(path, as_version=4))
    stubs = {name: cell.source for cell in cells for name in exercise_tags(cell)}
    return [Task(name, answer, stubs[name]) for name, answer in checks(cells).items() if name in stubs]


def code_cells(notebook) -> list:
    """Give the code cells of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def exercise_tags(cell) -> list[str]:
    """Give the names of the exercises whose stub a cell held when the notebook was handed out."""
    tags = cell.metadata.get("tags", [])
    return [tag.removeprefix("exercise:") for tag in tags if str(tag).startswith("exercise:")]


def checks(cells) -> dict[str, str]:
    """Give the name of the answer for each exercise that is checked in some cells; the last check counts."""
    return {name: answer for cell in cells for _, name, answer in CHECK.findall(cell.source)}


def binds(source: str, name: str) -> bool:
    """Tell whether a cell defines `name` at its top level: a function, a class or an assignment."""
    definition = rf"^(?:(?:def|class)\s+{name}\b|{name}\s*(?::[^=\n]+)?=(?!=))"
    return bool(re.search(definition, source, re.MULTILINE))


def place(cells, task: Task, answer: str) -> int | None:
    """Say after which cell an exercise is judged, counted from 0; None when no cell has to do with it.

    That is the last one that checks it or that holds its tag; failing both, the last that defines the answer.
    """
    name = task.exercise
    mine = [i for i, cell in enumerate(cells) if name in exercise_tags(cell) or name in checks([cell])]
    mine = mine or [i for i, cell in enumerate(cells) if binds(cell.source, answer)]
    return mine[-1] if mine else None


def untouched(cells, task: Task, answer: str) -> bool:
    """Tell whether the stub stands as it was handed out and nothing else defines the answer."""
    defining = [cell.source.strip() for cell in cells if binds(cell.source, answer)]
    return set(defining) == {task.stub.strip()}
