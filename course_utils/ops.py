"""Ops with a backward pass of their own: pure functions of tensors, no Keras.

Every op has the same form. The public function takes the tensor and plain Python options; the decorated
inner function takes nothing but the tensors that get a gradient, because `tf.custom_gradient` turns every
positional argument into a tensor in a graph and refuses keyword arguments there.

Ops whose gradient differs from their derivative on purpose say so in their name or in the first line of
their docstring: such a *pseudo-gradient* is a design decision, not a mistake to be mended.
"""

from __future__ import annotations

import math
import numbers

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


def safe_norm(x, axis=-1, keepdims=False):
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
    x = _floating(x, "x")
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
            return dy * tf.math.divide_no_nan(x, op(x))

        return y, grad

    y = op(x)
    return y if keepdims else tf.squeeze(y, axis)


def clip_gradient(x, bound=1.0):
    """Give `x` back; the pseudo-gradient clips each element of the upstream gradient to `[-bound, bound]`.

    Forward: `y = x`. Backward: `dx = clip(dy, -bound, bound)`, element by element (Goodfellow, Bengio and
    Courville 2016, "Deep Learning", section 10.11.1). It changes the direction of the gradient. It is not
    proportional to `dy`: what it clips depends on the batch size, on how the loss is averaged, and on the
    loss scale of mixed precision.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        bound: Largest absolute element of the gradient, a positive number or a scalar tensor. A number is
            fixed when a graph is traced; a tensor can change from step to step.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `bound` is a number that is not positive, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     loss = tf.reduce_sum(clip_gradient(x, 1.0) * [30.0, 0.4])
        >>> [f"{g:.1f}" for g in tape.gradient(loss, x)]
        ['1.0', '0.4']
    """
    x = _floating(x, "x")
    limit = _scalar(bound, "bound", x.dtype, positive=True)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return tf.clip_by_value(tf.convert_to_tensor(dy), -limit, limit)

        return tf.identity(x), grad

    return op(x)


def clip_gradient_by_norm(x, bound=1.0, axis=None):
    """Give `x` back; the pseudo-gradient shortens the upstream gradient to a norm of at most `bound`.

    Forward: `y = x`. Backward: `dx = dy · min(1, bound / ‖dy‖)` with the Euclidean norm over `axis`, the
    rule of Pascanu, Mikolov and Bengio (2013, "On the difficulty of training recurrent neural networks",
    section 3.2) for one signal. It keeps the direction. Like every clip it depends on the batch size and on
    the loss scale. The norm of a half-precision gradient is computed in float32, where no square overflows.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        bound: Largest norm, a positive number or a scalar tensor. A number is fixed when a graph is
            traced; a tensor can change from step to step.
        axis: The axis, or the list of axes, that one norm goes over; -1 gives each row of a
            `(batch, features)` tensor a norm of its own. By default one norm over all elements, the batch
            included.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `bound` is a number that is not positive, or a tensor that is no scalar; or
            `x` has no such axis.

    Example:
        >>> x = tf.constant([1.0, 2.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     loss = tf.reduce_sum(clip_gradient_by_norm(x, 1.0) * [30.0, 40.0])
        >>> [f"{g:.1f}" for g in tape.gradient(loss, x)]
        ['0.6', '0.8']
    """
    x = _floating(x, "x")
    # float16 squares overflow from 256 on: the norm would be infinite, and the gradient zero.
    wide = tf.float32 if x.dtype.size < 4 else x.dtype
    limit = _scalar(bound, "bound", wide, positive=True)
    axes = _axes(axis, x)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            dy = tf.convert_to_tensor(dy)
            return tf.cast(tf.clip_by_norm(tf.cast(dy, wide), limit, axes), dy.dtype)

        return tf.identity(x), grad

    return op(x)


def scale_gradient(x, factor):
    """Give `x` back; the pseudo-gradient is the upstream gradient times `factor`.

    Forward: `y = x`. Backward: `dx = factor · dy`, as in MuZero (Schrittwieser et al. 2019, "Mastering Atari,
    Go, Chess and Shogi by Planning with a Learned Model", arXiv:1911.08265, appendix G), which halves the
    gradient at every step of its recurrent model. It is proportional to `dy`, so a loss scale or another
    batch size does not change what it does. No gradient reaches `factor`.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        factor: A finite number or a scalar tensor; 0 gives a gradient of zeros (`tf.stop_gradient` gives
            None). A number is fixed when a graph is traced; a tensor can change from step to step.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `factor` is a number that is not finite, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant(3.0)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     loss = tf.square(scale_gradient(x, 0.5))
        >>> loss.numpy().item(), tape.gradient(loss, x).numpy().item()
        (9.0, 3.0)
    """
    x = _floating(x, "x")
    factor = _scalar(factor, "factor", x.dtype)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return factor * dy

        return tf.identity(x), grad

    return op(x)


def reverse_gradient(x, strength=1.0):
    """Give `x` back; the pseudo-gradient is the upstream gradient times `-strength`.

    Forward: `y = x`. Backward: `dx = -strength · dy`, the gradient reversal layer of Ganin and Lempitsky
    (2015, "Unsupervised Domain Adaptation by Backpropagation", section 3.2): what comes after it descends on
    its loss, while what comes before it climbs on the same loss. It is proportional to `dy`, so a loss scale
    does not change what it does. No gradient reaches `strength`.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        strength: λ in the paper, 0 or more, a number or a scalar tensor. A number is fixed when a graph is
            traced; a tensor can change from step to step, as a schedule needs it.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `strength` is a negative or infinite number, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant(3.0)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     loss = tf.square(reverse_gradient(x, 0.5))
        >>> loss.numpy().item(), tape.gradient(loss, x).numpy().item()
        (9.0, -3.0)
    """
    x = _floating(x, "x")
    return scale_gradient(x, -_scalar(strength, "strength", x.dtype, low=0.0))


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


def _scalar(value, name: str, dtype, *, low: float = -math.inf, positive: bool = False) -> tf.Tensor:
    """Give an option as a scalar of `dtype`; of a tensor only the shape is known before a graph runs."""
    if isinstance(value, numbers.Real):
        if not (value > 0 if positive else math.isfinite(value) and value >= low):
            least = f" of {low:g} or more" if low > -math.inf else ""
            raise ValueError(
                f"{name} is {value}: give {'a positive' if positive else 'a finite'} number{least}"
            )
        return tf.constant(value, dtype)  # tf.cast would round a number to float32 on its way to float64
    value = tf.convert_to_tensor(value)
    if value.shape.rank not in (0, None):
        raise ValueError(f"{name} has shape {tuple(value.shape)}: give a scalar")
    return tf.cast(value, dtype)


def _axes(axis, x: tf.Tensor) -> list[int] | None:
    """Check the axes of a norm; an unknown rank is left to the graph."""
    axes = [axis] if isinstance(axis, int) else axis
    rank = x.shape.rank
    if axes is not None and rank is not None and not all(-rank <= a < rank for a in axes):
        raise ValueError(
            f"axis is {axis}, x has {rank} axes: give None, or numbers from {-rank} to {rank - 1}"
        )
    return axes


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
