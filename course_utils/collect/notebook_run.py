"""Run one submitted notebook and report, line by line, what the judges say; a process of its own does this.

Each line of the report is a JSON object: `{"cell": 3}` before a cell, `{"exercise": ..., "outcome": ...}`
after a verdict, `{"problem": ...}`. Whoever started the process has all lines, however it ended.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import re
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from course_utils.collect import submissions
from course_utils.collect.verdict import MIME

#: The index under which the judge's cells run, which are no part of the notebook.
OURS = -1
ASK = "__import__('course_utils.collect.verdict', fromlist=['judge']).judge(*{!r}, globals())"


class Quiet(NotebookClient):
    """A client that keeps the results of our own cells only: an endless print must not fill this process."""

    def process_message(self, msg, cell, cell_index) -> Any:
        """Let pass what says how a cell goes on; of the outputs, verdicts."""
        ours = cell_index == OURS and msg["msg_type"] == "execute_result"
        if ours or msg["msg_type"] in ("status", "execute_input", "execute_reply"):
            return super().process_message(msg, cell, cell_index)
        return None


class Run:
    """One run of one notebook.

    Args:
        settings: `notebook`, `reference` (the notebook as it was handed out), `number`, `package` (of the
            exercises), `cell_timeout` in seconds.
        report: Called with a dict for each line of the report.
    """

    def __init__(self, settings: dict, report) -> None:
        self.settings, self.report = settings, report
        self.tasks = submissions.tasks(pathlib.Path(settings["reference"]))
        self.replies: dict[int, dict] = {}

    def go(self) -> None:
        """Run the notebook to its end, or to the end of its kernel."""
        notebook = read(pathlib.Path(self.settings["notebook"]))
        asyncio.run(self.execute(notebook))

    async def execute(self, notebook) -> None:
        """Run all cells in order, whatever they raise, and judge each exercise at its place."""
        cells = submissions.code_cells(notebook)
        client = Quiet(
            notebook,
            kernel_name="python3",
            timeout=self.settings["cell_timeout"],
            startup_timeout=120,
            interrupt_on_timeout=True,
            allow_errors=True,
            record_timing=False,
            store_widget_state=False,
            on_cell_executed=self.note_reply,
        )
        due = self.plan(cells)
        async with client.async_setup_kernel():
            for i, cell in enumerate(cells):
                self.report({"cell": i + 1})
                await self.run_cell(client, cell, i)
                for task, answer in due.get(i, []):
                    await self.judge(client, cells, task, answer)
        self.report({"end": True})

    def plan(self, cells) -> dict[int, list]:
        """Say which exercises are judged after which cell; report those that are missing."""
        due: dict[int, list] = {}
        own = submissions.checks(cells)
        for task in self.tasks:
            answer = own.get(task.exercise, task.answer)
            at = submissions.place(cells, task, answer)
            if at is None:
                self.verdict(task, "not attempted", f"{task.exercise}: its cells were deleted")
            else:
                due.setdefault(at, []).append((task, answer))
        return due

    async def run_cell(self, client, cell, index: int) -> None:
        """Run one cell of the learner; report an error that it was not meant to raise."""
        await client.async_execute_cell(cell, index)
        reply = self.replies.pop(index, {})
        if reply.get("status") != "error" or "raises-exception" in cell.metadata.get("tags", []):
            return
        if reply["ename"] == "KeyboardInterrupt":
            limit = self.settings["cell_timeout"]
            self.report({"problem": f"cell {index + 1} took longer than {limit:g} s and was interrupted"})
        else:
            # Python 3.13 has a private class for some; the file is one that IPython makes up for a cell.
            kind = reply["ename"].replace("_IncompleteInputError", "SyntaxError")
            message = re.sub(r"\(\d+\.py, line", "(line", " ".join(str(reply["evalue"]).split()))[:120]
            self.report({"problem": f"cell {index + 1}: {kind}: {message}"})

    async def judge(self, client, cells, task, answer: str) -> None:
        """Ask the judge inside of the kernel, and report its verdict."""
        arguments = (self.settings["package"], self.settings["number"], task.exercise, answer)
        cell = nbformat.v4.new_code_cell(ASK.format(arguments))
        await client.async_execute_cell(cell, OURS)
        bundles = [output["data"][MIME] for output in cell.outputs if MIME in output.get("data", {})]
        if not bundles:
            reply = self.replies.get(OURS, {})
            said = f"{reply.get('ename', 'no reply')}: {reply.get('evalue', '')}"[:160]
            self.verdict(task, "not judged", f"{task.exercise}: the judge could not run: {said}")
            return
        outcome = bundles[-1]["outcome"]
        if outcome in ("wrong", "error") and submissions.untouched(cells, task, answer):
            outcome = "not attempted"  # a fault to mend, as it was handed out
        self.verdict(task, outcome, bundles[-1]["problem"])

    def verdict(self, task, outcome: str, problem: str = "") -> None:
        """Report the outcome of one exercise."""
        self.report({"exercise": task.exercise, "outcome": outcome, "problem": problem})

    def note_reply(self, cell, cell_index, execute_reply) -> None:  # noqa: ARG002 - nbclient gives it
        """Keep what the kernel says about a cell: nbclient hands it to this hook only."""
        self.replies[cell_index] = execute_reply["content"] if execute_reply else {}


def read(path: pathlib.Path) -> Any:
    """Read a notebook, or raise `ValueError` with a sentence that says what it is instead."""
    try:
        notebook = nbformat.read(path, as_version=4)
        languages = {
            notebook.metadata.get("kernelspec", {}).get("language", "python"),
            notebook.metadata.get("language_info", {}).get("name", "python"),
        }
        cells = submissions.code_cells(notebook)
    except Exception as error:  # nbformat raises errors of many kinds for what is no notebook
        said = " ".join(str(error).split())[:120]
        raise ValueError(f"not a notebook: {type(error).__name__}: {said}") from None
    foreign = sorted({str(name).lower() for name in languages} - {"python", "ipython"})
    if foreign:
        raise ValueError(f"written for a kernel of {', '.join(foreign)}, not of Python")
    if not cells:
        raise ValueError("it has no code cell")
    return notebook


def main(settings_file: str, report_file: str) -> None:
    """Run the notebook that the settings name and write the report."""
    settings = json.loads(pathlib.Path(settings_file).read_text(encoding="utf-8"))
    with pathlib.Path(report_file).open("a", encoding="utf-8") as file:

        def report(line: dict) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        try:
            Run(settings, report).go()
        except DeadKernelError:
            report({"problem": "the kernel died", "died": True})
        except Exception as error:
            report({"problem": str(error) or type(error).__name__, "died": True})
