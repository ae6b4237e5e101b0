"""Run the tests and the notebooks on other versions of Python and of the dependencies, and print a table.

    python -m tests.versions                     # every row
    python -m tests.versions 3.11-lowest         # one row
    python -m tests.versions --list

Each row gets an environment of its own in a temporary folder, and a clone of the committed files. It takes
gigabytes and minutes: this is a tool for maintainers and no part of the test line. It asks for `uv`
on the path, which finds the interpreters and resolves the versions; it downloads no interpreter, and a row
whose Python this machine lacks is shown as missing.

- `pinned` installs `requirements.txt`, where notebooks must print what is committed, letter for letter.
- `lowest` takes the lowest versions that `pyproject.toml` allows for what it names itself, so that the ranges
  there are true; `newest` the highest. On both, notebooks must run, and may print other digits.

The exit status is 1 when a row fails.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
ROWS = ("3.11-pinned", "3.12-pinned", "3.13-pinned", "3.11-lowest", "3.13-newest")
SHOWN = ("tensorflow", "keras", "numpy")
VERDICTS = ("tests", "notebooks", "minutes")

#: A browser shows the same pages whatever the versions: the test line opens them.
NO_ROW = ("tests/browser",)
#: What holds for the pinned set alone: files of the repository, its launcher, the compared digits.
PINNED_ONLY = (
    "tests/test_environment.py",
    "tests/test_launch.py",
    "tests/test_nbval_policy.py",
    "tests/test_notebooks.py",
    "tests/test_refresh.py",
)

VERSIONS = """
import importlib, sys
print(*(importlib.import_module(name).__version__ for name in sys.argv[1:]))
"""


def has_python(version: str) -> bool:
    """Tell whether uv finds a Python of this version on the machine."""
    command = ["uv", "python", "find", "--no-python-downloads", version]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def install(folder: pathlib.Path, clone: pathlib.Path, version: str, kind: str) -> pathlib.Path:
    """Make an environment in `folder` with the versions of one row, and give its interpreter."""
    subprocess.run(["uv", "venv", "--quiet", "--seed", "--python", version, folder], check=True)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if kind == "pinned":
        what = ["-r", "requirements.txt"]
    else:
        strategy = {"lowest": "lowest-direct", "newest": "highest"}[kind]
        what = ["--resolution", strategy, "--editable", ".[tensorflow,course,jax,test]"]
    subprocess.run(["uv", "pip", "install", "--quiet", "--python", python, *what], cwd=clone, check=True)
    return python


def pytest(python: pathlib.Path, clone: pathlib.Path, *options: str) -> str:
    """Run pytest in the clone, show what it prints, and give its verdict."""
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1"}
    command = [python, "-m", "pytest", "-q", *options]
    status = subprocess.run(command, cwd=clone, env=environment, check=False).returncode
    return "passed" if status == 0 else f"FAILED ({status})"


def run_row(row: str) -> dict[str, str]:
    """Install one row's versions, run units and notebooks on them, and give the row of the table."""
    version, kind = row.split("-")
    if not has_python(version):
        return {"row": row, **dict.fromkeys([*SHOWN, *VERDICTS], "-"), "tests": f"no Python {version} here"}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        clone = pathlib.Path(scratch) / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        python = install(pathlib.Path(scratch) / "environment", clone, version, kind)
        found = subprocess.run(
            [python, "-c", VERSIONS, *SHOWN], cwd=clone, check=True, capture_output=True, text=True
        ).stdout.split()
        lax = kind != "pinned"
        left_out = NO_ROW + (PINNED_ONLY if lax else ())
        units = pytest(python, clone, *(f"--ignore={path}" for path in left_out), "tests", "course_utils")
        notebooks = pytest(python, clone, *(["--nbval-lax"] if lax else []), "notebooks")
    verdicts = (units, notebooks, f"{(time.monotonic() - started) / 60:.0f}")
    return {"row": row, **dict(zip([*SHOWN, *VERDICTS], [*found, *verdicts], strict=True))}


def table(results: list[dict[str, str]]) -> str:
    """Lay out rows with equal keys as a Markdown table."""
    lines = [list(results[0]), ["---"] * len(results[0]), *(list(result.values()) for result in results)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Run the rows that the command line names, all by default."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__.split("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all by default")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    arguments = parser.parse_args()
    if arguments.list:
        print(*ROWS, sep="\n")
        return 0
    if unknown := sorted(set(arguments.rows) - set(ROWS)):
        parser.error(f"unknown row {', '.join(unknown)}: choose from {', '.join(ROWS)}")
    if not shutil.which("uv"):
        parser.error("uv is not on the path: install it with `python -m pip install uv`, then run this again")
    results = [run_row(row) for row in arguments.rows or ROWS]
    print(table(results))
    return int(any("FAILED" in cell for result in results for cell in result.values()))


if __name__ == "__main__":
    sys.exit(main())
