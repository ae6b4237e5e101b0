"""Check the backward pass of an op: vector-Jacobian products, numerical derivatives, and `check_gradient`.

A backward pass takes the *upstream gradient* `dy`, which has the shape of the op's output, and returns the
vector-Jacobian product `dyᵀ J`, which has the shape of the input. Three truths can be held against it: the
numerical derivative of the forward pass, the gradient of a declared *surrogate*, or a declared backward pass.
"""

from __future__ import annotations

import inspect
import numbers

import keras
import numpy as np
import tensorflow as tf

from course_utils.examination import RTOL, Examination
from course_utils.numerical import FlatOp, differentiable, slope, tf_variable, vjp
from course_utils.report import Report

__all__ = ["EDGE_POINTS", "RTOL", "check_gradient", "slope", "vjp"]

#: Inputs where elementwise ops break: both signs, zero, both sides of it, tails, overflow. Dtype float32.
EDGE_POINTS = np.array([-100, -10, -3, -1, -0.1, -1e-3, 0, 1e-3, 0.1, 1, 3, 10, 100], "float32")


def check_gradient(
    op, *inputs, surrogate=None, backward=None, variables=(), order=1, rtol=None, seed=0
) -> Report:
    """Compare the gradients of `op` at `inputs` with the truth, for a random upstream gradient.

    The truth is the numerical derivative of `op`: along random directions, in float64, with an error bar;
    the dtype of the inputs is then held to float64. Where the gradient differs on purpose, declare the
    intent: `surrogate=f` (the backward pass of `op` is that of `f`), or `backward=g` (it is `g(dy, *inputs)`,
    for backward passes that are not linear in `dy`, such as clipping).

    The check sees the inputs that it is given: `EDGE_POINTS` holds those where elementwise ops tend to break.
    Where the op is NaN or infinite nothing is checked, and a note says so. Give an op that sorts or takes a
    median no ties: at one, any order is right, and the numerical derivative knows one.
    It takes some ten evaluations of the op an argument, and more only to locate a fault. Variables are put
    back as they were; the random state of TensorFlow, NumPy and Python is not used.

    Args:
        op: Callable that takes `*inputs` and returns a tensor or a nested structure of tensors.
        *inputs: Tensors, arrays, numbers, or nested lists and dicts of them, of any shape and dtype. Integers
            get no gradient. float16, bfloat16 and float32 are computed in float64 too where the op can.
        surrogate: Callable of `*inputs` with outputs of the op's shapes, whose autodiff is the intended
            gradient.
        backward: Callable of `(dy, *inputs)` that returns the intended gradient of each input, and of each
            variable if it has any; None for no gradient.
        variables: `tf.Variable` or `keras.Variable` objects that the op reads, checked like inputs.
        order: 2 checks the gradient's gradient as well, and so on.
        rtol: Largest relative error against the truth; default `RTOL` of the dtype of the computation.
        seed: Non-negative integer that selects the random upstream gradient and directions.

    Returns:
        Report, true when nothing failed. A failure names the argument, the index, both values and, where it
        can be told, the cause. An op that raises fails its check.

    Raises:
        TypeError: When an argument has the wrong type or dtype; the message names it.
        ValueError: When an argument of this function can't be used; the message names it.

    Example:
        >>> print(check_gradient(tf.square, EDGE_POINTS))
        gradient of square: all 4 checks passed
          ✓ shapes, dtypes, same result twice
          ✓ linear in the upstream gradient
          ✓ x in float32: equals float64
          ✓ x: equals the numerical derivative
        >>> check_gradient(tf.sign, EDGE_POINTS, surrogate=tf.identity).ok  # no straight-through estimator
        False
    """
    check_options(op, surrogate, backward, order, rtol, seed)
    inputs, leaves = _tensors(op, inputs)
    weights = named_variables(variables)
    if not any(map(differentiable, [*leaves.values(), *weights.values()])):
        raise ValueError(
            "inputs: only integers or nothing, which get no gradient: give floats, such as 2.0 for 2"
        )
    report = Report(f"gradient of {getattr(op, '__name__', None) or getattr(op, 'name', type(op).__name__)}")
    pack = lambda leaves: keras.tree.pack_sequence_as(inputs, list(leaves))  # noqa: E731
    call = FlatOp(lambda *leaves: op(*pack(leaves)), list(leaves.values()), list(weights.values()))
    examination = Examination(
        report=report,
        surrogate=surrogate and (lambda *leaves: surrogate(*pack(leaves))),
        backward=backward and (lambda dy, *leaves: backward(dy, *pack(leaves))),
        names=[*leaves, *weights],
        rtol=rtol,
        # Not default_rng(seed): inputs may come from that, and dy = x makes a transposed gradient look right.
        rng=np.random.default_rng([2024, seed]),
    )
    examination.run(call, order)
    return report


