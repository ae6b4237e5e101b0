"""Wrong answers to the exercises of notebook 03."""

import tensorflow as tf


def log_op(backward):
    """Make a guarded logarithm with a backward pass `backward(dy, x)`."""

    @tf.custom_gradient
    def op(x):
        y = tf.where(x > 0, tf.math.log(x), tf.zeros_like(x))
        return y, lambda dy: backward(dy, x)

    return op


def log1mexp_forward(x):
    small, large = tf.math.log(-tf.math.expm1(-x)), tf.math.log1p(-tf.exp(-x))
    return tf.where(x < 0.6931, small, large)


def log1mexp(backward, forward=log1mexp_forward):
    """Make a log(1 - exp(-x)) with a backward pass `backward(dy, x)`."""

    @tf.custom_gradient
    def op(x):
        return forward(x), lambda dy: backward(dy, x)

    return op


def right_slope(dy, x):
    return dy / tf.math.expm1(x)


def probability_loss(p, labels):
    return -labels * tf.math.log(p) - (1 - labels) * tf.math.log(1 - p)


def cross_entropy(backward, forward=tf.nn.sigmoid_cross_entropy_with_logits):
    """Make a cross entropy with a backward pass `backward(dy, p, labels)`."""

    @tf.custom_gradient
    def op(logits, labels):
        p = tf.sigmoid(logits)
        return forward(labels=labels, logits=logits), lambda dy: (backward(dy, p, labels), None)

    return op


def from_probability(labels, logits):
    return probability_loss(tf.sigmoid(logits), labels)


def clipped_probability(logits, labels):
    return probability_loss(tf.clip_by_value(tf.sigmoid(logits), 1e-7, 1 - 1e-7), labels)


WRONG = {
    "safe_log": {
        "one tf.where": (lambda x: tf.where(x > 0, tf.math.log(x), tf.zeros_like(x)), "not taken"),
        "mask by multiplication": (lambda x: tf.math.log(x) * tf.cast(x > 0, x.dtype), "by a mask"),
        "a small number": (lambda x: tf.math.log(tf.maximum(x, 1e-7)), "x was clipped"),
        "absolute value": (lambda x: tf.math.log(tf.abs(x)), "log(|x|)"),
        "plain": (tf.math.log, "the plain logarithm"),
        "ignores dy": (
            log_op(lambda dy, x: tf.where(x > 0, 1 / x, tf.zeros_like(x))),
            "dy is missing",
        ),
        "slope for negative x": (
            log_op(lambda dy, x: dy * tf.math.divide_no_nan(tf.ones_like(x), x)),
            "constant there",
        ),
    },
    "log1mexp": {
        "naive": (lambda x: tf.math.log(1 - tf.exp(-x)), "rounds to 0 for small x"),
        "small form everywhere": (lambda x: tf.math.log(-tf.math.expm1(-x)), "rounds to 1 for large x"),
        "large form everywhere": (
            log1mexp(right_slope, lambda x: tf.math.log1p(-tf.exp(-x))),
            "rounds to 0 for small x",
        ),
        "autodiff through tf.where": (log1mexp_forward, "NaN leaks"),
        "gradient that cancels": (
            log1mexp(lambda dy, x: dy * tf.exp(-x) / (1 - tf.exp(-x))),
            "write it with expm1",
        ),
        "gradient by a difference": (
            log1mexp(lambda dy, x: dy * (-1 / tf.math.expm1(-x) - 1)),
            "a difference of two numbers near 1",
        ),
        "sign": (log1mexp(lambda dy, x: -dy / tf.math.expm1(x)), "the sign of the gradient is turned"),
        "ignores dy": (log1mexp(lambda dy, x: 1 / tf.math.expm1(x)), "dy is missing"),
    },
    "mend_cross_entropy": {
        "as it was": (
            cross_entropy(lambda dy, p, t: dy * (p - t) / (p * (1 - p)), from_probability),
            "that of the logits",
        ),
        "gradient mended only": (
            cross_entropy(lambda dy, p, t: dy * (p - t), from_probability),
            "p rounds to",
        ),
        "loss mended only": (
            cross_entropy(lambda dy, p, t: dy * (p - t) / (p * (1 - p))),
            "that of the logits",
        ),
        "clips p": (clipped_probability, "p was clipped"),
        "ignores dy": (cross_entropy(lambda dy, p, t: p - t), "dy is missing"),
        "uphill": (cross_entropy(lambda dy, p, t: dy * (t - p)), "walk uphill"),
        "max form": (
            lambda x, t: tf.maximum(x, 0.0) - x * t + tf.math.log1p(tf.exp(-tf.abs(x))),
            "corner at logit 0",
        ),
    },
}
