"""Committed notebooks: what nbval does not look at."""

import pathlib
import re

import nbformat
import pytest

from tests.notebook_rules import RULES

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_follows_the_rules(path):
    # Not nbformat.read, which mends what it finds: two cells of one id.
    notebook = nbformat.v4.reads(path.read_text(encoding="utf-8"))
    # Those that teach have a number. A sheet for looking things up has no exercises, and nothing comes next.
    number = path.stem[:2] if path.stem[0].isdigit() else ""
    assert {rule.__name__: found for rule in RULES if (found := rule(notebook, number))} == {}


def titles() -> dict[str, str]:
    """Give the title of each notebook, by file name; the notebooks are the one place for them."""
    return {p.name: nbformat.read(p, as_version=4).cells[0].source.splitlines()[0][2:] for p in NOTEBOOKS}


@pytest.mark.parametrize("place", ["README.md", "notebooks/00_start_here.ipynb"])
def test_tables_name_every_notebook_by_its_title(place):
    text = (ROOT / place).read_text(encoding="utf-8")
    rows = re.findall(r"\| \[([^\]]+)\]\((?:notebooks/)?([^)]+\.ipynb)\)", text)
    assert {name: title for title, name in rows} == titles()
