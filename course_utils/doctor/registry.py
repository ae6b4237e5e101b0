"""The list of checks: what a check is, and the decorator that adds one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from course_utils.doctor.subject import Subject

#: The checks by name, and those that are made only on request.
CHECKS: dict[str, Check] = {}
ALSO: dict[str, Check] = {}


@dataclasses.dataclass(frozen=True)
class Check:
    """A check; `needs` names those whose failure it would repeat; `fixed` ones leave out random layers."""

    run: Callable[[Subject], str | None]
    cure: str
    needs: tuple[str, ...]
    fixed: bool

    @property
    def title(self) -> str:
        """Its line in the report."""
        return (self.run.__doc__ or self.run.__name__).rstrip(".")  # `python -OO` drops docstrings

    def reason_to_leave_out(self, subject: Subject) -> str:
        """Say why the check would tell nothing new; "" when it may."""
        for name in (*self.needs, "runs", "deterministic"):
            if name in subject.failed:
                subject.failed[self.run.__name__] = subject.failed[name]
                return f"left out, it would repeat `{subject.failed[name]}`"
        return "left out, the layer draws random numbers" if self.fixed and subject.random else ""


def check(
    cure: str = "", needs: tuple[str, ...] = (), fixed: bool = False, registry: dict = CHECKS
) -> Callable[[Callable], Callable]:
    """Put a function into the list of checks."""

    def register(run):
        registry[run.__name__] = Check(run, cure, needs, fixed)
        return run

    return register
