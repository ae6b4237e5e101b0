"""A folder of submissions becomes a table: every outcome comes from a judge, every accident has its reason.

The course here is a toy of one notebook whose exercises need no TensorFlow: a kernel starts in a second.
"""

import csv
import pathlib

import nbformat
import psutil
import pytest

from course_utils.collect import __main__ as command
from course_utils.collect import submissions

NOTEBOOKS = pathlib.Path(__file__).parents[1] / "notebooks"

EXERCISES = """
from course_utils.exercises.exercise import Exercise, WrongAnswer


def judge_one(answer):
    if answer(1) != 2:
        raise WrongAnswer("f(1)", 2, answer(1))
    return "Good."


def judge_two(answer):
    if answer != 42:
        raise WrongAnswer("the number", 42, answer)
    return "Good."


one = Exercise("one", judge_one, ("a", "b"), lambda: None, minutes=1, difficulty=1)
two = Exercise("two", judge_two, ("a", "b"), lambda: None, minutes=1, difficulty=3)
"""
STUB = 'def add_one(x):\n    raise NotImplementedError("your turn")'
RIGHT = "def add_one(x):\n    return x + 1"
BROKEN = "number = 41"
CHECKS = ("from toy_exercises import nb90\n\nnb90.one.check(add_one)", "nb90.two.check(number)")


def notebook(*sources: str):
    """Make a notebook; a source that begins with `#:name` is the cell of that exercise."""
    made = nbformat.v4.new_notebook()
    for source in sources:
        cell = nbformat.v4.new_code_cell(source)
        if source.startswith("#:"):
            head, _, cell.source = source.partition("\n")
            cell.metadata.tags = [f"exercise:{head[2:]}"]
        made.cells.append(cell)
    return made


def handed_in(one: str = STUB, two: str = BROKEN, before: str = "import time", between: str = "1 + 1"):
    return notebook(before, f"#:one\n{one}", CHECKS[0], between, f"#:two\n{two}", CHECKS[1])


#: A person's name, what they handed in, the outcomes of the two exercises, words of the problem.
CLASS = {
    "patches": (
        handed_in(before="from toy_exercises import nb90\nnb90.one.check = nb90.two.check = lambda x: True"),
        ("not attempted", "not attempted"),
        "",
    ),
    "prints": (
        handed_in("print('✓ correct')\ndef add_one(x):\n    return x", "number = 7"),
        ("wrong", "wrong"),
        "",
    ),
    "raises_and_asks": (
        handed_in("def add_one(x):\n    return x + None", "number = 42", between="input('name? ')"),
        ("error", "correct"),
        "cell 4: StdinNotImplementedError",
    ),
    "exits": (
        handed_in(RIGHT, "number = 42", between="import sys; sys.exit()"),
        ("correct", "correct"),
        "cell 4: SystemExit",
    ),
    "renames": (
        notebook("#:one\ndef mine(x):\n    return x + 1", CHECKS[0].replace("add_one", "mine")),
        ("correct", "not attempted"),
        "two: its cells were deleted",
    ),
    "no_check": (notebook(f"#:one\n{RIGHT}"), ("correct", "not attempted"), "two: its cells were deleted"),
    "no_stub": (
        notebook(*CHECKS),
        ("not attempted", "not attempted"),
        "cell 1: NameError: name 'add_one' is not defined; one: add_one is not defined: was its cell",
    ),
    "typing_error": (
        handed_in("def add_one(x:", "number = 42"),
        ("not attempted", "correct"),
        "cell 2: SyntaxError: ",
    ),
    "loops": (
        handed_in(
            "def add_one(x):\n    while True:\n        time.sleep(0.1)",
            "number = 42",
            between="while True:\n    time.sleep(0.1)",
        ),
        ("error", "correct"),
        "one: the check took too long and was interrupted; cell 4 took longer than 6 s and was interrupted",
    ),
    "dies": (
        handed_in(RIGHT, between="import os; os.kill(os.getpid(), 9)"),
        ("correct", "not judged"),
        "the kernel died, in cell 4",
    ),
    "hogs": (
        handed_in(RIGHT, between="hog = []\nwhile True:\n    hog.append(bytearray(10_000_000))"),
        ("correct", "not judged"),
        "used more than 0.5 GB of memory and was stopped, in cell 4",
    ),
    "other_language": (
        handed_in(RIGHT),
        ("not judged", "not judged"),
        "written for a kernel of julia, not of Python",
    ),
    "empty": (notebook(), ("not judged", "not judged"), "it has no code cell"),
    "no_json": ("%PDF-1.7", ("not judged", "not judged"), "not a notebook: NotJSONError"),
    "json_list": ("[1, 2]", ("not judged", "not judged"), "not a notebook: "),
}
CLASS["other_language"][0].metadata.kernelspec = {"name": "x", "display_name": "x", "language": "julia"}
CLASS["exits"][0].metadata.kernelspec = {"name": "somebodys_venv", "display_name": "mine"}


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """The course as it is handed out: one notebook and its exercises."""
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy_exercises").mkdir()
    (folder / "toy_exercises" / "__init__.py").write_text("")
    (folder / "toy_exercises" / "nb90.py").write_text(EXERCISES)
    (folder / "notebooks").mkdir()
    nbformat.write(handed_in(), folder / "notebooks" / "90_toy.ipynb")
    return folder


