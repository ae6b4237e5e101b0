"""Spelling, American, in notebooks, pages and code; the words it leaves alone are in pyproject.toml."""

import pathlib
import subprocess
import sys

import nbformat

ROOT = pathlib.Path(__file__).parents[1]
#: What is ours, by name: a folder such as .venv lies beside it.
TEXTS = (
    "*.md",
    "*.py",
    "*.toml",
    "*.yml",
    ".ci",
    ".github",
    "binder",
    "course_utils",
    "notebooks/*.md",
    "tests",
)


def misspelled(*places: pathlib.Path) -> list[str]:
    """Give a line for each word in these files and folders that codespell would mend."""
    command = [sys.executable, "-X", "utf8", "-m", "codespell_lib", *map(str, places)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_pages_and_code():
    assert misspelled(*(path for pattern in TEXTS for path in sorted(ROOT.glob(pattern)))) == []


def test_notebooks(tmp_path):
    for path in (ROOT / "notebooks").glob("*.ipynb"):  # their sources: a picture is a long word to codespell
        cells = nbformat.read(path, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells)
        (tmp_path / f"{path.stem}.md").write_text(text, encoding="utf-8")
    assert misspelled(tmp_path) == []


def test_finds_a_slip_and_a_british_word(tmp_path):
    slip, british = "recie" + "ve", "behavi" + "our"  # in pieces, since this file is read too
    (tmp_path / "page.md").write_text(f"They {slip} it, a {british}.\n", encoding="utf-8")
    assert [line.partition(": ")[2] for line in misspelled(tmp_path)] == [
        f"{slip} ==> receive",
        f"{british} ==> behavior",
    ]
