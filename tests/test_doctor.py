"""`check_layer`: correct layers pass, nothing is changed, bad input is named, notes appear."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import check_layer

X = np.random.default_rng(5).normal(size=(4, 3)).astype("float32")
register = keras.saving.register_keras_serializable(package="correct")


@tf.custom_gradient
def matmul(x, w):
    return x @ w, lambda dy: (dy @ tf.transpose(w), tf.transpose(x) @ dy)


@tf.custom_gradient
def ste_round(x):
    return tf.round(x), lambda dy: dy


@register
class OpDense(keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 2), name="w")

    def call(self, x):
        return matmul(x, self.w.value)


@register
class Quantize(keras.layers.Layer):
    def call(self, x):
        return ste_round(x)


@register
class Reverse(keras.layers.Layer):
    """Gradient reversal, with its strength as a weight."""

    def build(self, shape):
        self.strength = self.add_weight(shape=(), initializer="ones", trainable=False, name="strength")

    def call(self, x):
        @tf.custom_gradient
        def reverse(x, strength):
            return tf.identity(x), lambda dy: (-strength * dy, None)

        return reverse(x, tf.convert_to_tensor(self.strength))


@register
class LearnedStep(keras.layers.Layer):
    """Learned step size quantization (Esser et al., 2020), weights by `variables`."""

    def build(self, shape):
        self.step = self.add_weight(shape=(), initializer=keras.initializers.Constant(0.3), name="step")

    def call(self, x):
        @tf.custom_gradient
        def quantize(x):
            step = tf.cast(self.step.value, x.dtype)
            scaled = x / step
            inside = tf.cast(abs(scaled) <= 3.0, x.dtype)
            level = tf.round(tf.clip_by_value(scaled, -3.0, 3.0))

            def grad(dy, variables=None):
                wide = tf.cast(dy * (level - inside * scaled), variables[0].dtype)
                return dy * inside, [tf.reduce_sum(wide)]

            return level * step, grad

        return quantize(x)


@register
class Clip(keras.layers.Layer):
    def __init__(self, bound=0.1, **kwargs):
        super().__init__(**kwargs)
        self.bound = bound

    def call(self, x):
        @tf.custom_gradient
        def clip(x):
            return tf.identity(x), lambda dy: tf.clip_by_value(dy, -self.bound, self.bound)

        return clip(x)


@register
class TwoInputs(keras.layers.Layer):
    def call(self, inputs):
        return {"sum": inputs["a"] + inputs["b"], "product": inputs["a"] * inputs["b"]}


def names(checks):
    return [check.name for check in checks]


def learned_step_surrogate(layer):
    def surrogate(x):
        step = tf.convert_to_tensor(layer.step)
        scaled = tf.clip_by_value(x / step, -3.0, 3.0)
        return step * (scaled + tf.stop_gradient(tf.round(scaled) - scaled))

    return {"surrogate": surrogate}


def clipped(dy, x):
    return tf.clip_by_value(dy, -0.1, 0.1)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (OpDense, lambda layer: {"order": 2}),
        (Quantize, lambda layer: {"surrogate": tf.identity}),
        (Reverse, lambda layer: {"surrogate": lambda x: -x}),
        (LearnedStep, learned_step_surrogate),
        (Clip, lambda layer: {"backward": clipped}),
    ],
)
def test_correct_layer_passes(make, options):
    layer = make()
    layer(X)
    report = check_layer(layer, X, **options(layer))
    assert report, str(report)


def test_notes_of_a_clipping_layer():
    report = check_layer(Clip(), X, backward=clipped)
    told = {note.name: f"{note.detail} {note.cure}" for note in report.notes}
    assert "loss scale" in told["Survives loss scaling"]
    assert "clipnorm" in told["Survives loss scaling"]
    assert "bound" in told["Notices when a Python number changes"]
    assert "tf.function" in told["Has the same gradient in forward mode"]
    assert "tape.jacobian" in told["Has the same gradient through vectorized_map"]


def test_wrong_surrogate_fails():
    report = check_layer(Quantize(), X, surrogate=lambda x: 2 * x)
    assert names(report.failures)[0] == "Has the right gradients"


def test_dict_inputs_and_outputs():
    report = check_layer(TwoInputs(), {"a": X, "b": 2 * X}, skip=("saved",))
    assert "2 trainable" not in report.checks[0].detail
    assert not names(report.failures), str(report)


def test_integer_inputs():
    report = check_layer(keras.layers.Embedding(5, 2), np.array([[0, 1], [4, 2]]))
    assert report, str(report)


def test_mask_and_training():
    x = np.random.default_rng(2).normal(size=(2, 3, 2)).astype("float32")
    mask = np.array([[True, True, False], [True, False, False]])
    assert check_layer(keras.layers.SimpleRNN(2), x, call_kwargs={"mask": mask})
    assert check_layer(keras.layers.Dropout(0.5, seed=1), X, call_kwargs={"training": True})
    assert check_layer(keras.layers.BatchNormalization(), X, call_kwargs={"training": True})


def test_saved_model_in_a_fresh_process():
    report = check_layer(OpDense(), X, also=("saved_model",))
    assert report, str(report)
    assert report.checks[-1].ok


@register
class PythonBackward(keras.layers.Layer):
    def call(self, x):
        @tf.custom_gradient
        def double(x):
            def grad(dy):
                return tf.ensure_shape(tf.numpy_function(lambda d: 2 * d, [dy], dy.dtype), dy.shape)

            return 2.0 * x, grad

        return double(x)


def test_gradient_that_a_saved_model_loses():
    report = check_layer(PythonBackward(), X, skip=("xla", "vectorized_map"), also=("saved_model",))
    assert names(report.failures) == ["Keeps its gradient in a SavedModel, in a fresh process"], str(report)
    assert "numpy_function" in report.failures[0].cure


def test_nothing_of_the_caller_is_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layer = keras.layers.BatchNormalization()
    layer(X)
    drop = keras.layers.Dropout(0.5, seed=3)
    drop(X)

    def state():
        variables = [v.numpy().tolist() for v in (*layer.variables, *drop.variables)]
        settings = keras.config.dtype_policy().name, keras.config.floatx()
        registry, files = dict(keras.saving.get_custom_objects()), list(tmp_path.iterdir())
        return variables, random.getstate(), str(np.random.get_state()), settings, registry, files

    tf.random.set_seed(7)
    expected = tf.random.normal([2]).numpy()
    tf.random.set_seed(7)
    before = state()
    check_layer(layer, X, call_kwargs={"training": True})
    check_layer(drop, X, call_kwargs={"training": True})
    assert state() == before
    np.testing.assert_array_equal(tf.random.normal([2]).numpy(), expected)


BAD = [
    (lambda: check_layer(OpDense, X), TypeError, "layer must be an instance"),
    (lambda: check_layer(tf.nn.relu, X), TypeError, "layer must be a keras.layers.Layer"),
    (lambda: check_layer(keras.Sequential([OpDense()]), X), TypeError, "layer must be a single layer"),
    (lambda: check_layer(OpDense(), X, skip="xla"), TypeError, "skip must be a sequence"),
    (
        lambda: check_layer(OpDense(), X, skip=("xlaa",)),
        ValueError,
        "skip: unknown check 'xlaa'; known are runs",
    ),
    (
        lambda: check_layer(OpDense(), X, also=("onnx",)),
        ValueError,
        "also: unknown check 'onnx'; known are saved_model",
    ),
    (lambda: check_layer(OpDense(), X[:1]), ValueError, "inputs must be a batch of two"),
    (lambda: check_layer(OpDense(), X[:0]), ValueError, "inputs must be a batch of two"),
    (lambda: check_layer(OpDense(), []), ValueError, "inputs must have one batch size, it is empty"),
    (lambda: check_layer(OpDense(), np.array([["a"], ["b"]])), TypeError, "inputs must hold floats"),
    (lambda: check_layer(OpDense(), X * np.nan), ValueError, "inputs must be finite"),
    (lambda: check_layer(OpDense(), "text"), TypeError, "inputs must be tensors or arrays, not str"),
    (
        lambda: check_layer(OpDense(), X, epsilon=1.0),
        TypeError,
        "epsilon is no argument; gradient options are surrogate",
    ),
    (lambda: check_layer(OpDense(), X, call_kwargs=[1]), TypeError, "call_kwargs must be a dict"),
    (
        lambda: check_layer(OpDense(), X, call_kwargs={"mask": 1}),
        ValueError,
        "call_kwargs: OpDense.call takes no 'mask'",
    ),
    (
        lambda: check_layer(TwoInputs(), {"a": X, "b": X[:2]}),
        ValueError,
        r"inputs must have one batch size, it is \[2, 4\]",
    ),
]


@pytest.mark.parametrize(("act", "kind", "message"), BAD, ids=[row[2][:40] for row in BAD])
def test_bad_input_is_named(act, kind, message):
    with pytest.raises(kind, match=message):
        act()
