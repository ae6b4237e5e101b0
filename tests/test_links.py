"""Links in the notebooks and in the pages beside them: a file that is there, and a heading that is there."""

import itertools
import pathlib
import re

import nbformat
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = (ROOT, ROOT / "notebooks", ROOT / "tests")
PAGES = sorted(page for folder in FOLDERS for kind in ("*.md", "*.ipynb") for page in folder.glob(kind))


def tokens(page: pathlib.Path) -> list[Token]:
    """Parse a page of Markdown, or the Markdown cells of a notebook, into blocks."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = nbformat.reads(text, as_version=4).cells
        text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return MarkdownIt("commonmark").enable("table").parse(text)


def links(page: pathlib.Path) -> list[str]:
    """Give the targets of all links and pictures of a page."""
    parts = [part for block in tokens(page) for part in block.children or []]
    return [
        str(part.attrs.get("href", part.attrs.get("src")))
        for part in parts
        if part.type in ("link_open", "image")
    ]


def anchors(page: pathlib.Path) -> set[str]:
    """Give the anchors of a page's headings, as GitHub makes them, for a notebook as JupyterLab does."""
    blocks = tokens(page)
    headings = [after for before, after in itertools.pairwise(blocks) if before.type == "heading_open"]
    texts = ["".join(part.content for part in heading.children or []) for heading in headings]
    if page.suffix == ".ipynb":
        return {text.replace(" ", "-") for text in texts}
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def faults(page: pathlib.Path) -> list[str]:
    """Say which links of a page lead nowhere; what is on other hosts is not looked at."""
    found = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        if re.match(r"\w+:", link):
            continue
        target = page.parent / path if path else page
        if not target.exists():
            found.append(f"no file: {link}")
        elif anchor and anchor not in anchors(target):
            found.append(f"no heading: {link}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_internal_links_lead_somewhere(page):
    assert faults(page) == []


class TestTheGuardsThemselves:
    def test_a_page(self, tmp_path):
        page = tmp_path / "page.md"
        lines = (
            "# A heading, with `code`",
            "[a](#a-heading-with-code) [b](page.md#none) [c](gone.md) [d][ref]",
        )
        page.write_text(
            "\n\n".join([*lines, "![e](gone.png) <https://x.org> `[f](code.md)`", "[ref]: gone/"])
        )
        assert faults(page) == [
            "no heading: page.md#none",
            "no file: gone.md",
            "no file: gone/",
            "no file: gone.png",
        ]

    def test_a_notebook(self, tmp_path):
        source = "## A Heading\n[a](#A-Heading) [b](#a-heading) [c](other.ipynb)"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(source)])
        nbformat.write(notebook, tmp_path / "a.ipynb")
        assert faults(tmp_path / "a.ipynb") == ["no heading: #a-heading", "no file: other.ipynb"]
