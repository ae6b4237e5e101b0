"""Ops with a backward pass of their own: pure functions of tensors, no Keras.

Every op has the same form. The public function takes the tensor and plain Python options; the decorated
inner function takes nothing but the tensors that get a gradient, because `tf.custom_gradient` turns every
positional argument into a tensor in a graph and refuses keyword arguments there.

Ops whose gradient differs from their derivative on purpose say so in their name or in the first line of
their docstring: such a *pseudo-gradient* is a design decision, not a mistake to be mended.
"""

from __future__ import annotations

import tensorflow as tf


def square_with_clipped_grad(x, bound=1.0):
    """Square `x`; the pseudo-gradient clips the local derivative `2x` to `[-bound, bound]`.

    Forward: `y = x²`. Backward: `dx = dy · clip(2x, -bound, bound)`, which equals the derivative where
    `|2x| <= bound` and keeps its sign elsewhere. It is linear in the upstream gradient `dy`, so a loss
    scale or another batch size does not change what it clips.

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
    x = _floating(x, "x")
    limit = tf.cast(_positive(bound, "bound"), x.dtype)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return dy * tf.clip_by_value(2 * x, -limit, limit)

        return tf.square(x), grad

    return op(x)


def round_with_identity_grad(x):
    """Round `x` to the nearest integer; the pseudo-gradient is the one of the identity.

    Forward: `y = round(x)`, halves to the even neighbor. Backward: `dx = dy`, the straight-through estimator
    of Bengio, Léonard and Courville (2013, "Estimating or Propagating Gradients Through Stochastic Neurons",
    section 4). The derivative is zero wherever there is one, and `tf.round` has no gradient at all.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.

    Example:
        >>> x = tf.constant([0.4, 2.6])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = round_with_identity_grad(x)
        >>> y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()
        ([0.0, 3.0], [1.0, 1.0])
    """

    @tf.custom_gradient
    def op(x):
        return tf.round(x), lambda dy: dy

    return op(_floating(x, "x"))


def sign_with_clipped_grad(x, bound=1.0):
    """Give the sign of `x`, 1 for 0; the pseudo-gradient is the upstream gradient where `|x| <= bound`.

    Forward: `y = 1` where `x >= 0`, else `-1`; NaN stays NaN. Backward: `dx = dy` where `|x| <= bound`, else
    0: the clipped straight-through estimator of Hubara et al. (2016, "Binarized Neural Networks",
    section 1.3, equation 4), there with bound 1. The derivative is zero wherever there is one.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        bound: Where the gradient stops, a positive number or a scalar tensor; `math.inf` lets it pass
            everywhere, which is the plain estimator.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `bound` is a number that is not positive, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant([-2.0, 0.0, 0.5])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = sign_with_clipped_grad(x)
        >>> y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()
        ([-1.0, 1.0, 1.0], [0.0, 1.0, 1.0])
    """
    x = _floating(x, "x")
    limit = _constant(bound, "bound", x.dtype)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return _pass_where(tf.abs(x) <= limit, dy)

        # tf.sign alone gives 0 for 0, a third value; a comparison alone would turn NaN into -1.
        return tf.sign(tf.sign(x) + 0.5), grad

    return op(x)


def quantize(x, bits=4, step=0.25, window=1.0):
    """Round `x` to one of `2**bits` levels; the pseudo-gradient is the upstream gradient inside a window.

    Forward: `y = step · round(clip(x / step, -n, n - 1))` with `n = 2**(bits - 1)`, the signed uniform
    quantizer of Esser et al. (2020, "Learned Step Size Quantization", section 2, equations 1 and 2).
    Backward: `dx = dy` where `-n · window <= x / step <= (n - 1) · window`, else 0, a straight-through
    estimator. The derivative is zero wherever there is one. No gradient reaches `step`.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64. It is computed in this dtype,
            so levels that the dtype cannot hold are rounded to it.
        bits: How many bits a level takes, an integer from 2 to 16.
        step: Distance of two levels, a positive number or a scalar tensor.
        window: Where the gradient passes, as a multiple of the range of the levels; a positive number or a
            scalar tensor. 1 stops it where the quantizer saturates, `math.inf` never.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `bits` is no integer from 2 to 16, or `step` or `window` is a number that is not
            positive, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant([-9.0, 0.3, 0.7, 9.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = quantize(x, bits=3, step=0.5)
        >>> y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()
        ([-2.0, 0.5, 0.5, 1.5], [0.0, 1.0, 1.0, 0.0])
    """
    x = _floating(x, "x")
    if not isinstance(bits, int) or not 2 <= bits <= 16:
        raise ValueError(f"bits is {bits!r}: give an integer from 2 to 16")
    step, window = _constant(step, "step", x.dtype), _constant(window, "window", x.dtype)
    low, high = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1

    @tf.custom_gradient
    def op(x):
        level = x / step

        def grad(dy):
            return _pass_where((level >= low * window) & (level <= high * window), dy)

        return step * tf.round(tf.clip_by_value(level, low, high)), grad

    return op(x)


def _constant(value, name: str, dtype) -> tf.Tensor:
    """Give a positive option as a tensor of `dtype` to which no gradient flows."""
    value = _positive(value, name)
    if isinstance(value, (int, float)):
        return tf.constant(value, dtype)  # tf.cast would round a number to float32 on its way to float64
    # A variable is read here: inside of the op `tf.custom_gradient` would ask for its gradient.
    return tf.stop_gradient(tf.cast(value, dtype))


def _pass_where(inside: tf.Tensor, dy) -> tf.Tensor:
    # tf.where and not a product: what is stopped is 0, even where dy is infinite.
    return tf.where(inside, dy, tf.zeros([], dy.dtype))


def _floating(x, name: str) -> tf.Tensor:
    x = tf.convert_to_tensor(x)
    if not x.dtype.is_floating:
        raise TypeError(
            f"{name} has dtype {x.dtype.name}, which has no gradient: cast it to a floating-point dtype"
        )
    return x


def _positive(value, name: str):
    """Check a number; of a tensor only the shape is known before a graph runs."""
    if tf.is_tensor(value) or isinstance(value, tf.Variable):
        if value.shape.rank not in (0, None):
            raise ValueError(f"{name} has shape {tuple(value.shape)}: give a scalar")
    elif not value > 0:
        raise ValueError(f"{name} is {value}: give a positive number")
    return value
