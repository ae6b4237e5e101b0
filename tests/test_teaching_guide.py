"""The teaching guide says what the notebooks hold: minutes, exercises, slider settings, links, commands."""

import ast
import functools
import pathlib
import re
import shlex
import urllib.parse

import nbformat
import pytest

from course_utils.collect.__main__ import parser
from course_utils.collect.submissions import tasks
from course_utils.explorers import Slider

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
GUIDE = (ROOT / "notebooks" / "teaching_guide.md").read_text(encoding="utf-8")
HEADING = re.compile(r"^### \[(\d\d) · [^\]]+\]\((.+)\)$", re.MULTILINE)
PARTS = ("**Aims:**", "**Stuck:**", "**Sliders:**", "**Discuss:**", "**Set:**")


def sections() -> dict[str, str]:
    """Give the text about each notebook, by its number."""
    found = list(HEADING.finditer(GUIDE))
    ends = [match.start() for match in found[1:]] + [GUIDE.index("## Collect the work")]
    return {match[1]: GUIDE[match.end() : end] for match, end in zip(found, ends, strict=True)}


SECTIONS = sections()


@functools.cache
def cells_of(path: pathlib.Path) -> list:
    return nbformat.read(path, as_version=4).cells


def trees(path: pathlib.Path) -> list[ast.Module]:
    return [ast.parse(cell.source) for cell in cells_of(path) if cell.cell_type == "code"]


def as_slider(node: ast.AST) -> Slider | None:
    """Give the slider that an expression in a notebook means: a tuple of numbers, or a call of `Slider`."""
    try:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Slider":
            values = [ast.literal_eval(argument) for argument in node.args]
            return Slider(*values, **{k.arg: ast.literal_eval(k.value) for k in node.keywords})
        return Slider(*ast.literal_eval(node)) if isinstance(node, ast.Tuple) else None
    except ValueError:
        return None  # a tuple of something else, such as labels


