"""Exercises of notebook 01: an op of your own, a layer that calls it, a backward pass to mend."""

import keras
import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer
from course_utils.ops import square_with_clipped_grad

IGNORES_DY = "the upstream gradient dy is missing: multiply the local derivative by it"
CLIPS_DY = "dy was clipped, or the product with it: clip only the local derivative, then multiply by dy"


# --- 1. A cube with a clipped gradient ------------------------------------------------------------


def _judge_cube(op):
    def local(x):
        return np.clip(3 * x**2, -1, 1)

    judging.judge_op(
        op,
        forward=lambda x: x**3,
        backward=lambda dy, x: dy * local(x),
        inputs=[judging.random_array((5, 4), seed=1)],
        mistakes={
            IGNORES_DY: lambda dy, x: local(x),
            CLIPS_DY: lambda dy, x: np.clip(dy * 3 * x**2, -1, 1),
            "this is the derivative itself: is it clipped to [-1, 1]?": lambda dy, x: dy * 3 * x**2,
            "this clips 2x, the derivative of a square: a cube has 3x²": lambda dy, x: (
                dy * np.clip(2 * x, -1, 1)
            ),
        },
    )
    return "Forward it is a cube; backward every local derivative stays in [-1, 1], whatever dy is."


def _solve_cube():
    @tf.custom_gradient
    def cube_with_clipped_grad(x):
        def grad(dy):
            return dy * tf.clip_by_value(3 * x**2, -1.0, 1.0)

        return x**3, grad

    return cube_with_clipped_grad


cube = Exercise(
    "a cube with a clipped gradient",
    _judge_cube,
    (
        "Take `square_with_clipped_grad` from above: which two lines know that it is a square?",
        "The derivative of x³ is 3x². Clip that, then multiply by `dy`.",
        "`grad` returns `dy * tf.clip_by_value(3 * x**2, -1.0, 1.0)`.",
    ),
    _solve_cube,
    minutes=5,
    difficulty=1,
)


# --- 2. A layer that holds a weight and calls the op ----------------------------------------------


def _judge_layer(layer_class):
    if not (isinstance(layer_class, type) and issubclass(layer_class, keras.layers.Layer)):
        raise WrongAnswer("your answer", "a class derived from keras.layers.Layer", f"{layer_class!r:.60}")
    layer = layer_class()
    x = tf.constant(judging.random_array((6, 3), seed=2), tf.float32)
    layer(x)
    weights = layer.trainable_variables
    if len(weights) != 1 or tuple(weights[0].shape) != (3,):
        shapes = [tuple(w.shape) for w in weights]
        cause = (
            "make it in build() with self.add_weight(shape=(input_shape[-1],), ...): nothing else is trained"
        )
        raise WrongAnswer("the trainable weights for inputs of shape (6, 3)", "[(3,)]", shapes, cause)
    scale, dy = judging.random_array((3,), seed=3), judging.random_upstream((6, 3))
    weights[0].assign(scale)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = judging.need_tensor(layer(x), x, "the output")
    dx, dscale = tape.gradient(y, [x, weights[0].value], output_gradients=tf.constant(dy, tf.float32))
    x = x.numpy().astype("float64")
    judging.compare(y, scale * x**2, "the output", {"the weight is not used": x**2})
    dscale = judging.need_tensor(dscale, tf.constant(scale, tf.float32), "the gradient of the weight")
    judging.compare(dscale, (dy * x**2).sum(axis=0), "the gradient of the weight")
    plain = (
        "this is the gradient of a plain square: call square_with_clipped_grad, Keras calls no other backward"
    )
    clipped = dy * scale * np.clip(2 * x, -1, 1)
    judging.compare(dx, clipped, "the gradient of the inputs", {plain: dy * scale * 2 * x})
    return "The op holds the backward rule, the layer holds the weight, and autodiff joins the two."


def _solve_layer():
    class ScaledSquareLayer(keras.layers.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones", name="scale")

        def call(self, inputs):
            return self.scale * square_with_clipped_grad(inputs)

    return ScaledSquareLayer


scaled_square_layer = Exercise(
    "a layer with a weight over the op",
    _judge_layer,
    (
        "Weights are made in `build(self, input_shape)`, where the number of features is known.",
        "In build: `self.scale = self.add_weight(shape=(input_shape[-1],), initializer='ones')`.",
        "In call: return `self.scale * square_with_clipped_grad(inputs)`; no method for the backward pass.",
    ),
    _solve_layer,
    minutes=8,
    difficulty=2,
)


# --- 3. Find and mend ----------------------------------------------------------------------------


def _judge_mend(op):
    def slope(x):
        return np.where(x > 0, 1.0, 0.1)

    inputs = [np.concatenate([judging.random_array((7, 2), seed=5), [[-3.0, 3.0]]])]
    judging.judge_op(
        op,
        forward=lambda x: np.where(x > 0, x, 0.1 * x),
        backward=lambda dy, x: dy * slope(x),
        inputs=inputs,
        mistakes={
            IGNORES_DY: lambda dy, x: slope(x),
            "for x < 0 the gradient is 0: the forward pass has the slope 0.1 there": lambda dy, x: (
                dy * (x > 0)
            ),
            "the two sides are exchanged": lambda dy, x: dy * np.where(x > 0, 0.1, 1.0),
            "this is the output times dy: the backward pass needs the slope, not the value": lambda dy, x: (
                dy * np.where(x > 0, x, 0.1 * x)
            ),
            "both faults are still there: no dy, and the slope 0 for x < 0": lambda dy, x: 1.0 * (x > 0),
        },
    )
    return (
        "Two faults, one symptom each: a missing dy shows only inside a bigger model, a wrong slope anywhere."
    )


def _solve_mend():
    @tf.custom_gradient
    def leaky(x):
        def grad(dy):
            return dy * tf.where(x > 0, tf.ones_like(x), 0.1 * tf.ones_like(x))

        return tf.where(x > 0, x, 0.1 * x), grad

    return leaky


mend_leaky = Exercise(
    "find and mend: a leaky ReLU",
    _judge_mend,
    (
        "There are two faults, both in `grad`. Compare its result with `tape.gradient` of the plain formula.",
        "What is the slope of `0.1 * x`? And what does `grad` do with its argument?",
        "`grad` returns `dy` times 1 where x > 0 and `dy` times 0.1 elsewhere.",
    ),
    _solve_mend,
    minutes=8,
    difficulty=3,
)
