"""Run notebooks in place, each in a fresh kernel, and store outputs that are the same on every run.

    python -m tests.refresh                      # all notebooks
    python -m tests.refresh notebooks/01_layer_and_op.ipynb

nbclient runs the cells. What it stores besides the outputs differs from run to run, so it is dropped: times,
widget state and widget views (the picture beside a view stays, for readers without a kernel). A notebook that
did not change is not written. The exit status is 1 when a cell raises, and nothing is written then.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOKS = pathlib.Path(__file__).parents[1] / "notebooks"
VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def execute(notebook: nbformat.NotebookNode, folder: pathlib.Path = NOTEBOOKS) -> nbformat.NotebookNode:
    """Run all cells of a notebook in a kernel that starts in `folder`, without any settings of this user.

    Raises:
        CellExecutionError: A cell raised, and it has no tag `raises-exception`.
    """
    with tempfile.TemporaryDirectory() as settings:
        environment = {**os.environ, "IPYTHONDIR": settings}
        where = {"metadata": {"path": str(folder)}}
        # How a stream is cut into pieces is a matter of timing, so the pieces are joined.
        client = NotebookClient(notebook, timeout=300, resources=where, coalesce_streams=True)
        return client.execute(env=environment)


def clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Drop what differs from run to run and what a reader without a kernel cannot show."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    count = 0
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        if cell.source.strip():
            count += 1
            cell.execution_count = count
        for output in cell.outputs:
            output.get("data", {}).pop(VIEW, None)
            if output.output_type == "execute_result":
                output.execution_count = count
    return notebook


def refresh(path: pathlib.Path) -> bool:
    """Run the notebook at `path` and store it; tell whether the file changed."""
    before = path.read_text(encoding="utf-8")
    notebook = clean(execute(nbformat.reads(before, as_version=4)))
    after = nbformat.writes(notebook) + "\n"
    if after != before:
        path.write_text(after, encoding="utf-8")
    return after != before


def main(arguments: list[str]) -> int:
    """Refresh the notebooks named, or all; print a line for each."""
    failed = False
    for path in [pathlib.Path(a) for a in arguments] or sorted(NOTEBOOKS.glob("*.ipynb")):
        try:
            print(f"{path.name}: {'changed' if refresh(path) else 'unchanged'}", flush=True)
        except CellExecutionError as error:
            failed = True
            print(f"{path.name}: not written, a cell raised\n{error}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
