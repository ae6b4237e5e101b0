"""A class on one machine: each student runs notebook 04 in a server of their own, then moves a slider.

    python tests/benchmarks/bench_classroom.py [--students 20]

With JupyterHub (`pip install jupyterhub`, `npm install -g configurable-http-proxy`) each student is a user of
a hub with a local spawner, and has a server and a kernel. Without it all share one Jupyter server.
First one student works alone, then all at the same time. Printed are: whether all finished and every kernel
still lives, what a student holds in memory (PSS: shared pages count once in all), and how much longer
everything takes than for one. It needs Linux.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import importlib.util
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import psutil
import requests
from remote_kernel import NOTEBOOKS, RemoteKernel, free_port, memory, stop, wait_until_it_answers

ROOT, TOKEN = NOTEBOOKS.parent, "a-class-on-one-machine"
NOTEBOOK = next(NOTEBOOKS.glob("04_*.ipynb"))
MOVES = 5  # slider moves of each student

HUB = f"""
c.JupyterHub.bind_url = "http://127.0.0.1:PROXY"
c.JupyterHub.hub_port = INNER
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:API"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = "{TOKEN}"
c.JupyterHub.spawner_class = "simple"
c.Spawner.environment = {{"PYTHONPATH": "{ROOT}"}}
c.Spawner.args = ["--allow-root"]
c.Spawner.start_timeout = c.Spawner.http_timeout = 600
c.JupyterHub.concurrent_spawn_limit = 0
c.JupyterHub.services = [{{"name": "teacher", "api_token": "{TOKEN}"}}]
c.JupyterHub.load_roles = [
    {{
        "name": "teacher",
        "services": ["teacher"],
        "scopes": ["admin:users", "admin:servers", "access:servers"],
    }}
]
"""


@dataclasses.dataclass
class Work:
    """What one student did: their kernel, the seconds for the notebook, the seconds of each slider move."""

    kernel: RemoteKernel
    notebook: float
    moves: list[float]


class Hub:
    """A JupyterHub on this machine, with a local spawner and a token that opens every server."""

    def __init__(self, folder: pathlib.Path):
        ports = [free_port() for _ in range(3)]
        config = HUB
        for name, port in zip(("PROXY", "INNER", "API"), ports, strict=True):
            config = config.replace(name, str(port))
        (folder / "config.py").write_text(config)
        self.url, self.headers = f"http://127.0.0.1:{ports[0]}", {"Authorization": f"token {TOKEN}"}
        command = [sys.executable, "-m", "jupyterhub", "-f", "config.py"]
        self.process = start(command, folder, f"{self.url}/hub/api", {"CONFIGPROXY_AUTH_TOKEN": TOKEN})

    def server(self, student: str) -> str:
        """Start a student's server and give its address."""
        for path in (f"/users/{student}", f"/users/{student}/server"):
            requests.post(f"{self.url}/hub/api{path}", headers=self.headers, timeout=600).raise_for_status()
        address, deadline = f"{self.url}/user/{student}", time.monotonic() + 600
        while not requests.get(f"{address}/api/status", headers=self.headers, timeout=60).ok:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the server of {student} did not start within 600 s")
            time.sleep(0.5)
        return address


class OneServer:
    """One Jupyter server for all, where there is no hub."""

    def __init__(self, folder: pathlib.Path):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        options = [
            f"--ServerApp.port={port}",
            f"--IdentityProvider.token={TOKEN}",
            "--ServerApp.open_browser=False",
        ]
        command = [sys.executable, "-m", "jupyter_server", "--allow-root", *options]
        self.process = start(command, folder, f"{self.url}/api", {"PYTHONPATH": str(ROOT)})

    def server(self, student: str) -> str:
        """Give the address of the server."""
        return self.url


def start(command: list[str], folder: pathlib.Path, url: str, variables: dict[str, str]) -> subprocess.Popen:
    """Start a server in a folder of its own and wait until it answers."""
    # One thread each, as a hub for a class would set it: 20 kernels of many threads wait for one another.
    few = dict.fromkeys(("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"), "1")
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, **few, **variables, "PATH": path}
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    wait_until_it_answers(url, process, folder / "log")
    return process


def work(hub: Hub | OneServer, student: str) -> Work:
    """Let one student open the notebook, run it, and move the first slider that moves at once."""
    kernel = RemoteKernel(hub.server(student), TOKEN)
    seconds = kernel.run(NOTEBOOK)
    slider = next(slider for slider in kernel.sliders if slider.name == "bits")
    values = [slider.low + i % (slider.high - slider.low + 1) for i in range(MOVES)]
    return Work(kernel, seconds, [kernel.move(slider, value) for value in values if value != slider.value])


def describe(works: list[Work], held: int, begin: float) -> tuple[float, float]:
    """Print what came of a class; give the medians of the notebook's and of a move's seconds."""
    notebook = statistics.median(work.notebook for work in works)
    moves = [seconds for work in works for seconds in work.moves]
    alive = sum(work.kernel.alive() for work in works)
    peaks = [work.kernel.peak() / 1e6 for work in works]
    print(f"{len(works)} students, {time.perf_counter() - begin:.0f} s in all: {alive} kernels alive")
    print(f"  memory: {held / len(works) / 1e6:.0f} MB a student, {held / 1e9:.1f} GB in all (PSS)", end="; ")
    print(f"largest peak of a kernel {max(peaks):.0f} MB (RSS)")
    print(f"  notebook 04: median {notebook:.0f} s, longest {max(work.notebook for work in works):.0f} s")
    print(
        f"  slider: median {statistics.median(moves) * 1e3:.0f} ms, longest {max(moves) * 1e3:.0f} ms",
        flush=True,
    )
    return notebook, statistics.median(moves)


def main(students: int) -> int:
    """Run one student, then the class, and compare; give the exit status."""
    with_hub = importlib.util.find_spec("jupyterhub") and shutil.which("configurable-http-proxy")
    kind = Hub if with_hub else OneServer
    free, cores = psutil.virtual_memory().available / 1e9, os.cpu_count()
    print(
        f"{kind.__name__}, {cores} cores, load {os.getloadavg()[0]:.1f}, {free:.1f} GB available", flush=True
    )
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        hub = kind(pathlib.Path(folder))
        ours = psutil.Process(hub.process.pid)
        idle = memory(ours)
        try:
            begin = time.perf_counter()
            one = [work(hub, "first")]
            alone = describe(one, memory(ours) - idle, begin)
            one[0].kernel.shut_down()
            before, begin = memory(ours), time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(students) as pool:
                works = list(pool.map(lambda i: work(hub, f"student{i}"), range(students)))
            together = describe(works, memory(ours) - before, begin)
        finally:
            stop(hub.process)
    print(f"slowdown: notebook ×{together[0] / alone[0]:.1f}, slider ×{together[1] / alone[1]:.1f}")
    return int(not all(len(work.moves) for work in works))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--students", type=int, default=20)
    sys.exit(main(parser.parse_args().students))
