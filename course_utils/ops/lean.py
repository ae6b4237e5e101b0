"""Activations whose backward pass keeps one tensor: the input alone, or the output alone."""

from __future__ import annotations

import tensorflow as tf

from course_utils.ops._arguments import floating, scalar


def swish_from_input(x) -> tf.Tensor:
    """Give `x·σ(x)` with its derivative, and keep nothing but `x` for the backward pass.

    Forward: `y = x·σ(x)`, the swish of Ramachandran, Zoph and Le (2017, "Searching for Activation Functions",
    section 4), also called SiLU; σ is the sigmoid. Backward: `dx = dy · σ(x)·(1 + x·(1 - σ(x)))`, with σ
    computed again from `x`. The composed `x * tf.sigmoid(x)` keeps σ too. Eager mode saves as well as a
    graph. Under XLA the saving is lost: the compiler merges the two sigmoids and keeps the first.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.

    Example:
        >>> x = tf.constant([0.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = swish_from_input(x)
        >>> y.numpy().round(3).tolist(), tape.gradient(y, x).numpy().round(3).tolist()
        ([0.0, 1.7619999647140503], [0.5, 1.090999960899353])
    """
    return _swish(floating(x, "x"))


@tf.custom_gradient
def _swish(x):
    # A tape records the ops of this forward pass too, and keeps what they need. It does not follow a
    # stopped tensor. `grad` reads `x` itself, so that the second derivative is right.
    stopped = tf.stop_gradient(x)

    def grad(dy):
        s = tf.sigmoid(x)
        return dy * s * (1 + x * (1 - s))

    return stopped * tf.sigmoid(stopped), grad


def leaky_relu_from_output(x, slope=0.2) -> tf.Tensor:
    """Give `x` where it is positive and `slope·x` elsewhere, and keep nothing but the output.

    Forward: `y = x` for `x > 0`, else `slope·x`. Backward: `dx = dy` for `y > 0`, else `slope·dy`, the
    derivative: with a positive slope `y` has the sign of `x`. The layer after the activation keeps `y` in
    any case, so the activation costs no memory of its own; `tf.nn.leaky_relu` keeps `x` besides. It is the
    invertible activation of Rota Bulò, Porzi and Kontschieder (2018, "In-Place Activated BatchNorm for
    Memory-Optimized Training of DNNs", section 3).

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        slope: Slope for negative `x`, a positive number or a positive scalar tensor, which gets no gradient.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `slope` is a number that is not positive, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant([-4.0, 3.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = leaky_relu_from_output(x, slope=0.25)
        >>> y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()
        ([-1.0, 3.0], [0.25, 1.0])
    """
    x = floating(x, "x")
    slope = scalar(slope, "slope", x.dtype, positive=True)

    @tf.custom_gradient
    def op(x):
        stopped = tf.stop_gradient(x)  # as above: else the tape would keep x
        y = tf.where(stopped > 0, stopped, slope * stopped)

        def grad(dy):
            return tf.where(y > 0, dy, slope * dy)

        return y, grad

    return op(x)
