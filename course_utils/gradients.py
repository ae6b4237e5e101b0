"""Check the backward pass of an op: vector-Jacobian products, numerical derivatives, and `check_gradient`.

A backward pass takes the *upstream gradient* `dy`, which has the shape of the op's output, and returns the
vector-Jacobian product `dyᵀ J`, which has the shape of the input. Three truths can be held against it: the
numerical derivative of the forward pass, the gradient of a declared *surrogate*, or a declared backward pass.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from course_utils import diagnosis
from course_utils.examination import RTOL, Examination, OpError
from course_utils.numerical import slope, tf_variable, vjp
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
    diagnosis.check_options(op, surrogate, backward, order, rtol, seed)
    structure, names = diagnosis.check_inputs(op, inputs, variables)
    report = Report(f"gradient of {getattr(op, '__name__', None) or getattr(op, 'name', type(op).__name__)}")
    # The functions that the rest works with take the leaves of the inputs.
    nested = any(map(tf.nest.is_nested, structure))
    pack = lambda leaves: tf.nest.pack_sequence_as(structure, leaves) if nested else leaves  # noqa: E731
    case = Examination(
        report=report,
        op=lambda *leaves: op(*pack(leaves)),
        surrogate=surrogate and (lambda *leaves: surrogate(*pack(leaves))),
        backward=backward and (lambda dy, *leaves: backward(dy, *pack(leaves))),
        variables=[tf_variable(variable) for variable in variables],
        names=names,
        rtol=rtol,
        # Not default_rng(seed): inputs may come from that, and dy = x makes a transposed gradient look right.
        rng=np.random.default_rng([2024, seed]),
    )
    before = [tf.identity(variable) for variable in case.variables]
    try:
        point = case.run(tf.nest.flatten(structure))
        if point and order > 1 and report:
            _next_order(case, point, order, seed)
    except OpError as error:
        report.add(
            False,
            str(error),
            f"raises {diagnosis.sentence(error.__cause__)}",
            cure=diagnosis.cure_for(error.__cause__),
        )
    finally:
        for variable, value in zip(case.variables, before, strict=True):
            variable.assign(value)
    return report


def _next_order(case, point, order, seed) -> None:
    """Check the gradient of the gradient, which is an op of the inputs and dy."""
    n, outputs = len(point.xs), tf.nest.flatten(point.dy)

    def gradient_of(f):
        def gradient(*leaves):
            dy = tf.nest.pack_sequence_as(point.dy, leaves[n:])
            gradients = f(dy, *leaves[:n])
            return [tf.zeros_like(x) if g is None else g for x, g in zip(leaves[:n], gradients, strict=False)]

        return gradient

    intended = case.backward and (lambda dy, *xs: tf.nest.flatten(case.backward(dy, *xs)))
    if case.surrogate:
        intended = lambda dy, *xs: vjp(case.surrogate, xs, dy)  # noqa: E731
    report = check_gradient(
        gradient_of(lambda dy, *xs: vjp(case.op, xs, dy)),
        *point.xs,
        *outputs,
        surrogate=intended and gradient_of(intended),
        variables=case.variables,
        order=order - 1,
        rtol=case.rtol,
        seed=seed,
    )
    names = [*case.names[:n], *(f"dy[{j}]" if outputs[1:] else "dy" for j in range(len(outputs)))]
    for check in report.checks:
        name = check.name
        for j, argument in enumerate(names):
            name = name.replace(f"input {j}", argument)
        case.report.add(
            check.ok,
            f"order 2, {name}",
            check.detail,
            cure=check.cure,
            error=check.error,
            index=check.index,
        )
