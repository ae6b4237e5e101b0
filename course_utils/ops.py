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


def lsq_quantize(x, step, bits=4, *, signed=True, grad_scale=1.0):
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
    _positive(grad_scale, "grad_scale")
    x = _floating(x, "x")
    # A variable becomes a tensor here, outside the op, and so gets its gradient as an argument of the op.
    step = _floating(step if _is_array(step) else float(_positive(step, "step")), "step")

    @tf.custom_gradient
    def op(x, step):
        ratio = x / step
        level = tf.round(tf.clip_by_value(ratio, -low, high))
        inside = tf.logical_and(ratio > -low, ratio < high)

        def grad(dy):
            local = tf.where(inside, level - ratio, level)
            return tf.where(inside, dy, tf.zeros_like(dy)), dy * local * tf.cast(grad_scale, dy.dtype)

        return level * step, grad

    # Autodiff casts the gradient of the repeated step back before it sums, so the sum has the step's dtype.
    return op(x, tf.cast(_repeated(step, x), x.dtype))


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
