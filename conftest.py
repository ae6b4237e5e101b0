"""The option `--full`, and what a test run says about the notebooks at its end."""

import collections


def pytest_addoption(parser):
    """Add `--full`: the test line has fifteen minutes on two cores, and not all that is worth a test fits."""
    parser.addoption("--full", action="store_true", help="also run what is marked `full`: ten minutes more")


def pytest_collection_modifyitems(config, items):
    """Leave out what is marked `full`, unless it is asked for."""
    if config.getoption("--full"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_terminal_summary(terminalreporter):
    """Print how many notebooks ran and how many of their cells were compared with what is committed."""
    cells = collections.Counter(
        report.nodeid.split("::")[0]
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if ".ipynb::" in report.nodeid and report.when == "call"
    )
    if cells:
        line = f"{len(cells)} notebooks executed, {sum(cells.values())} code cells compared"
        terminalreporter.write_sep("-", line)
