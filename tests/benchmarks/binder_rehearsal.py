"""Carry out Binder's build steps in a clean environment, and run notebooks in a session of 2 GB.

    python tests/benchmarks/binder_rehearsal.py [notebooks that are opened together]

What Binder does with Docker happens here with a virtual environment: a Python with pip (as in
binder/environment.yml), then binder/postBuild in a copy of the repository, then JupyterLab through
binder/start with Binder's limits. Two notebooks run at the same time in two kernels; a watcher ends the
session when it holds more than 2 GB. Then each notebook runs alone. The exit status is 1 when the session was
ended or a kernel held more than 1 GB. It downloads about 1 GB, takes a quarter of an hour, and needs Linux.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import psutil
from remote_kernel import NOTEBOOKS, RemoteKernel, free_port, memory, stop, wait_until_it_answers

ROOT = NOTEBOOKS.parent
SESSION, KERNEL = 2e9, 1e9  # bytes
LIMITS = {"CPU_LIMIT": "1", "MEM_LIMIT": str(int(SESSION))}
TOGETHER = ("04", "08")


def build(folder: pathlib.Path) -> tuple[pathlib.Path, dict[str, str]]:
    """Copy the repository, make an environment, run postBuild; give the copy and the session's variables."""
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in files.splitlines():
        target = folder / "repository" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    keep = {
        k: v for k, v in os.environ.items() if k in ("HOME", "LANG", "SSL_CERT_FILE") or k.startswith("PIP_")
    }
    variables = {**keep, **LIMITS, "PATH": f"{folder / 'env' / 'bin'}:/usr/local/bin:/usr/bin:/bin"}
    begin = time.perf_counter()
    subprocess.run(
        ["./binder/postBuild"], cwd=folder / "repository", env=variables, check=True, stdout=sys.stderr
    )
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink())
    print(f"postBuild took {time.perf_counter() - begin:.0f} s; it all is {size / 1e9:.1f} GB")
    return folder / "repository", variables


class Session:
    """JupyterLab, started by binder/start, and a watcher that ends it beyond the limit."""

    def __init__(self, repository: pathlib.Path, variables: dict[str, str]):
        self.token, port, log = "rehearsal", free_port(), repository.parent / "lab.log"
        self.url, self.most, self.ended = f"http://127.0.0.1:{port}", 0, False
        options = ["--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0"]
        command = ["binder/start", "jupyter", "lab", *options, f"--IdentityProvider.token={self.token}"]
        with log.open("w", encoding="utf-8") as file:
            self.process = subprocess.Popen(command, cwd=repository, env=variables, stdout=file, stderr=file)
        wait_until_it_answers(f"{self.url}/api", self.process, log)
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self) -> None:
        """Note the most memory that all processes of the session held together; end them beyond the limit."""
        while self.process.poll() is None:
            try:
                self.most = max(self.most, memory(psutil.Process(self.process.pid)))
            except psutil.NoSuchProcess:
                return
            if self.most > SESSION:
                self.ended = True
                stop(self.process)
            time.sleep(0.5)

    def kernel(self) -> RemoteKernel:
        """Start a kernel."""
        return RemoteKernel(self.url, self.token)


def run_together(session: Session, paths: list[pathlib.Path]) -> bool:
    """Run notebooks at the same time, each in its kernel; tell whether all kernels live at the end."""
    with concurrent.futures.ThreadPoolExecutor(len(paths)) as pool:
        kernels = [session.kernel() for _ in paths]
        seconds = list(pool.map(RemoteKernel.run, kernels, paths))
    alive = all(kernel.alive() for kernel in kernels)
    names = " and ".join(f"{path.name[:2]} ({t:.0f} s)" for path, t in zip(paths, seconds, strict=True))
    print(
        f"{names} together: all alive: {alive}; the session held {session.most / 1e6:.0f} MB, limit 2000 MB"
    )
    for kernel in kernels:
        kernel.shut_down()
    return alive


def threads_of(kernel: RemoteKernel) -> str:
    """Say how many threads TensorFlow's ops and NumPy may use in a kernel."""
    kernel.execute("import os")
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    return kernel.execute(f"print(*(f'{{n}}={{os.environ.get(n)}}' for n in {names}))").strip()


def main(numbers: list[str]) -> int:
    """Build, run, report; give the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        repository, variables = build(pathlib.Path(folder).resolve())
        notebooks = sorted((repository / "notebooks").glob("[0-9]*.ipynb"))
        session, worst = Session(repository, variables), 0
        try:
            alive = run_together(session, [path for path in notebooks if path.name[:2] in numbers])
            for i, path in enumerate(notebooks):
                kernel = session.kernel()
                if i == 0:
                    print("threads:", threads_of(kernel))
                seconds, peak = kernel.run(path), kernel.peak()
                kernel.shut_down()
                worst = max(worst, peak)
                print(
                    f"{path.stem:<34} {seconds:5.0f} s, peak of the kernel {peak / 1e6:5.0f} MB", flush=True
                )
            print(f"most of all: {worst / 1e6:.0f} MB, bar {KERNEL / 1e6:.0f} MB")
        finally:
            ended = session.ended
            stop(session.process)
    return int(ended or not alive or worst > KERNEL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(TOGETHER)))
