"""Ops whose gradient is a derivative in a better form, or clipped to a bound."""

from __future__ import annotations

import tensorflow as tf

from course_utils.ops._arguments import floating, scalar


def square_with_clipped_grad(x, bound=1.0) -> tf.Tensor:
    """Square `x`; the pseudo-gradient clips the local derivative `2x` to `[-bound, bound]`.

    Forward: `y = x²`. Backward: `dx = dy · clip(2x, -bound, bound)`, which equals the derivative where
    `|2x| <= bound` and keeps its sign elsewhere. It is linear in the upstream gradient `dy`, so a loss
    scale or another batch size does not change what it clips. This is the definition of the op, which is made
    for teaching.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        bound: Largest absolute local derivative, a positive number or a scalar tensor. A number is fixed
            when a graph is traced; a tensor can change from step to step.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `bound` is a number that is not positive, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant([0.25, 3.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = square_with_clipped_grad(x, bound=1.0)
        >>> y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()
        ([0.0625, 9.0], [0.5, 1.0])
    """
    x = floating(x, "x")
    limit = scalar(bound, "bound", x.dtype, positive=True)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return dy * tf.clip_by_value(2 * x, -limit, limit)

        return tf.square(x), grad

    return op(x)


def safe_norm(x, axis=-1, keepdims=False) -> tf.Tensor:
    """Give the Euclidean norm of `x` along `axis`, with the gradient 0 where all elements are 0.

    Forward: `y = |x| = m · √Σ(x/m)²` with `m = max |x|`, so that no square overflows or underflows (Blue, "A
    portable Fortran program to find the Euclidean norm of a vector", 1978). Backward: `dx = dy · x/|x|`, the
    derivative. At `x = 0`, where there is none, it is 0, a subgradient of the norm (Rockafellar, "Convex
    analysis", 1970, section 23); `tf.norm` gives NaN there.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        axis: The axis or axes of the vectors, an integer or a tuple of integers; None for all axes.
        keepdims: Whether the result keeps those axes with length 1.

    Returns:
        Tensor of the dtype of `x`, without the axes of the vectors unless `keepdims` is true.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `x` has no such axis.

    Example:
        >>> x = tf.constant([[3.0, 4.0], [0.0, 0.0]])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = safe_norm(x)
        >>> y.numpy().tolist(), tape.gradient(y, x).numpy().round(3).tolist()
        ([5.0, 0.0], [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]])
    """
    x = floating(x, "x")
    rank = x.shape.rank
    if rank is not None and any(not -rank <= a < rank for a in tf.nest.flatten([] if axis is None else axis)):
        raise ValueError(
            f"axis is {axis}, and x has {rank} axes: give one from {-rank} to {rank - 1}, or None"
        )

    @tf.custom_gradient
    def op(x):
        # An empty vector has the largest element -inf; its norm is 0.
        largest = tf.maximum(tf.reduce_max(tf.abs(x), axis, keepdims=True), 0)
        scaled = tf.math.divide_no_nan(x, largest)
        y = largest * tf.sqrt(tf.reduce_sum(tf.square(scaled), axis, keepdims=True))

        def grad(dy):
            # The op itself, not y: so that its own derivative is taken by this rule, not by that of the root.
            # A copy, since with a tape around a tf.function the backward pass is a graph of its own.
            return dy * tf.math.divide_no_nan(x, op(tf.identity(x)))

        return y, grad

    y = op(x)
    return y if keepdims else tf.squeeze(y, axis)
