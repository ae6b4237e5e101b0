"""Wrong answers to the exercises of notebook 11."""

import keras
import tensorflow as tf

from course_utils import ops


def softplus(slope, stop=tf.stop_gradient):
    """Make a softplus whose backward pass is `slope(dy, x, y)`."""

    @tf.custom_gradient
    def op(x):
        y = tf.nn.softplus(stop(x))
        return y, lambda dy: slope(dy, x, y)

    return op


def scale_features(gradient_of_w, output=lambda x, w: x * tf.cast(w, x.dtype)):
    """Make the op of exercise 2 with another gradient of w, or another output."""

    @tf.custom_gradient
    def op(x, w):
        def grad(dy):
            return tf.cast(dy, x.dtype) * tf.cast(w, x.dtype), gradient_of_w(dy, x)

        return output(x, w), grad

    return op


def wide_sum(dy, x):
    return tf.reduce_sum(tf.cast(dy, tf.float32) * tf.cast(x, tf.float32), axis=0)


drop = keras.layers.Dropout(0.5)
stateless = tf.nn.experimental.stateless_dropout


def as_it_was(x, w, seed):
    @tf.recompute_grad
    def inside(x):
        return drop(ops.swish_from_input(x @ w), training=True)

    return inside(x)


def stateful(x, w, seed):
    @tf.recompute_grad
    def inside(x, w):
        return drop(ops.swish_from_input(x @ w), training=True)

    return inside(x, w)


def closed_over(x, w, seed):
    @tf.recompute_grad
    def inside(x):
        return stateless(ops.swish_from_input(x @ w), rate=0.5, seed=seed)

    return inside(x)


def not_recomputed(x, w, seed):
    return stateless(ops.swish_from_input(x @ w), rate=0.5, seed=seed)


def fixed_seed(x, w, seed):
    return tf.recompute_grad(lambda x, w: stateless(ops.swish_from_input(x @ w), rate=0.5, seed=[1, 2]))(x, w)


def mask_outside(x, w, seed):
    keep = tf.random.stateless_uniform([x.shape[0], w.shape[1]], seed) < 0.5
    return tf.recompute_grad(lambda x, w: tf.where(keep, 2 * ops.swish_from_input(x @ w), 0.0))(x, w)


def not_doubled(x, w, seed):
    return 0.5 * closed_over(x, w, seed)


WRONG = {
    "softplus_from_output": {
        "reads x": (softplus(lambda dy, x, y: dy * tf.sigmoid(x)), "grad reads x"),
        "does not stop the tape": (
            softplus(lambda dy, x, y: -dy * tf.math.expm1(-y), stop=tf.identity),
            "stop the gradient of x",
        ),
        "native op": (tf.nn.softplus, "grad reads x"),
        "ignores dy": (softplus(lambda dy, x, y: -tf.math.expm1(-y)), "dy is missing"),
        "exp(-y)": (softplus(lambda dy, x, y: dy * tf.exp(-y)), "this is 1 minus the slope"),
        "sigmoid of y": (softplus(lambda dy, x, y: dy * tf.sigmoid(y)), "y was put where x belongs"),
    },
    "scale_features": {
        "sum in float16": (
            scale_features(lambda dy, x: tf.cast(tf.reduce_sum(dy * x, axis=0), tf.float32)),
            "digits were lost in float16",
        ),
        "product in float16": (
            scale_features(lambda dy, x: tf.reduce_sum(tf.cast(dy * x, tf.float32), axis=0)),
            "cast both factors",
        ),
        "gradient of w in float16": (
            scale_features(lambda dy, x: tf.reduce_sum(dy * x, axis=0)),
            "its gradient has the dtype of w",
        ),
        "not summed": (scale_features(lambda dy, x: tf.cast(dy * x, tf.float32)), "sum over axis 0"),
        "mean": (
            scale_features(lambda dy, x: tf.reduce_mean(tf.cast(dy * x, tf.float32), axis=0)),
            "a mean was taken",
        ),
        "output in float32": (
            scale_features(wide_sum, lambda x, w: tf.cast(x, tf.float32) * w),
            "a constant or a cast fixes the dtype",
        ),
    },
    "mend_block": {
        "as it was": (as_it_was, "a Dropout layer draws anew"),
        "dropout layer": (stateful, "a Dropout layer draws anew"),
        "w closed over": (closed_over, "hand w over as an argument"),
        "not recomputed": (not_recomputed, "the block is not recomputed"),
        "seed not used": (fixed_seed, "the seed is not used"),
        "mask drawn outside": (mask_outside, "the mask is kept"),
        "not doubled": (not_doubled, "what is left must be doubled"),
    },
}
