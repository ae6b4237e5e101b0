"""Wrong answers to the exercises of notebook 10."""

import numpy as np
import tensorflow as tf


def stable(x):
    size = tf.abs(x)
    return size + tf.nn.softplus(-2.0 * size) - tf.math.log(tf.constant(2.0, x.dtype))


def elementwise(forward, backward):
    """Make an op from `forward(x)` and `backward(dy, x)`."""
    return tf.custom_gradient(lambda x: (forward(x), lambda dy: backward(dy, x)))


def numpy_tanh(x):
    return tf.ensure_shape(tf.numpy_function(np.tanh, [x], x.dtype), x.shape)


def newton(c):
    y = c
    for _ in range(12):
        y = y - (y + y**3 - c) / (1.0 + 3.0 * y**2)
    return y


def cubic(slope):
    """Make a solver from the slope of the solution, `slope(c)`."""
    return elementwise(lambda c: newton(tf.stop_gradient(c)), lambda dy, c: dy * slope(c))


def right_slope(c):
    return 1.0 / (1.0 + 3.0 * newton(c) ** 2)


@tf.custom_gradient
def half_constant(c):
    y = newton(tf.stop_gradient(c))
    # The last step of Newton's method keeps c, but not the way in which y depends on it.
    return y, lambda dy: dy / (1.0 + 3.0 * y**2) + 0.0 * c


def equilibrium(upstream=None, last=None, state=None, steps=25, in_w=None):
    """Make the network from the parts of its backward pass; the defaults are the right ones."""

    @tf.custom_gradient
    def op(x, w):
        z = tf.zeros_like(x)
        for _ in range(25):
            z = tf.tanh(z @ w + x)
        slope = 1.0 - z**2

        def grad(dy):
            u = dy
            for _ in range(steps):
                u = upstream(dy, u, slope, w) if upstream else dy + (u * slope) @ tf.transpose(w)
            dx = u if last else u * slope
            return dx, tf.transpose(x if state else z) @ (u if in_w else dx)

        return z, grad

    return op


def not_transposed(dy, u, slope, w):
    return dy + (u * slope) @ w


WRONG = {
    "log_cosh": {
        "stop_gradient": (
            elementwise(stable, lambda dy, x: dy * tf.stop_gradient(tf.tanh(x))),
            "in grad the slope is a constant",
        ),
        "NumPy": (
            elementwise(stable, lambda dy, x: dy * numpy_tanh(x)),
            "in grad the slope is a constant",
        ),
        "cosh overflows": (
            elementwise(lambda x: tf.math.log(tf.cosh(x)), lambda dy, x: dy * tf.tanh(x)),
            "cosh overflows",
        ),
        "sinh over cosh": (
            elementwise(stable, lambda dy, x: dy * tf.sinh(x) / tf.cosh(x)),
            "take tf.tanh",
        ),
        "no dy": (elementwise(stable, lambda dy, x: tf.tanh(x)), "dy is missing"),
        "no sign": (elementwise(stable, lambda dy, x: dy * tf.tanh(tf.abs(x))), "has lost its sign"),
        "second derivative": (
            elementwise(stable, lambda dy, x: dy * (1.0 - tf.tanh(x) ** 2)),
            "that is the second derivative",
        ),
        "no log 2": (
            elementwise(
                lambda x: tf.abs(x) + tf.nn.softplus(-2.0 * tf.abs(x)), lambda dy, x: dy * tf.tanh(x)
            ),
            "log 2 is missing",
        ),
    },
    "solve_cubic": {
        "slope of the equation": (cubic(lambda c: 1.0 / right_slope(c)), "the solution has its inverse"),
        "slope at c": (cubic(lambda c: 1.0 / (1.0 + 3.0 * c**2)), "the slope was taken at c"),
        "passes dy on": (cubic(tf.ones_like), "dy is passed on unchanged"),
        "no dy": (
            elementwise(lambda c: newton(tf.stop_gradient(c)), lambda dy, c: right_slope(c)),
            "dy is missing",
        ),
        "solution a constant": (
            cubic(lambda c: tf.stop_gradient(right_slope(c))),
            "in grad the slope is a constant",
        ),
        "half a constant": (half_constant, "use solve_cubic(c) in grad"),
        "not solved": (elementwise(tf.identity, lambda dy, c: dy), "run newton on it"),
    },
    "mend_equilibrium": {
        "as it was": (equilibrium(not_transposed, last=True), "both faults are still there"),
        "still not transposed": (equilibrium(not_transposed), "needs its transpose"),
        "still no last slope": (equilibrium(last=True), "the slope of the last step is missing"),
        "one step": (equilibrium(steps=0), "nothing is solved"),
        "no slope in the loop": (
            equilibrium(lambda dy, u, slope, w: dy + u @ tf.transpose(w)),
            "the slope is missing in the loop",
        ),
        "x for z": (equilibrium(state=True), "w is multiplied by z"),
        "no slope for w": (equilibrium(in_w=True), "missing in the gradient of w"),
    },
}
"""For each exercise the mistakes that people make: `WRONG[exercise][name] = (answer, words of its hint)`."""
