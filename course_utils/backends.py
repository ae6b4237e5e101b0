"""Run one function on every backend of Keras that is installed: TensorFlow, JAX, PyTorch.

Keras reads the environment variable `KERAS_BACKEND` when it is imported, and keeps that backend until the
process ends. So every backend but the present one gets a Python process of its own: it starts when it is
first needed, answers one call after the other, and ends with the process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from course_utils.errors import first_sentence

#: The backends, in the order in which results are given.
BACKENDS = ("tensorflow", "jax", "torch")
#: What every function that is sent to a process finds there.
PREAMBLE = """
import numpy as np
import keras
from keras import ops
from course_utils.backends import output_and_gradients
"""


def installed() -> dict[str, str]:
    """Give the version of each backend that can be imported here, in the order of `BACKENDS`.

    Returns:
        The version, such as `"2.21.0"`, by the name of the backend.

    Example:
        >>> "tensorflow" in installed()
        True
    """
    distributions = importlib.metadata.packages_distributions()
    found = [name for name in BACKENDS if importlib.util.find_spec(name)]
    return {name: importlib.metadata.version(distributions[name][0]) for name in found}


def everywhere(
    function: Callable,
    *arguments,
    using: Sequence[Callable] = (),
    catch: bool = False,
    show: bool = True,
) -> dict[str, object]:
    """Call a function on each installed backend, and say what it gives there.

    On the present backend it is called as it is. To the other processes its source is sent, and it finds the
    names `np`, `keras`, `ops` (`keras.ops`) and `output_and_gradients` there; what else it needs it imports
    itself, or finds in `using`. TensorFlow cannot be imported in the process of another backend. It gives
    numbers, strings, tensors, or lists and dicts of them, and prints nothing.

    Args:
        function: A plain function, defined by a `def` in a notebook or a module.
        *arguments: What it is called with: numbers, strings, or lists and dicts of them.
        using: Functions and classes that it calls.
        catch: Whether an error is a result, as its type and first words, and is not raised.
        show: Whether to print a line for each backend, also for one that is not installed.

    Returns:
        What the function gives, by backend, with tensors as nested lists.

    Raises:
        RuntimeError: The function raised, and `catch` is off; the message names the backend and the error.
            Or the process of a backend ended.
        TypeError: It gives something that is none of the above.

    Example:
        >>> def largest(numbers):
        ...     return keras.ops.max(keras.ops.array(numbers))
        >>> everywhere(largest, [3.0, 5.0], show=False)["tensorflow"]
        5.0
    """
    here, there = keras.backend.backend(), installed()
    processes = {name: _process(name) for name in there if name != here}
    source = "\n".join(textwrap.dedent(inspect.getsource(part)) for part in (*using, function))
    request = json.dumps({"source": source, "name": function.__name__, "arguments": arguments})
    try:
        for process in processes.values():  # all start to compute before the first is waited for
            process.send(request)
        answers = {here: _answer(function, arguments)}
        answers |= {name: process.receive() for name, process in processes.items()}
    except BaseException:  # interrupted: a late answer must not be taken for the one to the next call
        _close_all()
        raise
    results = {name: _result(name, answers[name], catch) for name in there}
    if show:
        for name in BACKENDS:
            print(f"{name:>10}: {results.get(name, 'not installed, left out')}")
    return results


def _result(backend: str, answer: dict, catch: bool):
    if "value" in answer:
        return answer["value"]
    if catch:
        return answer["error"]
    raise RuntimeError(f"on {backend}: {answer['error']}")


def output_and_gradients(f: Callable, inputs: Sequence, dy) -> tuple[np.ndarray, list[np.ndarray | None]]:
    """Give the output of `f` and its gradients, by the means of the backend on which Keras runs.

    Args:
        f: A function of `len(inputs)` tensors that gives one.
        inputs: Arrays or numbers; they are passed as float32.
        dy: The upstream gradient, an array of the shape of the output.

    Returns:
        The output, and for each input its gradient, or None where there is none.

    Example:
        >>> y, (dx,) = output_and_gradients(lambda x: x * x, [[3.0, -1.0]], [1.0, 10.0])
        >>> dx.tolist()
        [6.0, -20.0]
    """
    inputs = [keras.ops.convert_to_tensor(np.asarray(x, "float32")) for x in inputs]
    dy = keras.ops.convert_to_tensor(np.asarray(dy, "float32"))
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        y, pull_back = jax.vjp(f, *inputs)
        gradients = pull_back(dy)
    elif backend == "torch":
        import torch

        inputs = [x.requires_grad_() for x in inputs]
        y = f(*inputs)
        gradients = torch.autograd.grad(y, inputs, dy, allow_unused=True)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(inputs)
            y = f(*inputs)
        gradients = tape.gradient(y, inputs, output_gradients=dy)
    arrays = [None if g is None else keras.ops.convert_to_numpy(g) for g in gradients]
    return keras.ops.convert_to_numpy(y), arrays


class _Process:
    """A Python process in which Keras runs on one backend; it answers one line of JSON by another."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - it lives as long as the process
        self.child = subprocess.Popen(
            [sys.executable, "-c", "from course_utils.backends import _serve; _serve()"],
            env={**os.environ, "KERAS_BACKEND": backend},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def send(self, request: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # then it has ended, and `receive` says why
            self.child.stdin.write(request + "\n")
            self.child.stdin.flush()

    def receive(self) -> dict:
        line = self.child.stdout.readline()
        if line:
            return json.loads(line)
        self.log.seek(0)
        last = self.log.read().strip().splitlines()[-1:] or ["it said nothing"]
        raise RuntimeError(f"the process of {self.backend} ended: {last[0]}")

    def close(self) -> None:
        _PROCESSES.pop(self.backend, None)
        self.child.kill()
        self.child.communicate()
        self.log.close()


_PROCESSES: dict[str, _Process] = {}


def _process(backend: str) -> _Process:
    if backend not in _PROCESSES:
        _PROCESSES[backend] = _Process(backend)
    return _PROCESSES[backend]


@atexit.register
def _close_all() -> None:
    for process in list(_PROCESSES.values()):
        process.close()


def _answer(function: Callable, arguments: Sequence) -> dict:
    try:
        value = json.loads(json.dumps(function(*arguments), default=_as_list))
    except Exception as error:
        return {"error": first_sentence(error, limit=130)}
    return {"value": value}


def _as_list(value):
    if isinstance(value, np.generic | np.ndarray) or keras.ops.is_tensor(value):
        return np.asarray(keras.ops.convert_to_numpy(value)).tolist()
    raise TypeError(f"{type(value).__name__} cannot be sent: give numbers, strings, tensors or lists of them")


def _serve() -> None:
    """Answer requests until standard input ends, as it does when the process that started this one ends."""
    if keras.backend.backend() != "tensorflow":
        # Keras loads TensorFlow for some of its work wherever it finds it, which takes seconds and 300 MB.
        sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]
    names: dict[str, Any] = {}
    exec(PREAMBLE, names)  # noqa: S102 - all code comes from the process that started this one
    for line in sys.stdin:
        request = json.loads(line)
        with contextlib.redirect_stdout(sys.stderr):  # what a function prints is no answer
            exec(request["source"], names)  # noqa: S102
            answer = _answer(names[request["name"]], request["arguments"])
        print(json.dumps(answer), flush=True)
