"""Wrong answers to the exercises of notebook 01."""

import keras
import tensorflow as tf

from course_utils.ops import square_with_clipped_grad


def cube(backward):
    """Make a cube with a backward pass `backward(dy, x)`."""

    @tf.custom_gradient
    def op(x):
        return x**3, lambda dy: backward(dy, x)

    return op


def leaky(backward):
    """Make a leaky ReLU with a backward pass `backward(dy, x)`."""

    @tf.custom_gradient
    def op(x):
        return tf.where(x > 0, x, 0.1 * x), lambda dy: backward(dy, x)

    return op


class NoWeight(keras.layers.Layer):
    def call(self, inputs):
        return square_with_clipped_grad(inputs)


class RawVariable(keras.layers.Layer):
    def build(self, input_shape):
        self.scale = tf.Variable(tf.ones((input_shape[-1],)))

    def call(self, inputs):
        return self.scale * square_with_clipped_grad(inputs)


class Scaled(keras.layers.Layer):
    def build(self, input_shape):
        self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones")


class PlainSquare(Scaled):
    def call(self, inputs):
        return self.scale * tf.square(inputs)

    def backward(self, dy):
        return dy


class WeightNotUsed(Scaled):
    def call(self, inputs):
        return square_with_clipped_grad(inputs)


class ScalarWeight(keras.layers.Layer):
    def build(self, input_shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs):
        return self.scale * square_with_clipped_grad(inputs)


WRONG = {
    "cube": {
        "ignores dy": (cube(lambda dy, x: tf.clip_by_value(3 * x**2, -1, 1)), "dy is missing"),
        "clips the product": (cube(lambda dy, x: tf.clip_by_value(dy * 3 * x**2, -1, 1)), "dy was clipped"),
        "does not clip": (cube(lambda dy, x: dy * 3 * x**2), "is it clipped to [-1, 1]"),
        "derivative of a square": (cube(lambda dy, x: dy * tf.clip_by_value(2 * x, -1, 1)), "a cube has 3x²"),
        "no decorator": (lambda x: (x**3, lambda dy: dy), "@tf.custom_gradient"),
    },
    "scaled_square_layer": {
        "no weight": (NoWeight, "self.add_weight"),
        "raw tf.Variable": (RawVariable, "self.add_weight"),
        "one number for all features": (ScalarWeight, "self.add_weight"),
        "plain square and a backward method": (PlainSquare, "Keras calls no other backward"),
        "weight not used": (WeightNotUsed, "the weight is not used"),
    },
    "mend_leaky": {
        "as it was": (leaky(lambda dy, x: tf.cast(x > 0, x.dtype)), "both faults are still there"),
        "still no dy": (leaky(lambda dy, x: tf.where(x > 0, 1 + 0 * x, 0.1 + 0 * x)), "dy is missing"),
        "still 0 for x < 0": (
            leaky(lambda dy, x: dy * tf.cast(x > 0, x.dtype)),
            "for x < 0 the gradient is 0",
        ),
        "sides exchanged": (leaky(lambda dy, x: dy * tf.where(x > 0, 0.1 + 0 * x, 1 + 0 * x)), "exchanged"),
        "value for slope": (
            leaky(lambda dy, x: dy * tf.where(x > 0, x, 0.1 * x)),
            "the slope, not the value",
        ),
    },
}
