"""Half-repairs of cases 13 to 15."""

import keras
import tensorflow as tf

relu = keras.activations.relu


def input_gradient(model, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)
    return tape.gradient(y, x)


@tf.custom_gradient
def guided_relu(x):
    y = tf.nn.relu(x)
    return y, lambda dy: tf.nn.relu(dy) * tf.cast(x > 0, x.dtype)


def swap(model, activation):
    for layer in model.layers:
        layer.activation = activation


def one_trace(model):
    traced = tf.function(lambda x: input_gradient(model, x))

    def guided(x):
        swap(model, guided_relu)
        result = traced(x)
        swap(model, relu)
        return result

    return traced, guided


def not_put_back(model):
    traced = tf.function(lambda x: input_gradient(model, x))

    def guided(x):
        swap(model, guided_relu)
        return tf.function(lambda x: input_gradient(model, x))(x)

    return traced, guided


def traced_too_late(model):
    swap(model, guided_relu)
    guided = tf.function(lambda x: input_gradient(model, x))
    swap(model, relu)
    return tf.function(lambda x: input_gradient(model, x)), guided


def copies_once(model):
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    swap(copy, guided_relu)
    return tuple(tf.function(lambda x, m=m: input_gradient(m, x)) for m in (model, copy))


def traced_once_per_shape(model):
    functions = {relu: None, guided_relu: None}

    def call(activation, x):
        swap(model, activation)
        if functions[activation] is None:
            functions[activation] = tf.function(lambda x: input_gradient(model, x))
            functions[activation](x)
        swap(model, relu)
        return functions[activation](x)

    return lambda x: call(relu, x), lambda x: call(guided_relu, x)


def block(recomputed, outside):
    """Make the block from what is computed again, `recomputed(x, body, norm)`, and what is not."""

    def made(x, body, norm):
        inner = tf.recompute_grad(lambda x: recomputed(x, body, norm))
        return outside(inner(x), norm)

    return made


def normalized(h, norm, training=True):
    return tf.nn.relu(norm(h, training=training))


def softplus(inner):
    return tf.custom_gradient(lambda x: (tf.math.softplus(x), inner(x)))


def captures(x):
    @tf.custom_gradient
    def slope(dy):
        return dy * tf.sigmoid(x), lambda up: up * tf.sigmoid(x)

    return slope


def two_for_one(x):
    @tf.custom_gradient
    def slope(dy):
        s = tf.sigmoid(x)
        return dy * s, lambda up: (up * s, up * dy * s * (1.0 - s))

    return slope


def second(rule):
    """Make the inner op of (dy, x), with `rule(up, dy, s)` for its gradients."""

    @tf.custom_gradient
    def slope(dy, x):
        s = tf.sigmoid(x)
        return dy * s, lambda up: rule(up, dy, s)

    return softplus(lambda x: lambda dy: slope(dy, x))


WRONG = {
    "make_saliency": {
        "as it was": (one_trace, "it was traced with"),
        "not put back": (not_put_back, "put the old ones back"),
        "traced too late": (traced_too_late, "it was traced with"),
        "a copy": (copies_once, "a copy of it does not see them"),
        "for one batch size": (traced_once_per_shape, "traced again for the new batch size"),
    },
    "block": {
        "as it was": (
            block(lambda x, body, norm: normalized(body(x), norm), lambda h, norm: h),
            "updates its statistics again",
        ),
        "nothing recomputed": (
            lambda x, body, norm: normalized(body(x), norm),
            "the body belongs into recompute_grad",
        ),
        "at inference": (
            block(lambda x, body, norm: normalized(body(x), norm, training=False), lambda h, norm: h),
            "training=True",
        ),
        "no ReLU": (
            block(lambda x, body, norm: body(x), lambda h, norm: norm(h, training=True)),
            "the ReLU is missing",
        ),
    },
    "softplus": {
        "as it was": (softplus(captures), "x is captured by the inner op"),
        "two gradients for one": (softplus(two_for_one), "pass x"),
        "one gradient for two": (second(lambda up, dy, s: up * s), "so two gradients of it"),
        "without dy": (second(lambda up, dy, s: (up * s, up * s * (1.0 - s))), "dy is missing in it"),
        "slope of the sigmoid": (second(lambda up, dy, s: (up * s, up * dy * s)), "σ·(1 - σ)"),
        "exchanged": (second(lambda up, dy, s: (up * dy * s * (1.0 - s), up * s)), "are exchanged"),
        "nothing for x": (second(lambda up, dy, s: (up * s, tf.zeros_like(dy))), "passes a zero to x"),
    },
}