def run(toy, folder, *options) -> dict[str, dict]:
    """Run the command on a folder and give the rows by person."""
    output = toy / "outcomes.csv"
    course = ("--notebooks", str(toy / "notebooks"), "--exercises", "toy_exercises")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{toy}:{pathlib.Path(__file__).parents[1]}")
        assert command.main([str(folder), "-o", str(output), *course, *options]) == 0
    with output.open(newline="", encoding="utf-8-sig") as file:
        return {row["person"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def rows(toy, tmp_path_factory):
    """The table of the whole class, made by one run of the command, two notebooks at a time."""
    folder = tmp_path_factory.mktemp("submitted")
    for person, (content, *_) in CLASS.items():
        (folder / person).mkdir()
        text = content if isinstance(content, str) else nbformat.writes(content)
        (folder / person / "90_toy (1).ipynb").write_text(text)
    return run(toy, folder, "--memory", "0.5", "--cell-timeout", "6", "--timeout", "100", "-j", "2")


@pytest.mark.parametrize("person", CLASS)
def test_each_accident_has_its_row_and_its_reason(rows, person):
    _, outcomes, problem = CLASS[person]
    row = rows[person]
    assert (row["90.one"], row["90.two"]) == outcomes, row["problem"]
    assert problem in row["problem"]
    assert bool(row["problem"]) == bool(problem)
    assert ".py, line" not in row["problem"]  # the file that IPython makes of a cell
    assert (row["correct"], row["of"]) == (str(outcomes.count("correct")), "2")


def test_nothing_is_left_running(rows):
    ours = [p for p in psutil.Process().children(recursive=True) if "notebook_run" in " ".join(p.cmdline())]
    assert rows
    assert ours == []


def running(pid: int) -> bool:
    """Tell whether a process still runs; one that ended and waits to be collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_cell_that_heeds_no_interrupt_is_stopped_with_what_it_started(toy, tmp_path):
    stubborn = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "while True:\n    try:\n        while True:\n            time.sleep(0.1)\n"
        "    except KeyboardInterrupt:\n        pass"
    )
    folder = tmp_path / "submitted"
    folder.mkdir()
    nbformat.write(handed_in(RIGHT, between=stubborn), folder / "ann_90.ipynb")
    row = run(toy, folder, "--timeout", "25", "--cell-timeout", "5")["ann"]
    assert (row["90.one"], row["90.two"]) == ("correct", "not judged")
    assert "took longer than 25 s and was stopped, in cell 4" in row["problem"]
    assert not running(int((tmp_path / "pid").read_text()))


def test_files_that_are_no_notebooks_and_people_who_sent_none(toy, tmp_path):
    for name in (
        "ben/90_toy.py",
        "cleo/essay.ipynb",
        "dan/91_other.ipynb",
        "90_toy.ipynb",
        "=cmd/90_toy.docx",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "eve" / ".ipynb_checkpoints").mkdir(parents=True)
    (tmp_path / "ben" / ".DS_Store").write_text("")
    rows = run(toy, tmp_path)
    assert rows["ben"]["problem"] == "not a notebook: 90_toy.py"
    assert "does not have the form NN_title.ipynb" in rows["cleo"]["problem"]
    assert rows["dan"]["problem"] == "the course has no notebook 91"
    assert "a folder for each person" in rows[""]["problem"]
    assert rows["eve"]["problem"] == "the folder is empty"
    assert rows["'=cmd"]["problem"] == "not a notebook: 90_toy.docx"
    assert len(rows) == 6


@pytest.mark.parametrize(
    ("name", "person", "number"),
    [
        ("ann/04_straight.ipynb", "ann", "04"),
        ("ann/04_straight (2).ipynb", "ann", "04"),
        ("ann/week 3/04_straight-Copy1.ipynb", "ann", "04"),
        ("ann_04.ipynb", "ann", "04"),
        ("ann_lee_2026_04_straight.ipynb", "ann_lee_2026", "04"),
        (
            "Ann Lee_123456_assignsubmission_file_04_straight.ipynb",
            "Ann Lee_123456_assignsubmission_file",
            "04",
        ),
    ],
)
def test_person_and_notebook_are_read_from_the_path(tmp_path, name, person, number):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("{}")
    (found,) = submissions.find_submissions(tmp_path)
    assert (found.person, found.number, found.problem) == (person, number, "")


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("[0-9]*.ipynb")), ids=lambda p: p.stem)
def test_knows_every_exercise_of_the_course_and_sees_it_untouched(path):
    cells = submissions.code_cells(nbformat.read(path, as_version=4))
    tags = [name for cell in cells for name in submissions.exercise_tags(cell)]
    found = submissions.tasks(path)
    assert [task.exercise for task in found] == tags
    assert all(submissions.untouched(cells, task, task.answer) for task in found)
    assert all(submissions.place(cells, task, task.answer) is not None for task in found)


def test_a_notebook_of_the_course_with_one_answer(tmp_path):
    """The real judges, in a kernel with TensorFlow."""
    made = nbformat.read(NOTEBOOKS / "00_start_here.ipynb", as_version=4)
    stub = next(cell for cell in made.cells if submissions.exercise_tags(cell))
    stub.source = "def double(x):\n    return 2 * x"
    nbformat.write(made, tmp_path / "ann_00.ipynb")
    assert command.main([str(tmp_path), "-o", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open(newline="", encoding="utf-8-sig") as file:
        (row,) = csv.DictReader(file)
    assert (row["00.double"], row["correct"], row["of"], row["problem"]) == ("correct", "1", "1", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["no_such_folder"], "is no folder"), ([".", "-j", "0"], "must be positive"), (["{empty}"], "is empty")],
)
def test_a_wrong_command_line_says_what_to_do(arguments, words, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main([argument.format(empty=tmp_path) for argument in arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
