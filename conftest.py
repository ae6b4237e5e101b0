"""What a test run says about the notebooks at its end."""

import collections


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
