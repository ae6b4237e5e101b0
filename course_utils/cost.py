"""What a gradient costs: the bytes that wait for the backward pass, and time as a ratio with its spread."""

from __future__ import annotations

import gc
import timeit
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

#: Ops whose output is their input, in the same memory.
_ALIASES = ("Identity", "IdentityN", "StopGradient")
#: Unsigned integers by size in bytes: a view of what has no NumPy dtype, such as bfloat16.
_BITS = {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64}


def saved_bytes(f: Callable, *inputs, graph: bool = False) -> int:
    """Count the bytes of all tensors that are kept for the backward pass of `f`, the inputs included.

    Each piece of memory counts once, however many tensors show it. Weights do not count: they are there
    without a gradient too. In eager mode it counts the tensors that are still alive after the forward pass
    because a tape holds them. In a graph it counts the tensors that lead from the forward ops to the backward
    ops; what the optimizer of the graph or XLA changes afterwards is not seen.

    Args:
        f: Function of tensors that returns one tensor. A Keras layer must have been built.
        *inputs: Tensors or arrays with a floating-point dtype; for a graph only shape and dtype matter.
        graph: Count in the graph of a `tf.function` instead of eager mode.

    Returns:
        The number of bytes.

    Raises:
        TypeError: `f` is not callable, or an input has no floating-point dtype.
        ValueError: In a graph a tensor has a shape that is known at run time only.

    Example:
        >>> x = tf.ones((10, 10))
        >>> saved_bytes(tf.exp, x), saved_bytes(lambda x: x * tf.sigmoid(x), x)
        (400, 800)
    """
    if not callable(f):
        raise TypeError(f"f is {f!r:.60}: give a function of tensors")
    inputs = tuple(tf.convert_to_tensor(x) for x in inputs)
    for i, x in enumerate(inputs):
        if not x.dtype.is_floating:
            raise TypeError(f"input {i} has dtype {x.dtype.name}: give one that has a gradient")
    return _saved_in_graph(f, inputs) if graph else _saved_eagerly(f, inputs)


def time_ratio(
    f: Callable, baseline: Callable, *args, calls: int = 10, rounds: int = 15
) -> tuple[float, float, float]:
    """Time a function against another, in turns, so that a change of the machine's load hits both.

    Each is called once before, which traces and compiles a `tf.function`. A single time means little on a
    machine that does other things too; of the ratios of all rounds the quartiles tell how much they spread.

    Args:
        f: The function to be judged.
        baseline: What it is compared with.
        *args: The arguments of both.
        calls: How often each is called in a round, 1 or more.
        rounds: How many ratios are taken, 1 or more.

    Returns:
        Lower quartile, median and upper quartile of the time of `f` divided by that of `baseline`.

    Raises:
        ValueError: `calls` or `rounds` is below 1.

    Example:
        >>> low, median, high = time_ratio(sum, len, range(10_000))
        >>> 1 < low <= median <= high
        True
    """
    for name, number in (("calls", calls), ("rounds", rounds)):
        if number < 1:
            raise ValueError(f"{name} is {number}: give 1 or more")
    f(*args)
    baseline(*args)
    ratios = []
    for _ in range(rounds):
        of_baseline = timeit.timeit(lambda: baseline(*args), number=calls)
        ratios.append(timeit.timeit(lambda: f(*args), number=calls) / of_baseline)
    low, median, high = np.percentile(ratios, [25, 50, 75])
    return float(low), float(median), float(high)


def _saved_eagerly(f, inputs) -> int:
    eager_tensor = type(tf.constant(0.0))
    enabled = gc.isenabled()
    gc.collect(1)  # what is older moves to the last generation, so the next one holds new objects only
    gc.disable()
    try:
        with tf.GradientTape() as tape:
            # New tensors over the memory of the inputs: they live on only where the tape needs them.
            copies = [tf.identity(x) for x in inputs]
            tape.watch(copies)
            result = tf.identity(f(*copies))
        del copies
        gc.collect(0)
        new = [t for t in gc.get_objects(generation=1) if isinstance(t, eager_tensor) and t is not result]
    finally:
        if enabled:
            gc.enable()
    weights = {_address(v.value()) for v in tape.watched_variables()}
    kept = {_address(t): t.shape.num_elements() * t.dtype.size for t in new if _has_numbers(t)}
    return sum(size for address, size in kept.items() if address not in weights)


def _saved_in_graph(f, inputs) -> int:
    kept = {}

    @tf.function(autograph=False, input_signature=[tf.TensorSpec(x.shape, x.dtype) for x in inputs])
    def forward_and_backward(*xs):
        graph = xs[0].graph
        with tf.GradientTape() as tape:
            tape.watch(xs)
            y = f(*xs)
        forward = graph.get_operations()
        gradients = tape.gradient(y, xs)
        backward = graph.get_operations()[len(forward) :]
        kept.update(_crossing(set(forward), backward, {x.op for x in xs}))
        return gradients

    forward_and_backward.get_concrete_function()
    return sum(_size(t) for t in kept.values())


def _crossing(forward: set, backward: Iterable, inputs: set) -> dict:
    """Give the tensors that backward ops read from forward ops, by name; no weights and no constants."""
    found = {}
    for t in (t for op in backward for t in op.inputs if t.op in forward):
        while t.op.type in _ALIASES:
            t = t.op.inputs[t.value_index]
        captured = t.op.type == "Placeholder" and t.op not in inputs
        if t.op.type not in ("Const", "ReadVariableOp") and not captured:
            found[t.name] = t
    return found


def _size(tensor) -> int:
    if not tensor.shape.is_fully_defined():
        raise ValueError(f"{tensor.name} has the shape {tensor.shape}, known at run time only: count eagerly")
    return tensor.shape.num_elements() * tensor.dtype.size


def _has_numbers(tensor) -> bool:
    return tensor.dtype not in (tf.resource, tf.variant, tf.string)


def _address(tensor) -> int:
    """Give the address of a tensor's memory."""
    try:
        view = memoryview(tensor)
    except ValueError:
        view = memoryview(tf.bitcast(tensor, _BITS[tensor.dtype.size]))
    return np.asarray(view).ctypes.data
