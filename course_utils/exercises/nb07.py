"""Exercises of notebook 07: a layer and an activation that come back from a file, a config to mend."""

import inspect
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from course_utils import ops
from course_utils.errors import first_sentence
from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer, registry_put_back

UNKNOWN = (
    "Keras found no class of that registered name: put @keras.saving.register_keras_serializable above it"
)


# --- What the judges share: one layer, saved and loaded -------------------------------------------


def _need_layer(answer, name: str) -> None:
    if not (isinstance(answer, type) and issubclass(answer, keras.layers.Layer)):
        cause = "give the class itself, not a layer made from it"
        raise WrongAnswer(
            "your answer", f"a class derived from keras.layers.Layer ({name})", f"{answer!r:.60}", cause
        )


def _reload(layer: keras.layers.Layer, causes: dict[str, str]) -> keras.layers.Layer:
    """Save a model of a layer and load it; a failure whose text holds a key of `causes` gets that cause."""
    try:
        return judging.reload(layer, 3)
    except (TypeError, ValueError, NotImplementedError) as error:
        cause = next((cause for words, cause in causes.items() if words in str(error)), None)
        if cause is None:
            raise
        got = first_sentence(error, 100)
    raise WrongAnswer("a model with it, saved as .keras and loaded", "the same model", got, cause)


def _judge_gradient(layer: Callable, backward: Callable, where: str, mistakes: judging.Mistakes) -> None:
    """Compare the gradient of a layer that has no weights; `backward(dy, x)` is in NumPy."""
    x, dy = judging.random_array((5, 3), seed=1), judging.random_upstream((5, 3))
    inputs = tf.constant(x, tf.float32)
    _, (dx,) = judging.run(layer, [inputs], dy)
    wrong = {cause: f(dy, x) for cause, f in mistakes.items()}
    judging.compare(judging.need_tensor(dx, inputs, where), backward(dy, x), where, wrong)


# --- 1. A layer that comes back -------------------------------------------------------------------

SCALED_CAUSES = {
    "Could not locate": UNKNOWN,
    "unexpected keyword": "the constructor must pass **kwargs on: Keras adds name, dtype and trainable",
}


def _judge_scaled(layer_class):
    _need_layer(layer_class, "ScaledGradient")
    judging.judge_op(
        layer_class(factor=0.25),
        forward=lambda x: x,
        backward=lambda dy, x: 0.25 * dy,
        inputs=[judging.random_array((6, 3), seed=2)],
        mistakes={
            "the gradient is not scaled": lambda dy, x: dy,
            "the factor alone was returned: multiply dy by it": lambda dy, x: 0.25 + 0 * dy,
        },
        forward_mistakes={"the forward pass must leave x alone": lambda x: 0.25 * x},
        dtypes=("float32",),
    )
    layer = layer_class(factor=0.25, name="mine")
    forgotten = {"the factor is not in the file, so the default came back: see get_config": lambda dy, x: dy}
    loaded = _reload(layer, SCALED_CAUSES)
    _judge_gradient(
        loaded, lambda dy, x: 0.25 * dy, "the gradient of factor = 0.25, after a reload", forgotten
    )
    layer.factor = -3.0
    where = "the gradient after `layer.factor = -3.0` and a reload"
    old = "the factor of the constructor was saved, not the present one: write get_config with self.factor"
    loaded = _reload(layer, SCALED_CAUSES)
    _judge_gradient(loaded, lambda dy, x: -3 * dy, where, {**forgotten, old: lambda dy, x: 0.25 * dy})
    half = layer_class(factor=2.0, dtype="mixed_float16")
    dtype = _reload(half, SCALED_CAUSES).dtype_policy.name
    if dtype != "mixed_float16":
        cause = "name and dtype are missing: merge the option into super().get_config()"
        raise WrongAnswer("the dtype policy after a reload", "mixed_float16", dtype, cause)
    return "The file has every option and its present value, so the gradient comes back with the layer."


def _solve_scaled():
    @keras.saving.register_keras_serializable(package="exercise")
    class ScaledGradient(keras.layers.Layer):
        def __init__(self, factor=1.0, **kwargs):
            super().__init__(**kwargs)
            self.factor = factor

        def call(self, inputs):
            @tf.custom_gradient
            def op(x):
                return tf.identity(x), lambda dy: self.factor * dy

            return op(inputs)

        def get_config(self):
            return {**super().get_config(), "factor": self.factor}

    return ScaledGradient


scaled_gradient = Exercise(
    "a layer that comes back",
    _judge_scaled,
    (
        "Two methods are missing: the op in `call`, and one that says what to save.",
        "In `call`, an inner function with @tf.custom_gradient closes over `self.factor`.",
        '`get_config` returns `{**super().get_config(), "factor": self.factor}`.',
    ),
    _solve_scaled,
    minutes=8,
    difficulty=1,
)


# --- 2. An activation that reloads ----------------------------------------------------------------

