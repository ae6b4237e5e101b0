"""The fixed point of a function, with the gradient that the implicit function theorem gives."""

from __future__ import annotations

import contextlib
import numbers

import tensorflow as tf

from course_utils.ops._arguments import floating


def fixed_point(f, start, *args, tolerance=None, max_steps=1000) -> tf.Tensor:
    """Solve `z = f(z, *args)` by iteration; the gradient is that of the solution, not of the steps.

    Forward: `z ← f(z, *args)` from `start`, until no element moves by more than `tolerance · max |z|`.
    Backward: with the Jacobian `J = ∂f/∂z` at the solution, `u = dy + Jᵀu` is solved in the same way, and the
    gradient of each argument is `uᵀ · ∂f/∂arg`. This is the implicit function theorem (Krantz and Parks 2002,
    "The Implicit Function Theorem", section 3.3), used for a layer by Bai, Kolter and Koltun (2019, "Deep
    Equilibrium Models", section 3). Both loops end where `f` is a contraction in `z`: it brings any two
    points closer to each other by a factor below 1.

    What is kept for the backward pass does not grow with the number of steps. The backward pass can itself
    be differentiated, as often as needed. Where `max_steps` came first, neither the result nor its gradient
    is right: compare `z` with `f(z, *args)`. In eager mode `f` cannot use a `tf.GradientTape` of its own.
    Forward mode (`tf.autodiff.ForwardAccumulator`) gets None in eager mode and an error in a graph.

    Args:
        f: Function of `z` and `*args` that gives a tensor of the shape and dtype of `z`. Trainable variables
            that it reads get gradients. A tensor that it reads from outside gets none: make it an argument.
        start: Where to begin, a tensor of any shape, dtype float16, bfloat16, float32 or float64; no gradient
            flows to it.
        *args: Tensors, or numbers, that `f` takes after `z`.
        tolerance: Largest relative change in the last step, a positive number; by default four times the
            distance from 1 to the next larger number of the dtype.
        max_steps: Most evaluations of `f` in each of the two loops, an integer of 1 or more.

    Returns:
        Tensor of the shape and dtype of `start`.

    Raises:
        TypeError: `start` has no floating-point dtype, or `f` is not callable or gives another dtype.
        ValueError: `f` gives another shape, or `tolerance` or `max_steps` is not positive.

    Example:
        >>> a = tf.constant([4.0, 9.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(a)
        ...     root = fixed_point(lambda z, a: (z + a / z) / 2, tf.ones_like(a), a)
        >>> root.numpy().tolist(), [f"{g:.4f}" for g in tape.gradient(root, a)]  # 1 / (2·√a)
        ([2.0, 3.0], ['0.2500', '0.1667'])
    """
    start = floating(start, "start")
    if not callable(f):
        raise TypeError(f"f is {f!r}: give a function of z and the arguments")
    if tolerance is None:
        tolerance = 4 * _epsilon(start.dtype)
    if isinstance(tolerance, bool) or not isinstance(tolerance, numbers.Real) or not float(tolerance) > 0:
        raise ValueError(f"tolerance is {tolerance!r}: give a positive number")
    if isinstance(max_steps, bool) or not isinstance(max_steps, numbers.Integral) or max_steps < 1:
        raise ValueError(f"max_steps is {max_steps!r}: give an integer of 1 or more")
    args = tuple(tf.convert_to_tensor(a, dtype_hint=start.dtype) for a in args)

    def iterate(step, z):
        return _iterate(step, z, tolerance, max_steps)

    z = iterate(lambda z: _checked(f(z, *args), z), start)
    return _differentiable(f, z, args, iterate)


def _epsilon(dtype) -> float:
    """Give the distance from 1 to the next larger number of a dtype; NumPy does not know bfloat16's."""
    return 2.0**-7 if dtype == tf.bfloat16 else 2.0 ** -{2: 10, 4: 23, 8: 52}[dtype.size]


def _checked(new, z) -> tf.Tensor:
    new = tf.convert_to_tensor(new)
    if new.dtype != z.dtype:
        raise TypeError(f"f gives dtype {new.dtype.name} for a z of {z.dtype.name}: give the same")
    if not new.shape.is_compatible_with(z.shape):
        raise ValueError(f"f gives shape {new.shape} for a z of shape {z.shape}: give the same")
    return tf.ensure_shape(new, z.shape)


def _iterate(step, z, tolerance, max_steps) -> tf.Tensor:
    """Repeat `z ← step(z)` until it stands still; what happens on the way is not recorded."""

    def moves(z, change):
        return tf.reduce_any(tf.abs(change) > tf.cast(tolerance, z.dtype) * tf.reduce_max(tf.abs(z)))

    def body(z, _):
        new = step(z)
        return new, new - z

    # An eager tape would keep every step, for a gradient that nobody asks for: init_scope pauses it. In a
    # graph steps are kept on demand only.
    paused = tf.init_scope() if tf.executing_eagerly() else contextlib.nullcontext()
    with paused:
        return tf.while_loop(moves, body, body(z, None), maximum_iterations=max_steps - 1)[0]


def _differentiable(f, z, args, iterate) -> tf.Tensor:
    """Give the fixed point `z` again, as a function of `args` and of the variables that `f` reads."""

    @tf.custom_gradient
    def op(*args):
        def grad(dy, variables=None):
            # Copies, since a tape around a tf.function makes the backward pass a graph of its own, and the
            # backward pass of that would not find tensors of the first. `again` depends on the copies by this
            # same rule, so that a second derivative does not take the solution for a constant.
            here = [tf.identity(a) for a in args]
            again = _differentiable(f, tf.identity(z), here, iterate)
            u = _upstream_of_step(f, tf.convert_to_tensor(dy), again, here, iterate)
            gradients = _gradients(f, again, here, [*here, *(variables or [])], u)
            n = len(here)
            return gradients if variables is None else (gradients[:n], gradients[n:])

        result = f(z, *args)
        # Forward mode would take this one step for the whole way, and be wrong without a word.
        return tf.stop_gradient(result) if tf.executing_eagerly() else result, grad

    return op(*args)


def _upstream_of_step(f, dy, z, args, iterate) -> tf.Tensor:
    """Solve `u = dy + Jᵀu`, itself a fixed point that can be differentiated."""
    still, fixed = tf.stop_gradient(z), [tf.stop_gradient(a) for a in args]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(still)
        y = f(still, *fixed)

    def step(u):
        pulled = tape.gradient(y, still, output_gradients=u)
        return dy if pulled is None else dy + pulled

    def same_step(u, dy, z, *args):
        (pulled,) = _gradients(f, z, args, [z], u)
        return dy if pulled is None else dy + pulled

    return _differentiable(same_step, iterate(step, dy), [dy, z, *args], iterate)


def _gradients(f, z, args, sources, u) -> list:
    with tf.GradientTape() as tape:
        tape.watch([s for s in sources if isinstance(s, tf.Tensor) and s.dtype.is_floating])
        y = f(z, *args)
    return tape.gradient(y, sources, output_gradients=u)
