"""Half-repairs of cases 6 to 9."""

import keras
import tensorflow as tf


@tf.custom_gradient
def weigh(x, importance):
    return tf.identity(x), lambda dy: (importance * dy, None)


@tf.custom_gradient
def weigh_one(x, importance):
    return tf.identity(x), lambda dy: importance * dy


@tf.custom_gradient
def weigh_forward(x, importance):
    return importance * x, lambda dy: (importance * dy, None)


@tf.custom_gradient
def weigh_without_dy(x, importance):
    return tf.identity(x), lambda dy: (importance * tf.ones_like(dy), None)


def weigh_layer(call):
    """Make a layer whose call gives `call(x, importance)`."""

    class Weigh(keras.layers.Layer):
        def call(self, inputs):
            return call(*inputs)

    return Weigh


def limit(backward):
    return tf.custom_gradient(lambda x: (tf.identity(x), backward))


def asks_in_python(dy):
    if tf.norm(dy) > 1.0:
        dy = dy / tf.norm(dy)
    return dy


def python_maximum(dy):
    return dy / max(tf.norm(dy), 1.0)


def by_row(dy):
    return dy / tf.maximum(tf.norm(dy, axis=-1, keepdims=True), 1.0)


def zero_by_zero(dy):
    norm = tf.norm(dy)
    return dy / norm * tf.minimum(norm, 1.0)


def relu_with_leak(backward, forward=tf.nn.relu):
    return tf.custom_gradient(lambda x: (forward(x), lambda dy: backward(dy, x)))


LEAK = tf.constant(0.125)


def leaking(cast_dy=tf.identity, leak=LEAK):
    """Make the backward pass with `cast_dy(dy)`, and the leak as given."""
    return lambda dy, x: tf.where(x > 0, cast_dy(dy), leak * cast_dy(dy))


def slow_rows(backward):
    return tf.custom_gradient(lambda table: (tf.identity(table), backward))


def updated(dy):
    if not isinstance(dy, tf.IndexedSlices):
        return 0.1 * dy
    rows = tf.zeros([5, 2], dy.values.dtype)
    return tf.tensor_scatter_nd_update(rows, tf.reshape(dy.indices, [-1, 1]), 0.1 * dy.values)


def sparse_only(dy):
    return tf.IndexedSlices(0.1 * dy.values, dy.indices, dy.dense_shape)


WRONG = {
    "weigh": {
        "as it was": (weigh_layer(lambda x, w: weigh(x=x, importance=w)), "how is the op called?"),
        "one by keyword": (
            weigh_layer(lambda x, w: weigh(x, importance=w)),
            "is not counted as an input",
        ),
        "one gradient": (weigh_layer(weigh_one), "None for the importance"),
        "the output too": (weigh_layer(weigh_forward), "the output was weighed too"),
        "without dy": (weigh_layer(weigh_without_dy), "only the importance was given back"),
    },
    "limit": {
        "as it was": (limit(asks_in_python), "let a TensorFlow op decide"),
        "Python's max": (limit(python_maximum), "let a TensorFlow op decide"),
        "never shortened": (limit(tf.identity), "was not shortened"),
        "each element": (limit(lambda dy: tf.clip_by_value(dy, -1.0, 1.0)), "that turns dy"),
        "each row": (limit(by_row), "each row was shortened by itself"),
        "always": (limit(lambda dy: dy / tf.maximum(tf.norm(dy), 1e-9)), "was made longer"),
        "0 / 0": (limit(zero_by_zero), "0 / 0"),
    },
    "relu_with_leak": {
        "as it was": (relu_with_leak(leaking()), "a fixed dtype meets dy"),
        "cast up": (relu_with_leak(leaking(lambda dy: tf.cast(dy, tf.float32))), "cast up and not back"),
        "half only": (
            relu_with_leak(lambda dy, x: tf.where(x > 0, dy, tf.cast(LEAK, tf.float16) * dy)),
            "ask dy for its dtype",
        ),
        "no leak": (
            relu_with_leak(lambda dy, x: tf.where(x > 0, dy, tf.zeros_like(dy))),
            "nothing comes through",
        ),
        "leaks forward": (
            relu_with_leak(leaking(leak=0.125), lambda x: tf.nn.leaky_relu(x, 0.125)),
            "the forward pass leaks too",
        ),
    },
    "slow_rows": {
        "as it was": (slow_rows(lambda dy: dy * 0.1), "turn it into a tensor"),
        "values alone": (slow_rows(lambda dy: 0.1 * dy.values), "a row for each row of the table"),
        "the last of two": (slow_rows(updated), "must be added"),
        "sparse only": (slow_rows(sparse_only), "grad must take both"),
        "factor lost": (slow_rows(lambda dy: tf.convert_to_tensor(dy)), "a tenth of it should come"),
    },
}
