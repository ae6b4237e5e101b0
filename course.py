"""Open the course, or test it; both make the environment first. See README.md.

    python3 course.py lab      # JupyterLab on the first notebook; further words go to JupyterLab
    python3 course.py test     # lint, format, all tests; further words go to pytest

It needs nothing but Python's standard library, and it is written so that every Python can read it: one that
is too old or too new gets a sentence, not a syntax error.
"""

import hashlib
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(HERE, ".venv")
STAMP = os.path.join(VENV, "course_installed")
LOWEST, HIGHEST = (3, 11), (3, 13)
FIRST_NOTEBOOK = "notebooks/00_start_here.ipynb"


def wrong_python(version):
    """Give the sentence for a Python (major, minor) that cannot run the course, or None for one that can."""
    if LOWEST <= tuple(version[:2]) <= HIGHEST:
        return None
    return (
        "The course needs Python %d.%d to %d.%d, and this is Python %d.%d: install one of those, "
        "and run the same line with it, for example `python%d.%d course.py lab`."
        % (LOWEST + HIGHEST + tuple(version[:2]) + HIGHEST)
    )


def inside(name):
    """Give the path of a program of the environment, `python` for example, on any system."""
    folder, ending = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
    return os.path.join(VENV, folder, name + ending)


def fingerprint():
    """Give two lines: which environment this has to be, and which packages it has to hold."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        with open(os.path.join(HERE, name), "rb") as stream:
            digest.update(stream.read())
    # The package is installed from this folder: a folder that was moved or copied needs its own environment.
    return ["Python %d.%d in %s" % (sys.version_info[:2] + (HERE,)), digest.hexdigest()]


def recorded():
    """Give the fingerprint of the environment that is there; two empty lines where none is complete."""
    if not (os.path.exists(STAMP) and os.path.exists(inside("python"))):
        return ["", ""]
    with open(STAMP) as stream:
        return stream.read().splitlines()


def make_environment():
    """Make `.venv` with the pinned packages, unless that was done; exit with one sentence if it fails."""
    wanted, found = fingerprint(), recorded()
    if found == wanted:
        return
    print("Setting up .venv with the pinned packages; the first time this takes some minutes.")
    sys.stdout.flush()
    # What an interrupted set-up or another Python left is no ground to build on; an older list is.
    if found[0] != wanted[0]:
        make_venv()
    if os.path.exists(STAMP):
        os.remove(STAMP)
    pip = [inside("python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.call(pip + ["-r", "requirements.txt"], cwd=HERE) != 0:
        sys.exit("pip could not install the packages, for the reason above; run the same line to try again.")
    with open(STAMP, "w") as stream:
        stream.write("\n".join(wanted))


def make_venv():
    """Make an empty `.venv`, in place of what is there."""
    try:
        import ensurepip  # noqa: F401 - some systems ship Python without it
        import venv  # noqa: F401
    except ImportError:
        package = "python%d.%d-venv" % sys.version_info[:2]
        sys.exit(
            "This Python cannot make virtual environments. On Debian and Ubuntu run "
            "`sudo apt-get install %s`, then the same line again." % package
        )
    if subprocess.call([sys.executable, "-m", "venv", "--clear", VENV]) != 0:
        sys.exit("Python could not make .venv, for the reason above; run the same line to try again.")


def lab_settings(environment):
    """Give the environment variables under which JupyterLab starts with the course's defaults."""
    paths = [os.path.join(HERE, "binder", "jupyter"), environment.get("JUPYTER_CONFIG_PATH")]
    return dict(environment, JUPYTER_CONFIG_PATH=os.pathsep.join(filter(None, paths)))


def lab(arguments):
    """Open JupyterLab on the first notebook."""
    command = [inside("python"), "-m", "jupyterlab", FIRST_NOTEBOOK] + arguments
    os.chdir(HERE)
    if os.name == "nt":
        return subprocess.call(command, env=lab_settings(os.environ))
    # JupyterLab takes the place of this process, so that Ctrl-C and signals reach it and nothing else.
    return os.execve(command[0], command, lab_settings(os.environ))  # noqa: S606


def test(arguments):
    """Check lint and format, then run every test; stop at the first step that fails and say which it was."""
    for step in (["ruff", "check", "."], ["ruff", "format", "--check", "."], ["pytest"] + arguments):
        print("== " + " ".join(step))
        sys.stdout.flush()
        status = subprocess.call([inside("python"), "-m"] + step, cwd=HERE)
        if status != 0:
            print("== failed: " + " ".join(step))
            return status
    return 0


def main(arguments):
    """Do what the first word says; give the exit status."""
    commands = {"lab": lab, "test": test}
    if not arguments or arguments[0] not in commands:
        print(__doc__)
        return 2
    problem = wrong_python(sys.version_info)
    if problem:
        print(problem)
        return 1
    make_environment()
    return commands[arguments[0]](arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
