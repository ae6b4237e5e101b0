"""Wrong answers to the exercises of notebook 04."""

import tensorflow as tf


def ternary(backward, forward=lambda x: tf.round(tf.clip_by_value(x, -1.0, 1.0))):
    """Make a ternary quantizer with a backward pass `backward(dy, x)`."""

    @tf.custom_gradient
    def op(x):
        return forward(x), lambda dy: backward(dy, x)

    return op


def clipped(dy, x):
    return tf.where(tf.abs(x) <= 1.0, dy, tf.zeros_like(dy))


def unsigned(low=0.0, high=1.5, highest=3.0, clip_first=True, swapped=False):
    """Make the quantizer of exercise 3 with some of its faults left in."""

    def op(x):
        h = tf.clip_by_value(x, low, high) if clip_first else x
        q = tf.clip_by_value(tf.round(x / 0.5), 0.0, highest) * 0.5
        return q + tf.stop_gradient(h - q) if swapped else h + tf.stop_gradient(q - h)

    return op


def window_of_ones(x):
    @tf.custom_gradient
    def op(x):
        inside = tf.cast((x >= 0) & (x <= 1.5), x.dtype)
        return tf.clip_by_value(tf.round(x / 0.5), 0.0, 3.0) * 0.5, lambda dy: inside

    return op(x)


stop = tf.stop_gradient

WRONG = {
    "clipped_ste": {
        "plain estimator": (ternary(lambda dy, x: dy), "dy passes everywhere"),
        "no pseudo-gradient": (
            ternary(lambda dy, x: tf.zeros_like(dy)),
            "the gradient is 0 everywhere",
        ),
        "window turned around": (
            ternary(lambda dy, x: tf.where(tf.abs(x) > 1.0, dy, tf.zeros_like(dy))),
            "the wrong way round",
        ),
        "window on dy": (ternary(lambda dy, x: clipped(dy, dy)), "|dy| was compared"),
        "clips dy": (ternary(lambda dy, x: tf.clip_by_value(dy, -1.0, 1.0)), "dy was clipped"),
        "ignores dy": (ternary(lambda dy, x: clipped(tf.ones_like(x), x)), "dy is missing"),
        "sign": (ternary(clipped, tf.sign), "this is the sign"),
        "rounds only": (ternary(clipped, tf.round), "only rounded"),
        "plain formula": (lambda x: tf.round(tf.clip_by_value(x, -1.0, 1.0)), "there is no gradient"),
    },
    "exact_straight_through": {
        "the common spelling": (lambda x, q: x + stop(q - x), "q - x is rounded"),
        "the brackets moved": (lambda x, q: x + (stop(q) - stop(x)), "q - x is rounded"),
        "stopped the wrong term": (lambda x, q: q + stop(x - q), "the forward pass gives x"),
        "q not stopped": (lambda x, q: (x - stop(x)) + q, "q receives a gradient too"),
        "x cut off": (lambda x, q: stop(q), "x is cut off"),
        "difference turned around": (lambda x, q: (stop(x) - x) + stop(q), "negated"),
        "nothing stopped in x": (lambda x, q: (x - x) + stop(q), "cancel"),
    },
    "mend_quantizer": {
        "as it was": (unsigned(clip_first=False, highest=4.0, swapped=True), "holds back the wrong term"),
        "clipped first, still swapped": (unsigned(swapped=True), "clipped, but not rounded"),
        "five levels": (unsigned(clip_first=False, highest=4.0), "there are five levels"),
        "three levels": (unsigned(highest=2.0), "a level too few"),
        "plain estimator": (unsigned(clip_first=False), "where the quantizer saturates"),
        "window to the rounding edge": (unsigned(low=-0.25, high=1.75), "half a step too late"),
        "window to a level too many": (unsigned(high=2.0), "a level that two bits do not have"),
        "ignores dy": (window_of_ones, "dy is missing"),
        "no pseudo-gradient": (
            lambda x: tf.clip_by_value(stop(tf.round(x / 0.5)), 0.0, 3.0) * 0.5 + 0.0 * x,
            "0 everywhere",
        ),
    },
}
