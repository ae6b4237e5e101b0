"""Wrong answers to the exercises of notebook 08."""

import numpy as np
import tensorflow as tf


def by_element(weigh, down=1.0, width=2.0):
    """Make a numerical gradient from `weigh(dy, up - down, i)`; move by `down` steps below x."""

    def numerical_vjp(f, x, dy, h):
        steps = h * np.eye(x.size)
        return np.array([weigh(dy, f(x + s) - f(x - down * s), i) / (width * h) for i, s in enumerate(steps)])

    return numerical_vjp


def changes_x(f, x, dy, h):
    gradient = []
    for i in range(x.size):
        x[i] += h
        up = f(x)
        x[i] -= 2 * h
        gradient.append(dy @ (up - f(x)) / (2 * h))
    return np.array(gradient)


def all_at_once(f, x, dy, h):
    return dy * (f(x + h) - f(x - h)) / (2 * h)


def returns_nothing(f, x, dy, h):
    f(x + h)


def weighted(dy, difference, i):
    return dy @ difference


def backward(op, x, dy):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = op(x)
    return tape.gradient(y, x, output_gradients=tf.cast(dy, y.dtype)).numpy()


def compares(factor, close=np.allclose, dy=None):
    """Make a test that compares the gradients for dy and for a multiple of it."""

    def linear_in_dy(op, x):
        upstream = np.random.default_rng(3).normal(size=x.shape) if dy is None else dy(x)
        return bool(close(factor * backward(op, x, upstream), backward(op, x, factor * upstream)))

    return linear_in_dy


def gate(gradients):
    """Make a gate from `gradients(dy, x, s)`."""

    @tf.custom_gradient
    def op(x, w):
        s = tf.sigmoid(w)
        return x * s, lambda dy: gradients(dy, x, s)

    return op


def full(dy, x, s):
    return dy * x * s * (1 - s)


WRONG = {
    "numerical_vjp": {
        "no dy": (by_element(lambda dy, d, i: d.sum()), "dy is missing"),
        "factor 2": (by_element(weighted, width=1.0), "a factor of 2 is missing"),
        "one-sided": (by_element(weighted, down=0.0, width=1.0), "one-sided"),
        "all elements at once": (all_at_once, "moved at once"),
        "own output only": (by_element(lambda dy, d, i: dy[i] * d[i]), "for its own input only"),
        "changes x": (changes_x, "x itself was changed"),
        "returns nothing": (returns_nothing, "`return` is missing"),
    },
    "linear_in_dy": {
        "exact equality": (compares(-100.0, np.array_equal), "float32 rounds"),
        "always true": (lambda op, x: True, "compare two backward passes"),
        "doubles dy": (compares(2.0), "a positive factor does not see"),
        "turns the sign only": (compares(-1.0), "factor of the size 100"),
        "too small": (compares(-2.0), "factor of the size 100"),
        "one truth value for each element": (lambda op, x: x.numpy() > 0, "one truth value"),
    },
    "mend_gate": {
        "as it was": (gate(lambda dy, x, s: (dy * s, dy * x * s)), "sum its gradient over axis 0"),
        "slope of the sigmoid": (
            gate(lambda dy, x, s: (dy * s, tf.reduce_sum(dy * x * s, 0))),
            "s·(1 - s), not s",
        ),
        "mean for sum": (
            gate(lambda dy, x, s: (dy * s, tf.reduce_mean(full(dy, x, s), 0))),
            "a mean was taken",
        ),
        "all summed": (gate(lambda dy, x, s: (dy * s, tf.reduce_sum(full(dy, x, s)))), "over axis 0"),
        "no dy": (
            gate(lambda dy, x, s: (dy * s, tf.reduce_sum(x * s * (1 - s), 0))),
            "dy is missing in the gradient of w",
        ),
        "mended the right one": (
            gate(lambda dy, x, s: (dy * s * (1 - s), tf.reduce_sum(full(dy, x, s), 0))),
            "was right before",
        ),
    },
}
