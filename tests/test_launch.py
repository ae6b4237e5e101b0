"""The two lines of the README: what course.py decides, and the command lines that it builds."""

import ast
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "course.py"
WANTED = {"python": "3.12.1", "folder": "/course", "packages": "abc"}


@pytest.fixture
def course():
    """A fresh copy of the module, so that a test may change its constants."""
    spec = importlib.util.spec_from_file_location("course_under_test", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(course, tmp_path, monkeypatch):
    """A stand-in for the course's folder, with short lists of packages and no `.venv` yet."""
    (tmp_path / "requirements.txt").write_text("keras==3.15.1\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr(course, "ROOT", str(tmp_path))
    monkeypatch.setattr(course, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(course, "RECORD", str(tmp_path / ".venv" / "course.json"))
    return tmp_path


@pytest.fixture
def calls(course, folder, monkeypatch):
    """The steps that `prepare` takes, noted instead of run; `calls.fails` names those that fail."""

    class Calls(list):
        fails = ()

    noted = Calls()

    def call(command, **options):
        step = command[command.index("-m") + 1]
        noted.append(step)
        (folder / ".venv").mkdir(exist_ok=True)
        assert step != "pip" or options["cwd"] == str(folder)  # `-e .` means this folder
        return int(step in noted.fails)

    monkeypatch.setattr(course.subprocess, "call", call)
    monkeypatch.setattr(course, "version_in", lambda _: course.platform.python_version() if noted else None)
    return noted


# Which Python.


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 1), (3, 13, 9)])
def test_a_python_in_the_range_has_no_problem(course, version):
    assert course.version_problem(version, "python3") is None


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 10, 13), (3, 14, 0), (4, 0, 0)])
def test_another_python_gets_one_sentence_with_found_needed_and_cure(course, version):
    sentence = course.version_problem(version, "/bin/python3", windows=False)
    assert "\n" not in sentence
    assert f"/bin/python3 is Python {'.'.join(map(str, version))}:" in sentence
    assert "needs Python 3.11, 3.12 or 3.13" in sentence
    assert "`python3.12 course.py lab`" in sentence
    assert "`py -3.12 course.py lab`" in course.version_problem(version, "python.exe", windows=True)


def test_the_range_is_that_of_pyproject(course):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    allowed = SpecifierSet(project["requires-python"])
    works = [(3, minor) for minor in range(100) if f"3.{minor}.0" in allowed]
    assert works[0] == course.OLDEST
    assert (3, works[-1][1] + 1) == course.TOO_NEW


def test_an_old_python_can_read_the_file():
    source = FILE.read_text(encoding="ascii")  # Python 2.7 stops at any other letter
    newer = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef, ast.Nonlocal, ast.YieldFrom)
    for node in ast.walk(ast.parse(source)):
        assert not isinstance(node, newer), f"line {node.lineno}: {type(node).__name__}"
        if isinstance(node, ast.FunctionDef):
            assert node.returns is None
            assert not node.args.kwonlyargs
            assert not node.args.posonlyargs
            assert not any(argument.annotation for argument in node.args.args)
        if isinstance(node, ast.Raise):
            assert node.cause is None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}: print is a statement there"


def test_missing_venv_names_the_package(course, monkeypatch):
    assert course.venv_problem() is None
    monkeypatch.setitem(sys.modules, "ensurepip", None)  # as on Debian without python3-venv
    sentence = course.venv_problem()
    assert "\n" not in sentence
    assert "`sudo apt install python{}.{}-venv`".format(*sys.version_info) in sentence


# When .venv is made, filled or left alone.


@pytest.mark.parametrize(
    ("found", "venv_version", "step"),
    [
        (WANTED, "3.12.1", "nothing"),
        ({}, None, "make"),  # no .venv, or one whose making was interrupted
        ({}, "3.12.1", "install"),  # made by hand
        ({"python": "3.12.1", "folder": "/course"}, "3.12.1", "install"),  # an install that was interrupted
        ({**WANTED, "packages": "other"}, "3.12.1", "install"),  # the list has changed
        (WANTED, None, "make"),  # its Python is gone
        (WANTED, "3.11.7", "make"),  # made by another Python
        ({**WANTED, "folder": "/old"}, "3.12.1", "make"),  # moved
    ],
)
def test_next_step(course, found, venv_version, step):
    assert course.next_step(found, WANTED, venv_version) == step


@pytest.mark.parametrize("name", ["requirements.txt", "pyproject.toml"])
def test_the_record_follows_each_list_and_the_python_and_the_folder(course, folder, name):
    before = course.wanted_record(str(folder), "3.12.1")
    assert before == course.wanted_record(str(folder), "3.12.1")
    assert before != course.wanted_record(str(folder), "3.12.2")
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write("# a change\n")
    assert before["packages"] != course.wanted_record(str(folder), "3.12.1")["packages"]


def test_a_record_is_read_as_it_was_written(course, tmp_path):
    path = tmp_path / "course.json"
    assert course.read_record(path) == {}
    course.write_record(path, WANTED)
    assert course.read_record(path) == WANTED
    for damaged in ("", "[1]", '{"python": '):
        path.write_text(damaged)
        assert course.read_record(path) == {}


def test_the_first_start_installs_and_the_second_does_not(course, folder, calls):
    course.prepare("python")
    assert calls == ["venv", "pip"]
    course.prepare("python")
    assert calls == ["venv", "pip"]
    (folder / "requirements.txt").write_text("keras==3.16.0\n")
    course.prepare("python")
    assert calls == ["venv", "pip", "pip"]


