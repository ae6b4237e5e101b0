"""Each rule for notebooks, on a good and on a bad notebook of its own."""

import inspect

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tests import notebook_rules as rules


def notebook(cells: list, **metadata):
    """Make a notebook of the cells as they are: nbformat's own function would mend them."""
    made = new_notebook(metadata=metadata)
    made.cells = list(cells)
    return made


def prose(text: str):
    """Make a Markdown cell."""
    return new_markdown_cell(text)


def code(source: str, *outputs, count: int = 1, tags=(), **metadata):
    """Make a code cell that was executed."""
    metadata |= {"tags": list(tags)} if tags else {}
    return new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def printed(text: str, name: str = "stdout"):
    """Make what a cell prints."""
    return new_output("stream", name=name, text=text)


def shown(**data):
    """Make what a cell shows."""
    return new_output("display_data", data)


def failed(name: str):
    """Make what a cell leaves that raises an error."""
    return new_output("error", ename=name, evalue="", traceback=[])


def same_id(*cells):
    """Give all cells the id of the first."""
    for cell in cells:
        cell.id = cells[0].id
    return cells


def stub(name: str):
    """Make the stub of an exercise."""
    return code('raise NotImplementedError("your turn")', tags=[f"exercise:{name}"])


def lines(count: int):
    """Make a code cell of so many lines."""
    return code("\n".join(["x = 1"] * count))


PNG, VIEW = {"image/png": "AA=="}, {rules.VIEW: {}}
EXPLORED = code("explore_op(lambda a: tf.square, a=(0, 1))")
STUBS = [stub("a"), stub("b"), stub("c")]
#: By rule: the number of the notebook, the cells of a good one and of a bad one, and what is said of the bad.
CASES = {
    rules.executed_in_order: (
        "01",
        [code("a", count=1), prose("text"), code("b", count=2), code("", count=None)],
        [code("a", count=2), code("b", count=1)],
        "executed as [2, 1]",
    ),
    rules.no_execution_times: (
        "01",
        [code("a")],
        [code("a", execution={"iopub.execute_input": "2024-01-01T00:00:00Z"})],
        "time stored: a",
    ),
    rules.one_id_a_cell: ("01", [code("a"), code("b")], same_id(code("a"), code("b")), "id of two cells"),
    rules.nothing_on_standard_error: (
        "01",
        [code("a", printed("1\n"))],
        [code("a", printed("1\n"), printed("W0000 slow", "stderr"))],
        "standard error: W0000 slow",
    ),
    rules.no_unannounced_error: (
        "01",
        [code("a", failed("ValueError"), tags=["raises-exception"])],
        [code("a", failed("ValueError"))],
        "an error: ValueError",
    ),
    rules.no_widget_view: (
        "01",
        [code("explore(f)", shown(**PNG))],
        [code("explore(f)", shown(**PNG, **VIEW))],
        "a widget view: explore(f)",
    ),
    rules.nothing_private: (
        "01",
        [code("a", printed("saved to model.keras, /homework\n"))],
        # In pieces: no file may hold such a path.
        [code("a", printed("in /home" + "/me/x.py\n"))],
        "a path or an address: /home" + "/",
    ),
    rules.starts_quietly: (
        "",
        [prose("# Title"), code("import course_utils.quiet"), code("import keras")],
        [code("import keras"), code("import course_utils.quiet")],
        "the first code cell is 'import keras'",
    ),
    rules.states_objectives: (
        "01",
        [prose("**After this notebook you can** square.")],
        [code("# **After this notebook you can**")],
        "no objectives",
    ),
    rules.states_what_it_builds_on: (
        "01",
        [prose("**Builds on:** nothing")],
        [prose("It builds on nothing.")],
        "no line on what it builds on",
    ),
    rules.states_minutes: (
        "01",
        [prose("**Time:** 40 minutes")],
        [prose("**Time:** some minutes")],
        "no minutes",
    ),
    rules.minutes_are_enough: (
        "01",
        [prose("**Time:** 40 minutes"), prose("(30 minutes, difficulty 2 of 3)" + " word" * 1100)],
        [prose("**Time:** 40 minutes"), prose("(31 minutes, difficulty 2 of 3)" + " word" * 1100)],
        "40 minutes, 41 at least",
    ),
    rules.ends_in_a_recap: ("01", [prose("text\n## Recap\ntext")], [prose("In the ## Recap")], "no recap"),
    rules.says_what_comes_next: (
        "01",
        [prose("**Next:** [02](02.ipynb)")],
        [prose("Next, this.")],
        "no line on what comes next",
    ),
    rules.few_cells: ("01", [prose("text")] * 40, [prose("text")] * 41, "41 cells, 40 at most"),
    rules.short_cells: ("01", [lines(15), prose("a\n" * 16)], [lines(16)], "a code cell of 16 lines: x = 1"),
    rules.figures_are_described: (
        "01",
        [prose("*Figure: a line.*"), code("plot()", shown(**PNG))],
        [prose("*Figure: a line.*"), prose("Else."), code("plot()", shown(**PNG))],
        "a figure without a description: plot()",
    ),
    rules.what_is_not_compared_asserts: (
        "01",
        [code("print(t)\nassert t > 0", tags=["nbval-ignore-output"]), code("print(t)")],
        [code("assert t > 0\nprint(t)", tags=["nbval-ignore-output"])],
        "no assertion: print(t)",
    ),
    rules.has_exercises: ("01", STUBS, STUBS[:2], "2 exercises, 3 at least"),
    rules.has_an_explorer: ("01", [EXPLORED], [prose("explore(f)"), code("explored(f)")], "no explorer"),
}