def sliders(path: pathlib.Path) -> dict[str, Slider]:
    """Give the sliders of a notebook by name: written in the call, in a dict or in a variable."""
    nodes = [node for tree in trees(path) for node in ast.walk(tree)]
    variables, found = {}, {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            targets = [t for target in node.targets for t in getattr(target, "elts", [target])]
            values = getattr(node.value, "elts", [node.value])
            pairs = zip(targets, values, strict=False)
            variables |= {target.id: value for target, value in pairs if isinstance(target, ast.Name)}
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found |= {k.value: v for k, v in pairs if isinstance(k, ast.Constant) and "Slider" in ast.dump(v)}
    for node in nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("explore", "explore_op"):
            found |= {
                k.arg: variables.get(getattr(k.value, "id", ""), k.value) for k in node.keywords if k.arg
            }
    return {
        name: slider
        for name, node in found.items()
        if name not in ("x", "ylim", "ylabel") or "Slider" in ast.dump(node)
        if (slider := as_slider(node))
    }


def exercises(number: str) -> set[str]:
    """Give the exercises of a notebook; test_exercises.py holds its tags against the package."""
    (path,) = (path for path in NOTEBOOKS if path.name[:2] == number)
    return {f"nb{number}.{task.exercise}" for task in tasks(path)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
class TestEachNotebook:
    def test_has_a_section_that_is_complete(self, path):
        text = SECTIONS[path.name[:2]]
        assert [part for part in PARTS if part not in text] == []
        assert re.search(r"\*\*Discuss:\*\*.*\*[^*]+\?\* \w", text, re.DOTALL), "a question, and its answer"

    def test_minutes_are_those_of_the_notebook(self, path):
        said = re.search(r"\*\*Time:\*\* (\d+) minutes", cells_of(path)[0].source)
        (minutes,) = re.findall(r"^\*\*Minutes:\*\* (\d+)$", SECTIONS[path.name[:2]], re.MULTILINE)
        assert minutes == said[1]

    def test_sliders_exist_and_take_the_values(self, path):
        text = SECTIONS[path.name[:2]].split("**Sliders:**")[1].split("- **Discuss:**")[0]
        settings, known = re.findall(r"`(\w+) = ([^`]+)`", text), sliders(path)
        assert settings
        for name, value in settings:
            slider, number = known[name], float(value)
            assert slider.low <= number <= slider.high, f"{name} = {value}: {slider}"
            steps = (number - slider.low) / slider.step
            assert slider.log or abs(steps - round(steps)) < 1e-6, f"{name} = {value}: between two steps"

    def test_every_slider_of_the_notebook_was_found(self, path):
        """Held against the stored outputs, which name the sliders of each explorer."""
        outputs = [o for c in cells_of(path) for o in c.get("outputs", [])]
        texts = [o.data["text/plain"] for o in outputs if "image/png" in o.get("data", {})]
        named = {name for text in texts if not text.startswith("<") for name in re.findall(r"(\w+) = ", text)}
        titles = " ".join(text.rsplit(": ", 1)[0] for text in texts)
        assert {name for name in named if f"{name} = " not in titles} == set(sliders(path))

    def test_sets_exercises_of_this_notebook(self, path):
        number = path.name[:2]
        named = set(re.findall(r"`(nb\d\d\.\w+)`", SECTIONS[number].split("**Set:**")[1]))
        assert named
        assert named <= exercises(number)


def test_exercises_named_anywhere_exist():
    present = {path.name[:2] for path in NOTEBOOKS}
    named = {(n, x) for n, x in re.findall(r"`nb(\d\d)\.(\w+)`", GUIDE) if n in present}
    assert [f"nb{n}.{x}" for n, x in sorted(named) if f"nb{n}.{x}" not in exercises(n)] == []


@pytest.mark.parametrize("minutes", [45, 90, 180])
def test_routes_add_up(minutes):
    (table,) = re.findall(rf"^### {minutes} minutes.*?\n\n(.*?)\n\n", GUIDE, re.DOTALL | re.MULTILINE)
    assert sum(int(row) for row in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)) == minutes


def test_chapters_of_a_notebook_that_a_route_names_exist():
    routes = GUIDE[GUIDE.index("## Routes") : GUIDE.index("## How a lesson goes")]
    for name, rest in re.findall(r"\[\d\d\]\((\d\d_\w+\.ipynb)\)(.*)", routes):
        if (ROOT / "notebooks" / name).exists():
            cells = cells_of(ROOT / "notebooks" / name)
            headings = {c.source.split("\n")[0].lstrip("# ") for c in cells if c.source.startswith("#")}
            headings |= {h for c in cells for h in re.findall(r"^#+ (.+)$", c.source, re.MULTILINE)}
            assert set(re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", rest)) <= headings


def test_readme_leads_to_the_guide():
    assert "notebooks/teaching_guide.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_command_lines_of_the_collection_are_understood():
    lines = re.findall(r"-m course_utils\.collect (.+?)`?$", GUIDE, re.MULTILINE)
    assert len(lines) >= 1
    for line in lines:
        if "--help" not in line:
            parser().parse_args(shlex.split(line.rstrip("`.")))
    for option, value in re.findall(r"`(--[\w-]+) (\d+)`", GUIDE):
        assert parser().parse_args(["x", option, value])
        default = parser().get_default(option[2:].replace("-", "_"))
        assert default == float(value), f"{option} is {default} by default"


def test_link_of_nbgitpuller_is_the_one_printed(capsys):
    code, printed = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", GUIDE, re.DOTALL).groups()
    names = {}
    exec(code, names)
    assert capsys.readouterr().out == printed
    address = names["link"]("https://hub.example.edu/", "https://x.org/a b", "03 é.ipynb", folder="f/g")
    parts = urllib.parse.urlsplit(address)
    assert parts.path == "/hub/user-redirect/git-pull"
    assert dict(urllib.parse.parse_qsl(parts.query, strict_parsing=True)) == {
        "repo": "https://x.org/a b",
        "branch": "main",
        "targetPath": "f/g",
        "urlpath": "lab/tree/f/g/notebooks/03 é.ipynb",
    }
