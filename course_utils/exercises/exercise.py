"""What an exercise is: a judge with four outcomes that are never mixed up, hints, and a solution.

- *not attempted*: the stub is untouched, or the answer raises `NotImplementedError`;
- *error*: the learner's code raised, or TensorFlow or Keras did with what it returned; the outcome shows the
  type, the message, the learner's line, and what to do or to look at;
- *wrong*: expected, got, where, and one likely cause;
- *correct*: and one sentence on what it shows.

A judge looks at behavior only, never at source text. A broken installation, in which the solution fails too,
is raised as it is and never reported as a wrong answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import html
import inspect
import linecache
import pathlib
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from course_utils.diagnosis import explain
from course_utils.errors import first_sentence

#: Files below these folders are not the learner's.
_OURS = str(pathlib.Path(__file__).parents[1])
_LIBRARIES = (
    "site-packages",
    "dist-packages",
    sysconfig.get_path("stdlib"),
    "<frozen",
    "__autograph_generated",
)
#: What to look at where no line of the learner's raised, by words of the error.
_LOOK_AT = {
    "NoneType": "Something is None: is a `return` missing? Under @tf.custom_gradient it gives y and grad.",
    "values to unpack": "Count what your functions return: under @tf.custom_gradient two things, y and grad.",
    "get_config": "Look at what get_config returns: is its `return` missing?",
}
_LOOK_ANYWHERE = (
    "No line of yours is named: look at what your functions return, and which arguments they take."
)
_MARKS = {"not attempted": "○", "error": "!", "wrong": "✗", "correct": "✓"}
_NOTHING = object()


class WrongAnswer(Exception):  # noqa: N818 - it is a verdict, not an error of the program
    """What a judge raises: the answer ran and did the wrong thing.

    Args:
        where: What was looked at, such as `"the gradient for x = [-2, 3]"`.
        expected: What a right answer gives there.
        got: What this answer gives there.
        cause: One likely cause, a sentence that helps without giving the solution away.

    Example:
        >>> WrongAnswer("the gradient for x = 3", expected=6.0, got=3.0, cause="a factor is missing").got
        3.0
    """

    def __init__(self, where: str, expected, got, cause: str = "") -> None:
        super().__init__(where)
        self.where, self.expected, self.got, self.cause = where, expected, got, cause


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a check found; it prints itself and is true when the answer is correct.

    Example:
        >>> print(Outcome("wrong", ("expected 2, got 1",)))
        ✗ wrong
          expected 2, got 1
    """

    kind: str
    lines: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.kind == "correct"

    def __str__(self) -> str:
        return "\n  ".join([f"{_MARKS[self.kind]} {self.kind}", *self.lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        color = {"correct": "#009E73", "not attempted": "#555555"}.get(self.kind, "#B34700")
        lines = "".join(f"<br>{html.escape(line)}" for line in self.lines)
        title = f"<strong>{_MARKS[self.kind]} {self.kind}</strong>"
        style = f"border-left: 4px solid {color}; padding: 0.3em 0.8em"
        return f'<div role="status" style="{style}">{title}{lines}</div>'


class Text(str):
    """A hint or a solution: text that a notebook shows as it is, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class Exercise:
    """One exercise of a notebook.

    Args:
        title: What it is called, a few words.
        judge: Takes the answer; returns one sentence on what a correct answer shows, or raises `WrongAnswer`.
        hints: From a nudge to nearly everything, at least two.
        solution: A function whose body is the solution and whose last line returns the answer.
        minutes: How long it takes.
        difficulty: From 1 (apply what was shown) to 3 (find it out).

    Example:
        >>> def judge(answer):
        ...     if answer(1) != 2:
        ...         raise WrongAnswer("f(1)", 2, answer(1), "did you forget to add?")
        ...     return "Adding one moves every number by one."
        >>> def solution():
        ...     def add_one(x):
        ...         return x + 1
        ...     return add_one
        >>> hints = ("Use +.", "Return x + 1.")
        >>> add_one = Exercise("add one", judge, hints, solution, minutes=1, difficulty=1)
        >>> add_one.check(...)
        ○ not attempted
          Replace the stub in the cell above, run it, then run this cell again.
        >>> add_one.check(lambda x: x + 1)
        ✓ correct
          Adding one moves every number by one.
    """

    def __init__(
        self,
        title: str,
        judge: Callable[..., str],
        hints: tuple[str, ...],
        solution: Callable,
        *,
        minutes: int,
        difficulty: int,
    ) -> None:
        self.title, self.judge, self.hints, self._solution = title, judge, hints, solution
        self.minutes, self.difficulty, self._told = minutes, difficulty, 0

    def check(self, answer=_NOTHING) -> Outcome:
        """Judge an answer: the op, layer or value that the exercise asks for.

        Args:
            answer: What the stub defines.

        Returns:
            One of the four outcomes. It never raises for anything that the learner's code does.

        Raises:
            SystemExit: It comes from the check and not from the answer: the solution raises it too. So does
                any other error here: a broken installation is no wrong answer.
        """
        if answer is _NOTHING or answer is None or answer is Ellipsis:
            return _not_attempted()
        try:
            return Outcome("correct", (self.judge(answer),))
        except WrongAnswer as wrong:
            cause = (f"Likely cause: {wrong.cause}",) if wrong.cause else ()
            seen = (f"Looked at: {wrong.where}", f"Expected: {wrong.expected}", f"Got: {wrong.got}")
            return Outcome("wrong", seen + cause)
        except (Exception, SystemExit) as error:
            if _is_stub(error):
                return _not_attempted()
            line = _learners_line(error)
            if line is None and not self._accepts_its_solution():
                raise
            return Outcome("error", tuple(filter(None, (first_sentence(error), line, _advice(error, line)))))

    def _accepts_its_solution(self) -> bool:
        """Whether this installation works, so that an error is due to the answer."""
        try:
            with registry_put_back():  # the solution's layer may have the registered name of the learner's
                self.judge(self.solve())
        except (Exception, SystemExit):
            return False
        return True

    def hint(self) -> Text:
        """Tell one more hint with each call; after the last one start again."""
        number = self._told % len(self.hints)
        self._told += 1
        return Text(f"Hint {number + 1} of {len(self.hints)}: {self.hints[number]}")

    def solution(self) -> Text:
        """Show the code of a solution; others may be as good."""
        return Text(self.solution_source())

    def solution_source(self) -> str:
        """Give the solution as code that can replace the stub's cell."""
        lines = textwrap.dedent(inspect.getsource(self._solution)).splitlines()
        body = textwrap.dedent("\n".join(lines[1:])).strip().splitlines()
        return "\n".join(body[:-1]).strip()

    def solve(self) -> Any:
        """Give the answer that the solution defines."""
        return self._solution()


@contextlib.contextmanager
def registry_put_back() -> Iterator[None]:
    """Put the objects that are registered with Keras back afterwards, as they were.

    Example:
        >>> import keras
        >>> with registry_put_back():
        ...     keras.saving.get_custom_objects()["mine>thing"] = object
        >>> "mine>thing" in keras.saving.get_custom_objects()
        False
    """
    import keras  # slow, and an exercise need not have to do with it

    registered = keras.saving.get_custom_objects()
    before = dict(registered)
    try:
        yield
    finally:
        registered.clear()
        registered.update(before)


def _not_attempted() -> Outcome:
    return Outcome(
        "not attempted", ("Replace the stub in the cell above, run it, then run this cell again.",)
    )


def _is_stub(error: BaseException | None) -> bool:
    """Whether `NotImplementedError` is at the bottom; Keras and AutoGraph wrap what a layer raises.

    TensorFlow raises one of its own where NumPy gets a tensor of a graph: that is a mistake, not a stub.
    """
    while error is not None:
        if isinstance(error, NotImplementedError) and "a symbolic" not in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _learners_line(error: BaseException) -> str | None:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        theirs = not frame.filename.startswith(_OURS) and not any(
            part in frame.filename for part in _LIBRARIES
        )
        if theirs and frame.lineno:
            code = linecache.getline(frame.filename, frame.lineno).strip() or frame.line
            return f"In {frame.name}, line {frame.lineno}: {code}"
    return None


def _advice(error: BaseException, line: str | None) -> str | None:
    """Say what to do about an error of the answer, or None where its `line` has to be enough."""
    looks = (advice for words, advice in _LOOK_AT.items() if words in str(error))
    look = None if line else next(looks, None)
    _, cure = explain(error)
    return look or (f"What to do: {cure}" if cure else None if line else _LOOK_ANYWHERE)