def test_a_failed_install_is_taken_up_again(course, folder, calls):
    calls.fails = ("pip",)
    for _ in range(2):
        with pytest.raises(SystemExit, match="pip could not install"):
            course.prepare("python")
    assert calls == ["venv", "pip", "pip"]
    calls.fails = ()
    course.prepare("python")
    assert json.loads((folder / ".venv" / "course.json").read_text())["packages"]


def test_a_failed_update_does_not_pass_for_the_old_list(course, folder, calls):
    course.prepare("python")
    old = (folder / "requirements.txt").read_text()
    (folder / "requirements.txt").write_text("keras==3.16.0\n")
    calls.fails = ("pip",)
    with pytest.raises(SystemExit):
        course.prepare("python")
    calls.fails = ()
    (folder / "requirements.txt").write_text(old)  # what is installed may be half of the new list
    course.prepare("python")
    assert calls == ["venv", "pip", "pip", "pip"]


def test_a_missing_package_of_the_system_stops_before_anything_is_made(course, folder, calls, monkeypatch):
    monkeypatch.setattr(course, "venv_problem", lambda: "a sentence")
    with pytest.raises(SystemExit, match="a sentence"):
        course.prepare("python")
    assert calls == []


def test_version_in(course):
    assert course.version_in(sys.executable) == course.platform.python_version()
    assert course.version_in(str(ROOT / "no" / "python")) is None


# The command lines.


def test_paths_on_each_system(course):
    assert course.venv_python(".venv") == os.path.join(".venv", "bin", "python")
    assert course.venv_python(".venv", windows=True) == os.path.join(".venv", "Scripts", "python.exe")


def test_lab_opens_the_landing_notebook_and_passes_options_on(course):
    command = course.lab_command("python", ["--port", "9000"])
    assert command[:4] == ["python", "-m", "jupyter", "lab"]
    assert "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb" in command
    assert command[-2:] == ["--port", "9000"]


def test_lab_puts_its_defaults_before_those_of_the_reader(course, monkeypatch):
    started = []
    monkeypatch.setattr(course, "run", lambda command, environment: started.append(environment) or 0)
    for own in ({}, {"JUPYTER_CONFIG_PATH": ""}, {"JUPYTER_CONFIG_PATH": "/mine"}):
        course.lab("python", own, [])
    defaults = str(ROOT / "binder" / "jupyter")
    paths = [environment["JUPYTER_CONFIG_PATH"] for environment in started]
    assert paths == [defaults, defaults, os.pathsep.join([defaults, "/mine"])]


def test_the_child_finds_the_programs_of_venv_first(course):
    own = {"PATH": "/bin", "PYTHONHOME": "/other", "HOME": "/me"}
    child = course.child_environment(own, "venv")
    assert child["PATH"].split(os.pathsep) == [os.path.join("venv", "bin"), "/bin"]
    assert "PYTHONHOME" not in child
    assert child["HOME"] == "/me"
    assert own == {"PATH": "/bin", "PYTHONHOME": "/other", "HOME": "/me"}


@pytest.mark.parametrize(
    ("failing", "names"),
    [
        (None, ["check", "format", "mypy", "pytest"]),
        ("check", ["check"]),
        ("format", ["check", "format"]),
        ("mypy", ["check", "format", "mypy"]),
        ("pytest", ["check", "format", "mypy", "pytest"]),
    ],
)
def test_the_test_line_stops_at_the_first_step_that_fails(course, monkeypatch, capsys, failing, names):
    started, environments = [], []

    def run(command, environment):
        started.append(command)
        environments.append(environment)
        return 5 if failing in command else 0

    monkeypatch.setattr(course, "run", run)
    assert course.test("python", {"HOME": "/me"}, ["-k", "clip"]) == (5 if failing else 0)
    assert [name for command, name in zip(started, names, strict=True) if name in command] == names
    assert ("failed with exit status 5" in capsys.readouterr().err) == bool(failing)
    assert environments[0] == {"HOME": "/me", "TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}
    if "pytest" in names:
        assert started[-1] == ["python", "-m", "pytest", "-k", "clip"]


def test_the_exit_status_of_the_child_is_passed_on(course):
    assert course.run([sys.executable, "-c", "raise SystemExit(7)"], dict(os.environ)) == 7


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["labs"], 2), (["--help"], 0), (["-h"], 0)])
def test_anything_else_prints_the_usage(arguments, status):
    ended = subprocess.run([sys.executable, FILE, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == status
    assert "usage: python3 course.py lab" in (ended.stderr if status else ended.stdout)


CHILD = """
import signal, sys, time
signal.signal(signal.{name}, lambda *_: sys.exit(3))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_child_decides_what_a_signal_means(name, tmp_path):
    """Ctrl-C reaches the whole group, SIGTERM course.py alone; each time the child's status comes back."""
    script = tmp_path / "parent.py"
    script.write_text(
        f"import importlib.util, os, sys\n"
        f"spec = importlib.util.spec_from_file_location('course', {str(FILE)!r})\n"
        f"course = importlib.util.module_from_spec(spec)\n"
        f"spec.loader.exec_module(course)\n"
        f"sys.exit(course.run([sys.executable, '-c', {CHILD.format(name=name)!r}], dict(os.environ)))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert parent.stdout.readline() == "ready\n"
        if name == "SIGINT":
            os.killpg(parent.pid, signal.SIGINT)
        else:
            parent.terminate()
        assert parent.wait(30) == 3
    finally:
        if parent.poll() is None:
            os.killpg(parent.pid, signal.SIGKILL)
