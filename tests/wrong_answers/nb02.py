"""Wrong answers to the exercises of notebook 02."""

import tensorflow as tf


def identity(backward):
    """Make an identity with a backward pass `backward(dy, x)`."""

    @tf.custom_gradient
    def op(x):
        return tf.identity(x), lambda dy: backward(dy, x)

    return op


def clips_x(low, high):
    @tf.custom_gradient
    def op(x):
        return tf.clip_by_value(x, low, high), lambda dy: tf.clip_by_value(dy, low, high)

    return op


def typed_bounds(low, high):
    low, high = tf.constant(low), tf.constant(high)
    return identity(lambda dy, x: tf.clip_by_value(tf.cast(dy, tf.float32), low, high))


def step(loss_in_tape=True, direction=1.0, apply=True, returns=True):
    """Make a training step with one part left out or turned around."""

    def train_step(model, optimizer, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        gradients = [direction * g for g in tape.gradient(loss, model.trainable_variables)]
        if apply:
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss if returns else None

    return train_step


WRONG = {
    "clipped_identity": {
        "does not clip": (lambda low, high: identity(lambda dy, x: dy), "the gradient is not clipped"),
        "clips x": (clips_x, "leave x alone"),
        "gradient is the clipped x": (
            lambda low, high: identity(lambda dy, x: tf.clip_by_value(x, low, high)),
            "the op must clip dy",
        ),
        "bounds of the first": (
            lambda low, high: identity(lambda dy, x: tf.clip_by_value(dy, -0.5, 0.5)),
            "bounds of the first op",
        ),
        "float32 for every dtype": (typed_bounds, "use the dtype of the input"),
        "calls the op": (lambda low, high: identity(lambda dy, x: dy)(tf.ones(3)), "without calling it"),
    },
    "train_step": {
        "no update": (step(apply=False), "the weights did not move"),
        "uphill": (step(direction=-1.0), "moved uphill"),
        "learning rate twice": (step(direction=0.1), "applied twice"),
        "returns nothing": (step(returns=False), "scalar tensor"),
    },
    "mend_batch_size": {
        "as it was": (identity(lambda dy, x: dy / x.shape[0]), "tf.shape(x)[0]"),
        "no division": (identity(lambda dy, x: dy), "division by the batch size is gone"),
        "all elements": (identity(lambda dy, x: dy / tf.cast(tf.size(x), x.dtype)), "of all elements"),
        "features": (identity(lambda dy, x: dy / x.shape[1]), "number of features"),
        "multiplies": (identity(lambda dy, x: dy * tf.cast(tf.shape(x)[0], x.dtype)), "multiplies by"),
    },
}
