"""Run a submission in a process of its own, and end it with all its children when it passes a limit."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import psutil

from course_utils.collect.submissions import Submission

#: How often the limits are looked at, in seconds. What a notebook allocates in between goes beyond its limit.
LOOK = 0.2

#: jsonschema, which nbformat loads, would take three seconds each time to build a grammar of international
#: addresses if it found this package. No notebook needs it, and jsonschema does without.
START = (
    "import sys; sys.modules['rfc3987_syntax'] = None; "
    "from course_utils.collect import notebook_run; notebook_run.main(*sys.argv[1:])"
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one notebook may use: seconds for all of it, seconds for one cell, bytes of memory, threads."""

    seconds: float = 600.0
    cell_seconds: float = 120.0
    memory: float = 2e9
    threads: int = 1


@dataclasses.dataclass
class Result:
    """What came of a submission: the outcome of each exercise that was judged, and what went wrong."""

    submission: Submission
    outcomes: dict[str, str] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)


def run_submission(submission: Submission, reference: pathlib.Path, package: str, limits: Limits) -> Result:
    """Run one submitted notebook and give what its judges said until it ended or was ended.

    Args:
        submission: What was handed in; its `problem` is empty.
        reference: The notebook as it was handed out.
        package: The package with the exercises.
        limits: What the run may use.

    Returns:
        The result; it never raises for anything that the notebook does.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        work, report = pathlib.Path(folder, "work"), pathlib.Path(folder, "report.jsonl")
        work.mkdir()
        report.touch()
        settings = {
            "notebook": str(submission.path.resolve()),
            "reference": str(reference.resolve()),
            "number": submission.number,
            "package": package,
            "cell_timeout": limits.cell_seconds,
        }
        pathlib.Path(folder, "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        files = [str(pathlib.Path(folder, "settings.json")), str(report)]
        process = subprocess.Popen(
            [sys.executable, "-c", START, *files],
            cwd=work,
            env=environment(folder, limits.threads),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        ended = watch(process, limits)
        return read_report(submission, report, ended)


def environment(folder: str, threads: int) -> dict[str, str]:
    """Give the settings of a run: none of this user's, few threads, no window, no notices of TensorFlow."""
    own = {"IPYTHONDIR": folder, "JUPYTER_CONFIG_DIR": folder, "MPLBACKEND": "agg"}
    few = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), str(threads))
    return {**os.environ, **own, **few, "TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0"}


def watch(process: subprocess.Popen, limits: Limits) -> str:
    """Wait for a process; end it and its children when it passes a limit, and say which one."""
    deadline, family, reason = time.monotonic() + limits.seconds, {}, ""
    while process.poll() is None and not reason:
        time.sleep(LOOK)
        used = 0
        for member in relatives(process.pid):
            family[member.pid] = member
            used += memory_of(member)
        if used > limits.memory:
            reason = f"used more than {limits.memory / 1e9:g} GB of memory and was stopped"
        elif time.monotonic() > deadline:
            reason = f"took longer than {limits.seconds:g} s and was stopped"
    end([*family.values()])
    process.wait()
    return reason


def relatives(pid: int) -> list[psutil.Process]:
    """List a process and everything that it started, as far as it still runs."""
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def memory_of(process: psutil.Process) -> int:
    """Give the resident memory of a process in bytes, 0 when it has ended."""
    try:
        return process.memory_info().rss
    except psutil.Error:
        return 0


def end(processes: list[psutil.Process]) -> None:
    """Kill processes that still run, and wait for their end. psutil knows a reused number from its owner."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=10)


def read_report(submission: Submission, path: pathlib.Path, ended: str) -> Result:
    """Put together what a run reported until its end; `ended` is why it was stopped, or `""`."""
    result, cell, complete = Result(submission), 0, False
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue  # the last line of a run that was killed while it wrote
        cell, complete = line.get("cell", cell), complete or "end" in line or "died" in line
        if "exercise" in line:
            result.outcomes[line["exercise"]] = line["outcome"]
        if line.get("problem"):
            where = f", in cell {cell}" if "died" in line and cell else ""
            result.problems.append(line["problem"] + where)
    if ended:
        result.problems.append(ended + (f", in cell {cell}" if cell else ""))
    elif not complete:
        result.problems.append(f"the process that ran it ended early, in cell {cell}")
    return result
