"""A kernel behind a Jupyter server, reached the way a browser does: REST to start it, a WebSocket to talk."""

from __future__ import annotations

import dataclasses
import datetime
import json
import pathlib
import socket
import subprocess
import time
import uuid

import nbformat
import psutil
import requests
import websocket

NOTEBOOKS = pathlib.Path(__file__).parents[2] / "notebooks"
PEAK = "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"


@dataclasses.dataclass
class Slider:
    """A slider that a notebook made: the id of its model, its name, and the values it may take."""

    model: str
    name: str
    low: float
    high: float
    step: float
    value: float


class RemoteKernel:
    """A kernel of the server at `url`; `token` opens it.

    Attributes:
        sliders: Every slider that was made in it, in the order in which they were.
    """

    def __init__(self, url: str, token: str):
        self.url, self.headers = url, {"Authorization": f"token {token}"}
        answer = requests.post(
            f"{url}/api/kernels", json={"name": "python3"}, headers=self.headers, timeout=120
        )
        answer.raise_for_status()
        self.id, self.session, self.sliders = answer.json()["id"], uuid.uuid4().hex, []
        address = f"ws{url.removeprefix('http')}/api/kernels/{self.id}/channels"
        self.socket = websocket.create_connection(address, header=self.headers, timeout=1800)

    def ask(self, kind: str, content: dict) -> list[dict]:
        """Send a message on the shell channel and give all that it causes, until the kernel is idle."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "username": "",
            "session": self.session,
            "version": "5.3",
            "date": datetime.datetime.now(datetime.UTC).isoformat(),
        }
        message = {
            "header": header,
            "parent_header": {},
            "metadata": {},
            "content": content,
            "channel": "shell",
        }
        self.socket.send(json.dumps(message))
        caused = []
        while True:
            got = json.loads(self.socket.recv())
            if got["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            caused.append(got)
            if got["header"]["msg_type"] == "status" and got["content"]["execution_state"] == "idle":
                return caused

    def execute(self, code: str) -> str:
        """Run code; note the sliders that it makes; give what it prints, or raise what it raised."""
        asked = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        printed = ""
        for message in self.ask("execute_request", asked):
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "error":
                raise RuntimeError(f"{content['ename']}: {content['evalue']}")
            if kind == "stream":
                printed += content["text"]
            state = content["data"].get("state", {}) if kind == "comm_open" else {}
            if state.get("_model_name", "").endswith("SliderModel"):
                bounds = (state[key] for key in ("min", "max", "step", "value"))
                self.sliders.append(Slider(content["comm_id"], state["description"], *bounds))
        return printed

    def run(self, notebook: pathlib.Path) -> float:
        """Run all cells of a notebook and give the seconds that this took."""
        begin = time.perf_counter()
        for cell in nbformat.read(notebook, as_version=4).cells:
            if cell.cell_type == "code":
                self.execute(cell.source)
        return time.perf_counter() - begin

    def move(self, slider: Slider, value: float) -> float:
        """Move a slider as a browser does, and give the seconds until its new picture is here."""
        begin = time.perf_counter()
        data = {"method": "update", "state": {"value": value}, "buffer_paths": []}
        caused = self.ask("comm_msg", {"comm_id": slider.model, "data": data})
        states = [
            m["content"]["data"].get("state", {}) for m in caused if m["header"]["msg_type"] == "comm_msg"
        ]
        if not any("<svg" in str(state.get("value", "")) for state in states):
            raise RuntimeError(f"{slider.name} moved to {value}, and no new picture came")
        return time.perf_counter() - begin

    def peak(self) -> int:
        """Give the most memory that the kernel's process ever held, in bytes (Linux)."""
        return int(self.execute(PEAK)) * 1024

    def alive(self) -> bool:
        """Tell whether the kernel answers and knows what the notebook imported: it was not started anew."""
        return self.execute("import sys; print('course_utils.quiet' in sys.modules)").strip() == "True"

    def shut_down(self) -> None:
        """End the kernel."""
        self.socket.close()
        requests.delete(f"{self.url}/api/kernels/{self.id}", headers=self.headers, timeout=60)


def free_port() -> int:
    """Give a port of this machine that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_it_answers(
    url: str, process: subprocess.Popen, log: pathlib.Path, seconds: float = 300
) -> None:
    """Wait for a server; fail with its log when it ends or does not answer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if requests.get(url, timeout=10).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.5)
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no answer from {url}:\n{log.read_text(encoding='utf-8')[-3000:]}")


def memory(process: psutil.Process) -> int:
    """Give what a process and its children hold together, in bytes: shared pages count once (Linux: PSS)."""
    total = 0
    for member in [process, *process.children(recursive=True)]:
        try:
            total += member.memory_full_info().pss
        except psutil.Error:  # it ended between the two looks
            continue
    return total


def stop(process: subprocess.Popen) -> None:
    """End a process that we started, with all its children: ask first, then insist."""
    try:
        ours = psutil.Process(process.pid)
        members = [*ours.children(recursive=True), ours]
    except psutil.NoSuchProcess:
        return
    process.terminate()
    _, left = psutil.wait_procs(members, timeout=20)
    for member in left:
        member.kill()
    process.wait()
