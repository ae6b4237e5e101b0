"""Command line: `python -m course_utils.collect FOLDER -o outcomes.csv`."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import csv
import os
import pathlib
import sys
from collections.abc import Iterable

from course_utils.collect import __doc__ as purpose
from course_utils.collect.limits import Limits, Result, run_submission
from course_utils.collect.submissions import Submission, course_notebooks, find_submissions, tasks

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    made = argparse.ArgumentParser(
        prog="python -m course_utils.collect",
        description=purpose,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("folder", type=pathlib.Path, help="holds person/NN_title.ipynb or person_NN.ipynb")
    made.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("outcomes.csv"))
    made.add_argument("-j", "--jobs", type=int, default=1, help="notebooks that run at a time (default 1)")
    made.add_argument("--timeout", type=float, default=600, help="seconds for a notebook (default 600)")
    made.add_argument("--cell-timeout", type=float, default=120, help="seconds for a cell (default 120)")
    made.add_argument("--memory", type=float, default=2.0, help="gigabytes for a notebook (default 2)")
    made.add_argument("--notebooks", type=pathlib.Path, default=NOTEBOOKS, help="as they were handed out")
    made.add_argument("--exercises", default="course_utils.exercises", help="package with the modules nbNN")
    return made


def collect(
    found: Iterable[Submission], course: dict[str, pathlib.Path], package: str, limits: Limits, jobs: int
) -> list[Result]:
    """Run all submissions, `jobs` at a time, and print a line for each to standard error."""

    def one(submission: Submission) -> Result:
        if submission.problem:
            result = Result(submission, problems=[submission.problem])
        elif submission.number not in course:
            result = Result(submission, problems=[f"the course has no notebook {submission.number}"])
        else:
            result = run_submission(submission, course[submission.number], package, limits)
        counted = collections.Counter(result.outcomes.values())
        said = ", ".join(f"{n} {outcome}" for outcome, n in counted.items())
        print(f"{submission.person} {submission.path.name}: {said or result.problems[0]}", file=sys.stderr)
        return result

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, found))


def table(results: list[Result], course: dict[str, pathlib.Path]) -> tuple[list[str], list[dict[str, str]]]:
    """Give columns and rows of the table: a row for each file, a column for each exercise."""
    numbers = sorted({r.submission.number for r in results} & set(course))
    exercises = {number: [task.exercise for task in tasks(course[number])] for number in numbers}
    columns = [f"{number}.{name}" for number, names in exercises.items() for name in names]
    rows = []
    for result in results:
        number = result.submission.number
        names = exercises.get(number, [])
        # What no judge saw, because the notebook ended before, is none of the four outcomes.
        outcomes = {f"{number}.{name}": result.outcomes.get(name, "not judged") for name in names}
        rows.append(
            {
                "person": plain(result.submission.person),
                "notebook": number,
                "correct": str(sum(outcome == "correct" for outcome in outcomes.values())),
                "of": str(len(names)),
                **outcomes,
                "problem": plain(shorten(result.problems)),
                "file": plain(result.submission.path.name),
            }
        )
    return ["person", "notebook", "correct", "of", *columns, "problem", "file"], rows


def shorten(problems: list[str], most: int = 4) -> str:
    """Join problems into one text; of many only the first ones, for the first is the cause most often."""
    more = [f"and {len(problems) - most} more"] if len(problems) > most else []
    return "; ".join([*problems[:most], *more])


def plain(text: str) -> str:
    """Give text that no spreadsheet takes for a formula: whoever names a file must not run one here."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def main(arguments: list[str]) -> int:
    """Carry out the command line and give the exit status: 2 when there is nothing to run, else 0."""
    options = parser().parse_args(arguments)
    if options.jobs < 1 or min(options.timeout, options.cell_timeout, options.memory) <= 0:
        parser().error("--jobs, --timeout, --cell-timeout and --memory must be positive")
    if not options.folder.is_dir():
        parser().error(f"{options.folder} is no folder: give the one that holds the submissions")
    course = course_notebooks(options.notebooks)
    if not course:
        parser().error(f"{options.notebooks} holds no notebook of the course: give its folder by --notebooks")
    found = find_submissions(options.folder)
    if not found:
        parser().error(f"{options.folder} is empty")
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    limits = Limits(options.timeout, options.cell_timeout, options.memory * 1e9, threads)
    columns, rows = table(collect(found, course, options.exercises, limits, options.jobs), course)
    # Excel looks for the mark that utf-8-sig writes.
    with options.output.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows in {options.output}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
