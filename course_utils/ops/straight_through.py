"""Ops that step: a pseudo-gradient stands in for a derivative that is 0 or missing."""

from __future__ import annotations

import tensorflow as tf

from course_utils.ops._arguments import floating, scalar


def round_with_identity_grad(x) -> tf.Tensor:
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

    return op(floating(x, "x"))


def sign_with_clipped_grad(x, bound=1.0) -> tf.Tensor:
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
    x = floating(x, "x")
    limit = scalar(bound, "bound", x.dtype, positive=True)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return _pass_where(tf.abs(x) <= limit, dy)

        # tf.sign alone gives 0 for 0, a third value; a comparison alone would turn NaN into -1.
        return tf.sign(tf.sign(x) + 0.5), grad

    return op(x)


def quantize(x, bits=4, step=0.25, window=1.0) -> tf.Tensor:
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
    x = floating(x, "x")
    if not isinstance(bits, int) or not 2 <= bits <= 16:
        raise ValueError(f"bits is {bits!r}: give an integer from 2 to 16")
    step, window = (
        scalar(step, "step", x.dtype, positive=True),
        scalar(window, "window", x.dtype, positive=True),
    )
    low, high = -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1

    @tf.custom_gradient
    def op(x):
        level = x / step

        def grad(dy):
            return _pass_where((level >= low * window) & (level <= high * window), dy)

        return step * tf.round(tf.clip_by_value(level, low, high)), grad

    return op(x)


def lsq_quantize(x, step, bits=4, *, signed=True, grad_scale=1.0) -> tf.Tensor:
    """Quantize `x` to multiples of a learned `step`; both backward passes are pseudo-gradients (LSQ).

    Forward: `y = step · round(clip(x / step, -low, high))`, where `low = 2^(bits-1)` and
    `high = 2^(bits-1) - 1`; unsigned, `low = 0` and `high = 2^bits - 1`. Backward, element by element:

    - `dx = dy` where `-low < x / step < high`, and 0 elsewhere;
    - `dstep = grad_scale · dy · local`, where `local` is `round(x / step) - x / step` inside, `-low` below
      and `high` above. It is summed over the elements that share a step, in the dtype of `step`.

    Source: Esser et al., "Learned Step Size Quantization", ICLR 2020, section 2.1 (equations 1 to 3 and 5);
    `grad_scale` is section 2.2, which takes `1 / sqrt(n · high)` for `n` weights that share a step.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        step: Width of a level, positive: a number, a tensor or a variable whose shape broadcasts to that of
            `x`, such as a scalar or one step for each column. A step that training moves to 0 or below gives
            NaN or nonsense: constrain it. Keep it in float32 where `x` is shorter.
        bits: How many bits a level has, an integer: 2 or more, or 1 or more unsigned.
        signed: Whether there are levels below 0.
        grad_scale: Factor on the gradient of `step`, a positive number.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` or `step` has no floating-point dtype.
        ValueError: `bits` is no integer or too small, `step` is a number that is not positive or has a shape
            that does not broadcast to that of `x`, or `grad_scale` is not positive.

    Example:
        >>> x, step = tf.constant([0.3, 0.9, 8.0]), tf.constant(0.5)
        >>> with tf.GradientTape(persistent=True) as tape:
        ...     tape.watch([x, step])
        ...     y = lsq_quantize(x, step, bits=3)
        >>> y.numpy().tolist(), tape.gradient(y, x).numpy().tolist()
        ([0.5, 1.0, 1.5], [1.0, 1.0, 0.0])
        >>> print(f"{tape.gradient(y, step):.1f}")  # 0.4 + 0.2 + 3
        3.6
    """
    low, high = _levels(bits, signed)
    x = floating(x, "x")
    grad_scale = scalar(grad_scale, "grad_scale", x.dtype, positive=True)
    # A variable becomes a tensor here, outside the op, and so gets its gradient as an argument of the op.
    step = floating(step if _is_array(step) else scalar(step, "step", tf.float32, positive=True), "step")

    @tf.custom_gradient
    def op(x, step):
        ratio = x / step
        level = tf.round(tf.clip_by_value(ratio, -low, high))
        inside = tf.logical_and(ratio > -low, ratio < high)

        def grad(dy):
            local = tf.where(inside, level - ratio, level)
            return tf.where(inside, dy, tf.zeros_like(dy)), dy * local * grad_scale

        return level * step, grad

    # Autodiff casts the gradient of the repeated step back before it sums, so the sum has the step's dtype.
    return op(x, tf.cast(_repeated(step, x), x.dtype))


def _levels(bits, signed: bool) -> tuple[int, int]:
    """Give how many levels lie below 0 and above."""
    least = 2 if signed else 1
    if not isinstance(bits, int) or bits < least:
        raise ValueError(f"bits is {bits!r}: give an integer of {least} or more")
    return (2 ** (bits - 1), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _is_array(value) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _repeated(step: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Repeat `step` to the shape of `x`; autodiff sums the gradient over what was repeated."""
    try:
        fits = tf.broadcast_static_shape(x.shape, step.shape).is_compatible_with(x.shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"step has shape {tuple(step.shape)}, which does not broadcast to the shape {tuple(x.shape)} of x"
        )
    return tf.broadcast_to(step, tf.shape(x))


def _pass_where(inside: tf.Tensor, dy) -> tf.Tensor:
    # tf.where and not a product: what is stopped is 0, even where dy is infinite.
    return tf.where(inside, dy, tf.zeros([], dy.dtype))
