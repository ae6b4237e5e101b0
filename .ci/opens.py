"""Start the README's first line, wait until JupyterLab serves the first notebook, and stop it."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).parents[1]
TOKEN = "ci"
SECONDS = 120


def main() -> int:
    """Give 0 when JupyterLab answered in time with the notebook, else 1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
    ]
    command = [sys.executable, "course.py", "lab", *options, f"--IdentityProvider.token={TOKEN}"]
    # The server is a child of course.py: a session of its own lets both be stopped together.
    server = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    notebook = "notebooks/00_start_here.ipynb"
    try:
        for page in ("api/status", f"lab/tree/{notebook}", f"api/contents/{notebook}"):
            answer = wait_for(f"http://127.0.0.1:{port}/{page}?token={TOKEN}", server)
            print(f"JupyterLab answers {page}: {answer}", flush=True)
            if answer != 200:
                return 1
        return 0
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(timeout=30)


def wait_for(url: str, server: subprocess.Popen) -> int | str:
    """Ask until there is an answer; give its HTTP status, or what went wrong."""
    problem = "no answer"
    for _ in range(SECONDS):
        if server.poll() is not None:
            return f"the server stopped with status {server.returncode}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError as error:
            problem = str(error)
        time.sleep(1)
    return problem


if __name__ == "__main__":
    sys.exit(main())