ACTIVATION_CAUSES = {
    "'Bind'": "this is what tf.custom_gradient returns, an object of class Bind: wrap it in a plain function",
    "Could not interpret activation": "a lambda is not loaded from a file: register a function made by def",
    "Could not locate": "Keras knows no such function: put @keras.saving.register_keras_serializable on it",
}


def _leaky(dy, x):
    return np.where(x > 0, dy, 0.1 * dy)


def _judge_activation(activation):
    judging.need_callable(activation, "leaky_backward")
    mistakes = {
        "this is the gradient of a plain ReLU: call the op": lambda dy, x: dy * (x > 0),
        "this is the gradient of the identity: where x < 0 a tenth of dy comes through": lambda dy, x: dy,
    }
    judging.judge_op(
        activation,
        forward=lambda x: np.maximum(x, 0),
        backward=_leaky,
        inputs=[judging.random_array((6, 3), seed=3)],
        mistakes=mistakes,
        forward_mistakes={"this is a leaky ReLU: the forward pass is ReLU": lambda x: _leaky(x, x)},
    )
    dense = keras.layers.Dense(3, activation=activation, kernel_initializer="identity")
    with registry_put_back():
        registered = keras.saving.get_custom_objects()
        for name, known in list(registered.items()):
            if inspect.isfunction(known) and known is not activation:
                del registered[name]  # of that name, Keras would take one that an earlier run registered
        loaded = _reload(dense, ACTIVATION_CAUSES)
    _judge_gradient(loaded, _leaky, "the gradient of a Dense layer after a reload", mistakes)
    return "Keras saved the name of a registered function, and found the function again when it loaded."


def _solve_activation():
    @tf.custom_gradient
    def leaky_backward_op(x):
        def grad(dy):
            return tf.where(x > 0, dy, 0.1 * dy)

        return tf.nn.relu(x), grad

    @keras.saving.register_keras_serializable(package="exercise")
    def leaky_backward(x):
        return leaky_backward_op(x)

    return leaky_backward


leaky_backward = Exercise(
    "an activation that reloads",
    _judge_activation,
    (
        "Look at how the notebook made `square_activation` of `square`.",
        "A function with `def leaky_backward(x)` that returns `leaky_backward_op(x)` is half of it.",
        'Above it goes `@keras.saving.register_keras_serializable(package="exercise")`.',
    ),
    _solve_activation,
    minutes=6,
    difficulty=2,
)


# --- 3. Find and mend: a bound in percent ---------------------------------------------------------


def _percent_backward(percent):
    return lambda dy, x: dy * np.clip(2 * x, -percent / 100, percent / 100)


def _judge_percent(layer_class):
    _need_layer(layer_class, "PercentSquare")
    fresh = "the gradient of percent = 50, before saving"
    unit = {"percent is no longer a percentage: 50 stands for the bound 0.5": _percent_backward(5000)}
    layer = layer_class(percent=50.0)
    _judge_gradient(layer, _percent_backward(50), fresh, unit)
    again = (
        "the bound was saved as `percent`, so each reload divides by 100 once more: save what was passed in"
    )
    forgotten = "the option is not in the file, so the default came back"
    for times in (1, 2):
        layer = _reload(layer, SCALED_CAUSES)
        where = f"the gradient of percent = 50, after {times} reload{'s' if times > 1 else ''}"
        mistakes = {
            again: _percent_backward(50 / 100**times),
            "each reload multiplies by 100: save what was passed in": _percent_backward(50 * 100**times),
            forgotten: _percent_backward(100),
        }
        _judge_gradient(layer, _percent_backward(50), where, mistakes)
    loaded = _reload(layer_class(percent=50.0, dtype="mixed_float16"), SCALED_CAUSES)
    if loaded.dtype_policy.name != "mixed_float16":
        cause = "get_config leaves out what every layer has: merge the option into super().get_config()"
        raise WrongAnswer("the dtype policy after a reload", "mixed_float16", loaded.dtype_policy.name, cause)
    return "A config holds the constructor's arguments as they were passed, and those of the base class."


def _solve_percent():
    @keras.saving.register_keras_serializable(package="exercise")
    class PercentSquare(keras.layers.Layer):
        def __init__(self, percent=100.0, **kwargs):
            super().__init__(**kwargs)
            self.percent = percent

        def call(self, inputs):
            return ops.square_with_clipped_grad(inputs, self.percent / 100)

        def get_config(self):
            return {**super().get_config(), "percent": self.percent}

    return PercentSquare


mend_percent = Exercise(
    "find and mend: a bound in percent",
    _judge_percent,
    (
        "Print `layer.get_config()` for `percent=50`: is it what you would pass to the constructor?",
        "Keep `self.percent` as it was passed, and divide where the bound is used.",
        'And the name and the dtype? `{**super().get_config(), "percent": self.percent}` has all.',
    ),
    _solve_percent,
    minutes=8,
    difficulty=3,
)
