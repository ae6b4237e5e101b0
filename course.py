"""Open the course, or test it: `python3 course.py lab` and `python3 course.py test`.

Both put everything the course needs into the folder `.venv` beside this file, the first time and whenever
`requirements.txt` or `pyproject.toml` has changed. Your own Python installation stays as it is.

This file is written so that Python 2.7 can still read it: a person whose Python is too old
gets a sentence about that and not a SyntaxError.
"""
# ruff: noqa: UP032 - an f-string is what Python 2.7 and 3.5 cannot read

import hashlib
import json
import os
import platform
import signal
import subprocess
import sys

#: The first version that works and the first that does not; a test holds them equal to pyproject.toml.
OLDEST, TOO_NEW = (3, 11), (3, 14)

ROOT = os.path.dirname(os.path.realpath(__file__))
VENV = os.path.join(ROOT, ".venv")
#: What `.venv` was made with. It names the packages only once they are all there.
RECORD = os.path.join(VENV, "course.json")
PINNED = ("requirements.txt", "pyproject.toml")
LANDING = "notebooks/00_start_here.ipynb"
JUPYTER_DEFAULTS = os.path.join(ROOT, "binder", "jupyter")

USAGE = """usage: python3 course.py lab  [options of JupyterLab]
       python3 course.py test [options of pytest]

lab   opens the course in JupyterLab
test  checks style, format and types, runs every test and every notebook
"""


def version_problem(version, executable, windows=False):
    """Say in one sentence why this Python cannot run the course, or give None when it can."""
    if OLDEST <= tuple(version[:2]) < TOO_NEW:
        return None
    works = ["3.{}".format(minor) for minor in range(OLDEST[1], TOO_NEW[1])]
    return (
        "The course needs Python {} or {}, and {} is Python {}: "
        "install one of those, then run `{} course.py lab`."
    ).format(
        ", ".join(works[:-1]),
        works[-1],
        executable,
        ".".join(str(part) for part in version[:3]),
        "py -3.12" if windows else "python3.12",
    )