def check_options(op, surrogate=None, backward=None, order=1, rtol=None, seed=0) -> None:
    """Raise where the options of `check_gradient` can't be used."""
    for name, value in {"op": op, "surrogate": surrogate, "backward": backward}.items():
        if not callable(value) and (name == "op" or value is not None):
            raise TypeError(f"{name} must be callable, got {value!r}")
    if surrogate and backward:
        raise ValueError("give surrogate or backward, not both: each states the whole intended gradient")
    for name, value, least in (("order", order, 1), ("seed", seed, 0)):
        if not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if rtol is not None and not (isinstance(rtol, numbers.Real) and 0 < float(rtol) < 1):
        raise ValueError(f"rtol must be a number between 0 and 1, or None, got {rtol!r}")
    if not tf.executing_eagerly():
        raise ValueError("a check needs values: call it outside of tf.function")


def _tensors(op, inputs):
    """Return the inputs and their leaves by name; a list of numbers is one leaf."""
    if not inputs:
        raise ValueError("inputs: give at least one input after op, such as check_gradient(op, x)")
    try:
        signature = inspect.signature(op)
    except (TypeError, ValueError):  # some built-in functions have none
        signature = inspect.signature(lambda *inputs: None)
    try:
        signature.bind(*inputs)
    except TypeError as error:
        raise TypeError(f"op can't take {len(inputs)} inputs: {error}") from None
    parameters = list(signature.parameters.values())
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names += [f"input {i}" for i in range(len(names), len(inputs))]
    numeric = lambda value: all(isinstance(leaf, numbers.Number) for leaf in keras.tree.flatten(value))  # noqa: E731
    inputs, leaves = list(inputs), {}
    for i, value in enumerate(inputs):
        if isinstance(value, list | tuple) and numeric(value):
            inputs[i] = _array(names[i], value)
    for (i, *keys), value in keras.tree.flatten_with_path(inputs):
        name = names[i] + "".join(f"[{key!r}]" for key in keys)
        leaves[name] = _tensor(name, value)
    return inputs, leaves


def _array(name, value):
    try:
        return np.asarray(value)
    except ValueError:
        raise TypeError(f"{name} must be a tensor, an array or a number, got {value!r}") from None


def _tensor(name, value):
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices):
        raise TypeError(
            f"{name} is a {type(value).__name__}: give a dense tensor "
            "(to_tensor(), tf.sparse.to_dense, tf.convert_to_tensor)"
        )
    if np.ma.isMaskedArray(value):
        raise TypeError(f"{name} is a masked array, and TensorFlow drops its mask: give value.filled(...)")
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a tensor, an array or a number, got {value!r}") from error
    if not (differentiable(tensor) or tensor.dtype.is_integer or tensor.dtype.is_bool):
        raise TypeError(f"{name} has dtype {tensor.dtype.name}: give numbers, and pass options by a lambda")
    values = np.asarray(tensor)
    if not values.size:
        raise ValueError(f"{name} is empty, shape {values.shape}: give at least one element")
    for index in np.argwhere(~np.isfinite(values)):
        raise ValueError(f"{name} is {values[tuple(index)]} at {index.tolist()}: give finite inputs")
    return tensor


def named_variables(variables) -> dict:
    """Return the TensorFlow variables by name; a number tells those of one name apart."""
    if isinstance(variables, str | tf.Variable) or not np.iterable(variables):
        raise TypeError(f"variables must be a list of tf.Variable or keras.Variable, got {variables!r}")
    named: dict = {}
    for variable in variables:
        if not isinstance(variable, tf.Variable | keras.Variable):
            raise TypeError(f"variables must hold tf.Variable or keras.Variable objects, got {variable!r}")
        first = name = getattr(variable, "path", variable.name).removesuffix(":0")
        while name in named:
            name = f"{first} {len(named)}"
        if not any(tf_variable(variable) is known for known in named.values()):
            named[name] = tf_variable(variable)
            _tensor(name, named[name])
    return named
