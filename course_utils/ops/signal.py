"""Ops that give their input back and reshape the gradient on its way: clip, scale, reverse."""

from __future__ import annotations

import tensorflow as tf

from course_utils.ops._arguments import floating, scalar


def clip_gradient(x, bound=1.0) -> tf.Tensor:
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
    x = floating(x, "x")
    limit = scalar(bound, "bound", x.dtype, positive=True)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return tf.clip_by_value(tf.convert_to_tensor(dy), -limit, limit)

        return tf.identity(x), grad

    return op(x)


def clip_gradient_by_norm(x, bound=1.0, axis=None) -> tf.Tensor:
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
    x = floating(x, "x")
    # float16 squares overflow from 256 on: the norm would be infinite, and the gradient zero.
    wide = tf.float32 if x.dtype.size < 4 else x.dtype
    limit = scalar(bound, "bound", wide, positive=True)
    axes = _axes(axis, x)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            dy = tf.convert_to_tensor(dy)
            return tf.cast(tf.clip_by_norm(tf.cast(dy, wide), limit, axes), dy.dtype)

        return tf.identity(x), grad

    return op(x)


def scale_gradient(x, factor) -> tf.Tensor:
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
    x = floating(x, "x")
    factor = scalar(factor, "factor", x.dtype)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return factor * dy

        return tf.identity(x), grad

    return op(x)


def reverse_gradient(x, strength=1.0) -> tf.Tensor:
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
    x = floating(x, "x")
    return scale_gradient(x, -scalar(strength, "strength", x.dtype, low=0.0))


def _axes(axis, x: tf.Tensor) -> list[int] | None:
    """Check the axes of a norm; an unknown rank is left to the graph."""
    axes = [axis] if isinstance(axis, int) else axis
    rank = x.shape.rank
    if axes is not None and rank is not None and not all(-rank <= a < rank for a in axes):
        raise ValueError(
            f"axis is {axis}, x has {rank} axes: give None, or numbers from {-rank} to {rank - 1}"
        )
    return axes