def venv_problem():
    """Say in one sentence which package Python lacks to make `.venv`, or give None when it lacks none."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        package = "python{}.{}-venv".format(*sys.version_info[:2])
        return (
            "This Python cannot make a virtual environment, since its venv or ensurepip module is missing: "
            "install the package {0} (`sudo apt install {0}`), then run the same line again."
        ).format(package)
    return None


def venv_folder(venv, windows=False):
    """Give the folder of the virtual environment `venv` that holds its programs."""
    return os.path.join(venv, "Scripts" if windows else "bin")


def venv_python(venv, windows=False):
    """Give the path of the Python in the virtual environment `venv`."""
    return os.path.join(venv_folder(venv, windows), "python.exe" if windows else "python")


def wanted_record(root, python_version):
    """Describe the `.venv` that the files of `root` ask for: Python, folder, a hash of the packages."""
    digest = hashlib.sha256()
    for name in PINNED:
        with open(os.path.join(root, name), "rb") as file:
            digest.update(file.read() + b"\0")
    return {"python": python_version, "folder": root, "packages": digest.hexdigest()}


def read_record(path):
    """Give what `.venv` was made with, an empty dict when nothing readable says so."""
    try:
        with open(path) as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(path, record):
    """Note what `.venv` was made with."""
    with open(path, "w") as file:
        json.dump(record, file, indent=1, sort_keys=True)


def next_step(found, wanted, venv_version):
    """Decide what `.venv` needs: `"nothing"`, `"install"` or `"make"`.

    Args:
        found: The record in `.venv`, `{}` when there is none.
        wanted: The record that it should have.
        venv_version: The version of the Python in `.venv`, None when it or its pip does not run.
    """
    # The programs in .venv name their own folder, so a .venv that was moved is made anew.
    if venv_version != wanted["python"] or found.get("folder", wanted["folder"]) != wanted["folder"]:
        return "make"
    return "nothing" if found == wanted else "install"


def version_in(python):
    """Give the version of the interpreter `python`, None when it or its pip does not run."""
    command = [python, "-c", "import pip, platform; print(platform.python_version())"]
    try:
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, universal_newlines=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def pip_command(python):
    """Give the command line that installs the course, to be run in its folder (the list ends with `-e .`)."""
    # --no-input: a password prompt that nobody sees would look like an endless install.
    options = ["--quiet", "--no-input", "--disable-pip-version-check"]
    return [python, "-m", "pip", "install"] + options + ["-r", "requirements.txt"]  # noqa: RUF005 (Python 2.7)


def prepare(python):
    """Bring `.venv` to what the files in `PINNED` ask for, or exit with a sentence that says why not."""
    wanted = wanted_record(ROOT, platform.python_version())
    step = next_step(read_record(RECORD), wanted, version_in(python))
    if step == "nothing":
        return
    if step == "make":
        problem = venv_problem()
        if problem:
            sys.exit(problem)
        say("Making {} with Python {}.".format(VENV, wanted["python"]))
        if subprocess.call([sys.executable, "-m", "venv", "--clear", VENV]):
            sys.exit("Python could not make {}; its own message is above.".format(VENV))
    # Without the packages: if the install is interrupted here, the next run takes it up again.
    write_record(RECORD, {"python": wanted["python"], "folder": wanted["folder"]})
    say("Installing the course's packages into .venv; the first time this takes a minute or two.")
    if subprocess.call(pip_command(python), cwd=ROOT):
        sys.exit(
            "pip could not install the course's packages (its own message is above): "
            "check the network and that 3 GB of disk are free, then run the same line again."
        )
    write_record(RECORD, wanted)


def lab_command(python, arguments):
    """Give the command line of JupyterLab, open on the landing notebook."""
    # A notebook as the argument would make its own folder the root of the file list, without my_work/ in it.
    landing = "--LabApp.default_url=/lab/tree/" + LANDING
    return [python, "-m", "jupyter", "lab", landing] + list(arguments)  # noqa: RUF005 (Python 2.7)


def test_commands(python, arguments):
    """Give the steps of the test line, in order: pairs of a name and a command line."""
    return [
        ("ruff check", [python, "-m", "ruff", "check", "."]),
        ("ruff format --check", [python, "-m", "ruff", "format", "--check", "."]),
        ("mypy", [python, "-m", "mypy"]),
        ("pytest", [python, "-m", "pytest"] + list(arguments)),  # noqa: RUF005 (Python 2.7)
    ]


def child_environment(environment, venv, windows=False):
    """Give a copy of `environment` in which `venv` is active, as its activate script would do it."""
    child = dict(environment, VIRTUAL_ENV=venv)
    child.pop("PYTHONHOME", None)
    child["PATH"] = prepended(venv_folder(venv, windows), environment.get("PATH"))
    return child


def prepended(path, others):
    """Put `path` before the list of paths `others`, which may be missing or empty."""
    return os.pathsep.join([path, others]) if others else path


def run(command, environment):
    """Run `command` in the course's folder, let it answer Ctrl-C and SIGTERM, and give its exit status."""
    child = subprocess.Popen(command, cwd=ROOT, env=environment)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    while True:
        try:
            status = child.wait()
        except KeyboardInterrupt:
            continue  # the terminal sent it to the child too, and the child decides: JupyterLab asks first
        return 128 - status if status < 0 else status  # ended by a signal: the number that a shell would give


def lab(python, environment, arguments):
    """Open JupyterLab on the landing notebook and give its exit status."""
    paths = prepended(JUPYTER_DEFAULTS, environment.get("JUPYTER_CONFIG_PATH"))
    return run(lab_command(python, arguments), dict(environment, JUPYTER_CONFIG_PATH=paths))


def test(python, environment, arguments):
    """Run each step of the test line until one fails, and give the exit status of the last."""
    # TensorFlow's notices differ from run to run, and nbval compares what a notebook prints.
    quiet = dict(environment, TF_CPP_MIN_LOG_LEVEL="1", TF_ENABLE_ONEDNN_OPTS="0")
    for name, command in test_commands(python, arguments):
        say("== " + name)
        status = run(command, quiet)
        if status:
            sys.stderr.write("{} failed with exit status {}; no later step was run.\n".format(name, status))
            return status
    return 0


def say(line):
    """Print `line` at once, so that it stands before what a child process prints."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(arguments):
    """Carry out the command line `arguments` and give the exit status."""
    commands = {"lab": lab, "test": test}
    if not arguments or arguments[0] not in commands:
        asked = arguments[:1] in (["-h"], ["--help"])
        (sys.stdout if asked else sys.stderr).write(USAGE)
        return 0 if asked else 2
    windows = os.name == "nt"
    python = venv_python(VENV, windows)
    prepare(python)
    return commands[arguments[0]](python, child_environment(os.environ, VENV, windows), arguments[1:])


if __name__ == "__main__":
    sentence = version_problem(sys.version_info, sys.executable, os.name == "nt")
    if sentence:
        sys.exit(sentence)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("\nStopped: run the same line again to go on.")
