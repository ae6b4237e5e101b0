"""Ops that change nothing and watch the gradient that passes: check it, or record its size."""

from __future__ import annotations

import tensorflow as tf

from course_utils.ops._arguments import floating


def check_upstream(x, message="upstream gradient") -> tf.Tensor:
    """Pass `x` on; on the way back pass `dy` on, and raise an error where it holds inf or NaN.

    By definition forward `y = x`, backward `dx = dy`, with `tf.debugging.check_numerics` between the two.
    The check is part of the data that flows back, so it also runs with a tape around a `tf.function`, where
    prints and assertions of a backward pass are dropped. XLA drops the check, and keeps the gradient.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        message: What the error begins with, such as the name of the place in the model.

    Returns:
        Tensor of the shape, dtype and values of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        tf.errors.InvalidArgumentError: On the way back, when `dy` holds inf or NaN.

    Example:
        >>> x = tf.constant([0.0, 3.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = tf.sqrt(check_upstream(x, "before the square root"))
        >>> try:
        ...     tape.gradient(y, x)
        ... except tf.errors.InvalidArgumentError as error:
        ...     print("before the square root : Tensor had Inf" in str(error))
        True
    """
    x = floating(x, "x")

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return tf.debugging.check_numerics(dy, message)

        return tf.identity(x), grad

    return op(x)


def record_upstream(x, record, measure="norm") -> tf.Tensor:
    """Pass `x` and `dy` on, and write the size of `dy` into a variable, in every mode.

    By definition forward `y = x`, backward `dx = dy`, after `record` was set to `√(Σ dy²)` or to `max |dy|`,
    in float32. The gradient waits for the assignment, so it also runs with a tape around a `tf.function`.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        record: Scalar `tf.Variable` of dtype float32, made with `trainable=False`. It holds what the last
            backward pass saw.
        measure: `"norm"` or `"max"`.

    Returns:
        Tensor of the shape, dtype and values of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `measure` is neither of the two, or `record` is trainable.

    Example:
        >>> x, size = tf.constant([1.0, 2.0]), tf.Variable(0.0, trainable=False)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = record_upstream(x, size) * [3.0, 4.0]
        >>> tape.gradient(y, x).numpy().tolist(), float(size)
        ([3.0, 4.0], 5.0)
    """
    x = floating(x, "x")
    if measure not in ("norm", "max"):
        raise ValueError(f"measure is {measure!r}: give 'norm' or 'max'")
    if record.trainable:  # the decorator would then ask for its gradient
        raise ValueError("record is trainable: make it with trainable=False")

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            dy = tf.convert_to_tensor(dy)  # a gather hands back IndexedSlices
            size = tf.abs(tf.cast(dy, tf.float32))  # half precision would overflow in the squares
            # The maximum of no elements at all is -inf.
            size = tf.norm(size) if measure == "norm" else tf.maximum(tf.reduce_max(size), 0.0)
            with tf.control_dependencies([record.assign(size)]):
                return tf.identity(dy)

        return tf.identity(x), grad

    return op(x)