@pytest.mark.parametrize("rule", CASES, ids=lambda rule: rule.__name__)
class TestEachRule:
    def test_is_silent_on_a_good_notebook(self, rule):
        number, good, *_ = CASES[rule]
        assert rule(notebook(good), number) == []

    def test_finds_the_fault_of_a_bad_notebook(self, rule):
        number, _, bad, said = CASES[rule]
        (fault,) = rule(notebook(bad), number)
        assert fault.startswith(said)


def test_widget_state():
    assert rules.no_widget_state(notebook([]), "01") == []
    assert rules.no_widget_state(notebook([], widgets={}), "01") == ["widget state is stored"]


def test_every_rule_has_its_notebooks():
    takes = [
        f for f in vars(rules).values() if inspect.isfunction(f) and len(inspect.signature(f).parameters) == 2
    ]
    named = {f for f in takes if f is not rules.says}
    assert named == set(rules.RULES) == {*CASES, rules.no_widget_state}


@pytest.mark.parametrize(("number", "cells"), [("08", 50), ("13", 70), ("01", 40)])
def test_the_long_ones_have_a_limit_too(number, cells):
    assert rules.few_cells(notebook([prose("text")] * cells), number) == []
    assert rules.few_cells(notebook([prose("text")] * (cells + 1)), number) != []


def test_a_sheet_is_no_lesson():
    sheet = notebook([code("import course_utils.quiet")])
    assert [fault for rule in rules.RULES for fault in rule(sheet, "")] == []
    assert len([fault for rule in rules.RULES for fault in rule(sheet, "01")]) == 7


def test_the_introduction_needs_one_exercise():
    assert rules.has_exercises(notebook(STUBS[:1]), "00") == []
    assert rules.has_exercises(notebook([]), "00") == ["0 exercises, 1 at least"]


def test_an_address_is_private():
    address = "0x7f00" + "aabbcc"
    cell = code("f", new_output("execute_result", {"text/plain": f"<f at {address}>"}, execution_count=1))
    assert rules.nothing_private(notebook([cell]), "01") == [f"a path or an address: {address}"]
