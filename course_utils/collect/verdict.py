"""The part of the collection that runs inside of the learner's kernel: the judge looks at the answer."""

from __future__ import annotations

import importlib
import sys

#: What carries a verdict from the kernel to the process that asked for it.
MIME = "application/vnd.course-utils.verdict+json"


class Verdict:
    """One of the outcomes of an exercise, in a form that travels as the result of a cell."""

    def __init__(self, outcome: str, problem: str = "") -> None:
        self.outcome, self.problem = outcome, problem

    def _repr_mimebundle_(self, **_):
        return {MIME: {"outcome": self.outcome, "problem": self.problem}, "text/plain": self.outcome}


def judge(package: str, number: str, exercise: str, answer: str, namespace: dict) -> Verdict:
    """Let the judge of an exercise look at the object that is called `answer` in a namespace.

    The exercises are loaded anew, so that what a notebook did to them, by accident or not, has no effect.

    Args:
        package: The package that holds a module `nbNN` for each notebook.
        number: The two digits of the notebook.
        exercise: The name of the exercise.
        answer: The name of the object.
        namespace: Where it is looked up, the kernel's user namespace.

    Returns:
        The outcome, with a sentence where it needs one.
    """
    if answer not in namespace:
        return Verdict("not attempted", f"{exercise}: {answer} is not defined: was its cell deleted?")
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]
    judge_of = getattr(importlib.import_module(f"{package}.nb{number}"), exercise)
    try:
        return Verdict(judge_of.check(namespace[answer]).kind)
    except KeyboardInterrupt:
        return Verdict("error", f"{exercise}: the check took too long and was interrupted")
