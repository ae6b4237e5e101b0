"""One result for every check: named lines that print themselves in a terminal, a notebook or pytest."""

from __future__ import annotations

import dataclasses
import html

#: The sign of a check that passed, failed, or only notes something.
MARKS = {True: "✓", False: "✗", None: "–"}


@dataclasses.dataclass(frozen=True)
class Check:
    """One line of a report.

    Attributes:
        ok: True when it passed, False when it failed, None for a note or a check that was skipped.
        name: What was checked, a few words.
        detail: What was found: both values when two were compared.
        cure: What to do about it, one sentence; empty when there is nothing to do.
        error: The largest absolute error of a comparison, in the units of what was compared.
        index: Where that error is, as an index into the array that was compared.

    Example:
        >>> print(Check(False, "input 0", "op gives 1, numerically 2", cure="factor 2 missing"))
        ✗ input 0: op gives 1, numerically 2 → factor 2 missing
    """

    ok: bool | None
    name: str
    detail: str = ""
    cure: str = ""
    error: float = 0.0
    index: tuple[int, ...] | None = None

    def __str__(self) -> str:
        text = f"{MARKS[self.ok]} {self.name}"
        text += f": {self.detail}" if self.detail else ""
        return text + (f" → {self.cure}" if self.cure else "")


class Report:
    """The checks of one op or layer, in the order in which they were made. True when none failed.

    `print(report)` gives a line for each check, a notebook shows a table, and
    `assert report` in pytest names the first failure.

    Args:
        title: What was checked, such as `"gradient of square"`.

    Example:
        >>> report = Report("gradient of half")
        >>> report.add(True, "shapes")
        >>> report.add(False, "input 0", "op gives 1, numerically 2", error=1.0, index=(3,))
        >>> print(report)
        gradient of half: 1 of 2 checks failed
          ✓ shapes
          ✗ input 0: op gives 1, numerically 2
        >>> report.ok, report.max_abs_error, [check.name for check in report.failures]
        (False, 1.0, ['input 0'])
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.checks: list[Check] = []

    def add(self, ok, name, detail="", *, cure="", error=0.0, index=None) -> None:
        """Append one `Check`.

        Args:
            ok: True for passed, False for failed, None for a note.
            name: What was checked.
            detail: What was found, numbers included.
            cure: What to do about it.
            error: Largest absolute error of the comparison.
            index: Where in the argument it is, one integer for each axis.
        """
        self.checks.append(Check(None if ok is None else bool(ok), name, detail, cure, float(error), index))

    @property
    def ok(self) -> bool:
        """Whether no check failed; notes do not count."""
        return not self.failures

    @property
    def failures(self) -> list[Check]:
        """The checks that failed, in order."""
        return [check for check in self.checks if check.ok is False]

    @property
    def notes(self) -> list[Check]:
        """The lines that are neither passed nor failed, in order."""
        return [check for check in self.checks if check.ok is None]

    @property
    def max_abs_error(self) -> float:
        """The largest absolute error of all comparisons; 0.0 when nothing was compared."""
        return max((check.error for check in self.checks), default=0.0)

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        judged = [check for check in self.checks if check.ok is not None]
        if self.failures:
            return f"{self.title}: {len(self.failures)} of {len(judged)} checks failed"
        return f"{self.title}: all {len(judged)} checks passed"

    def raise_if_failed(self) -> None:
        """Raise an error that holds the whole report when a check failed.

        Raises:
            AssertionError: A check failed.
        """
        if not self.ok:
            raise AssertionError(str(self))

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {check}" for check in self.checks)])

    def __repr__(self) -> str:
        # One line: pytest shows the repr of what it asserts, on one line and cut to 240 characters.
        return f"<{'; '.join([self.summary, *map(str, self.failures)])}>"

    def _repr_pretty_(self, printer, cycle) -> None:  # noqa: ARG002 - IPython gives it
        """Show the lines, not the one-line repr, as the plain text of a notebook or an IPython terminal."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """Show a table with one row a check; the details of a check fold away where they are long."""
        rows = "".join(_row(check) for check in self.checks)
        style = "white-space: nowrap; text-align: left"
        return f'<table><caption style="{style}">{html.escape(self.summary)}</caption>{rows}</table>'


def _row(check: Check) -> str:
    detail = html.escape(check.detail)
    if len(check.detail) > 60 and check.ok is not False:
        detail = f"<details><summary>details</summary>{detail}</details>"
    if check.cure:
        detail += f"<br><strong>{html.escape(check.cure)}</strong>"
    cells = (MARKS[check.ok], html.escape(check.name), detail)
    return "<tr>" + "".join(f'<td style="text-align: left">{cell}</td>' for cell in cells) + "</tr>"
