"""What holds for every committed notebook: one rule, one function, which says what is wrong.

A rule takes a notebook and its number, which is empty for a sheet that is no lesson. It gives a line for
each fault, none where the notebook is in order. `test_notebook_rules.py` has a bad notebook for each.
"""

import math
import re
from collections.abc import Callable, Iterator

from nbformat import NotebookNode

from course_utils.collect.submissions import exercise_tags

Rule = Callable[[NotebookNode, str], list[str]]

VIEW = "application/vnd.jupyter.widget-view+json"
MOST_CELLS = {"08": 50, "13": 70}
MOST_LINES = 15
#: How fast one reads prose with formulas, where each cell of code is looked at too: nobody is faster.
WORDS_A_MINUTE = 120
#: A path of somebody's machine, or an address: neither means anything to a reader.
PRIVATE = re.compile(r"/(?:home|Users|root|tmp|work|usr)/|[A-Z]:\\\\|site-packages|0x[0-9a-f]{6,}")


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """Give the code cells that hold something."""
    return [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]


def tags(cell: NotebookNode) -> list[str]:
    """Give the tags of a cell."""
    return cell.metadata.get("tags", [])


def outputs(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    """Give each output with its cell."""
    return ((cell, output) for cell in code_cells(notebook) for output in cell.outputs)


def text_of(output: NotebookNode) -> str:
    """Give all that an output says in words."""
    data = output.get("data", {})
    return output.get("text", "") + "".join(v for kind, v in data.items() if kind.startswith("text/"))


def name_of(cell: NotebookNode) -> str:
    """Give the line by which a fault names a cell."""
    return (cell.source.strip().splitlines() or [""])[-1]


def says(notebook: NotebookNode, pattern: str) -> bool:
    """Tell whether a pattern occurs in the prose."""
    return any(re.search(pattern, cell.source) for cell in notebook.cells if cell.cell_type == "markdown")


# What is stored.


def executed_in_order(notebook: NotebookNode, _number: str) -> list[str]:
    """Every code cell was executed, from top to bottom in a fresh kernel."""
    counts = [cell.execution_count for cell in code_cells(notebook)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"executed as {counts}"]


def no_widget_state(notebook: NotebookNode, _number: str) -> list[str]:
    """No state of widgets is stored, which is long and differs from run to run."""
    return ["widget state is stored"] if "widgets" in notebook.metadata else []


def no_execution_times(notebook: NotebookNode, _number: str) -> list[str]:
    """No times are stored."""
    return [f"time stored: {name_of(c)}" for c in notebook.cells if "execution" in c.metadata]


def one_id_a_cell(notebook: NotebookNode, _number: str) -> list[str]:
    """No two cells have one id."""
    ids = [cell.id for cell in notebook.cells]
    return [f"id of two cells: {i}" for i in sorted(set(ids)) if ids.count(i) > 1]


def nothing_on_standard_error(notebook: NotebookNode, _number: str) -> list[str]:
    """Nothing was written to standard error."""
    return [f"standard error: {text_of(o)[:80]}" for _, o in outputs(notebook) if o.get("name") == "stderr"]


def no_unannounced_error(notebook: NotebookNode, _number: str) -> list[str]:
    """A traceback stands only where the tag `raises-exception` says that it is the lesson."""
    errors = [(cell, o) for cell, o in outputs(notebook) if o.output_type == "error"]
    return [f"an error: {o.ename}" for cell, o in errors if "raises-exception" not in tags(cell)]


def no_widget_view(notebook: NotebookNode, _number: str) -> list[str]:
    """No view of a widget is stored: readers without a kernel would see an error box."""
    return [f"a widget view: {name_of(cell)}" for cell, o in outputs(notebook) if VIEW in o.get("data", {})]


def nothing_private(notebook: NotebookNode, _number: str) -> list[str]:
    """No output holds a path of a machine or an address."""
    found = [match for _, output in outputs(notebook) for match in PRIVATE.findall(text_of(output))]
    return [f"a path or an address: {match}" for match in found]


# How it is built.


def starts_quietly(notebook: NotebookNode, _number: str) -> list[str]:
    """The first code cell hides TensorFlow's notices, and does nothing else."""
    first = code_cells(notebook)[0].source if code_cells(notebook) else ""
    return [] if first == "import course_utils.quiet" else [f"the first code cell is {first!r}"]


def states_objectives(notebook: NotebookNode, number: str) -> list[str]:
    """A lesson says what one can do after it."""
    return [] if not number or says(notebook, r"\*\*After this notebook you can\*\*") else ["no objectives"]


def states_what_it_builds_on(notebook: NotebookNode, number: str) -> list[str]:
    """A lesson says what it builds on."""
    return [] if not number or says(notebook, r"\*\*Builds on:\*\*") else ["no line on what it builds on"]


def states_minutes(notebook: NotebookNode, number: str) -> list[str]:
    """A lesson says how long it takes."""
    return [] if not number or says(notebook, r"\*\*Time:\*\* \d+ minutes") else ["no minutes"]


def minutes_are_enough(notebook: NotebookNode, _number: str) -> list[str]:
    """The minutes of a lesson hold those of its exercises, and leave time to read the prose."""
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    stated = re.search(r"\*\*Time:\*\* (\d+) minutes", prose)
    exercises = sum(map(int, re.findall(r"\((\d+) minutes?, difficulty", prose)))
    read = re.sub(r"(?m)^\|.*$", "", prose)  # tables are looked up
    least = exercises + math.ceil(len(read.split()) / WORDS_A_MINUTE)
    return [f"{stated[1]} minutes, {least} at least"] if stated and int(stated[1]) < least else []


def ends_in_a_recap(notebook: NotebookNode, number: str) -> list[str]:
    """A lesson has a recap."""
    return [] if not number or says(notebook, r"(?m)^## Recap") else ["no recap"]


def says_what_comes_next(notebook: NotebookNode, number: str) -> list[str]:
    """A lesson says what comes next."""
    return [] if not number or says(notebook, r"\*\*Next:\*\*") else ["no line on what comes next"]


def few_cells(notebook: NotebookNode, number: str) -> list[str]:
    """A notebook has at most 40 cells; the two that hold many cases may have more."""
    most = MOST_CELLS.get(number, 40)
    return [f"{len(notebook.cells)} cells, {most} at most"] if len(notebook.cells) > most else []


def short_cells(notebook: NotebookNode, _number: str) -> list[str]:
    """A code cell has at most 15 lines."""
    long = [cell for cell in code_cells(notebook) if len(cell.source.splitlines()) > MOST_LINES]
    return [f"a code cell of {len(c.source.splitlines())} lines: {name_of(c)}" for c in long]


def figures_are_described(notebook: NotebookNode, _number: str) -> list[str]:
    """The prose before a picture says what it shows, for those who do not see it."""
    described, found = False, []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            described = "*Figure:" in cell.source
        elif not described and any("image/png" in o.get("data", {}) for o in cell.get("outputs", [])):
            found.append(f"a figure without a description: {name_of(cell)}")
    return found


def what_is_not_compared_asserts(notebook: NotebookNode, _number: str) -> list[str]:
    """A cell whose output is not compared ends in an assertion."""
    exempt = [cell for cell in code_cells(notebook) if "nbval-ignore-output" in tags(cell)]
    return [f"no assertion: {name_of(c)}" for c in exempt if not name_of(c).strip().startswith("assert ")]


def has_exercises(notebook: NotebookNode, number: str) -> list[str]:
    """A lesson has three exercises or more, the introduction one."""
    stubs = [name for cell in code_cells(notebook) for name in exercise_tags(cell)]
    least = {"": 0, "00": 1}.get(number, 3)
    return [f"{len(stubs)} exercises, {least} at least"] if len(stubs) < least else []


def has_an_explorer(notebook: NotebookNode, number: str) -> list[str]:
    """A lesson has a figure with sliders."""
    there = any(re.search(r"\bexplore(_op)?\(", cell.source) for cell in code_cells(notebook))
    return [] if there or not number else ["no explorer"]


RULES: tuple[Rule, ...] = (
    executed_in_order,
    no_widget_state,
    no_execution_times,
    one_id_a_cell,
    nothing_on_standard_error,
    no_unannounced_error,
    no_widget_view,
    nothing_private,
    starts_quietly,
    states_objectives,
    states_what_it_builds_on,
    states_minutes,
    minutes_are_enough,
    ends_in_a_recap,
    says_what_comes_next,
    few_cells,
    short_cells,
    figures_are_described,
    what_is_not_compared_asserts,
    has_exercises,
    has_an_explorer,
)
