"""Broken layers, each with one fault: the doctor's first failing line must be its diagnosis."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import check_layer
from course_utils.doctor.registry import CHECKS

X = np.random.default_rng(5).normal(size=(4, 3)).astype("float32")
register = keras.saving.register_keras_serializable(package="broken")


@tf.custom_gradient
def matmul(x, w):
    def grad(dy):
        return dy @ tf.transpose(w), tf.transpose(x) @ dy

    return x @ w, grad


@tf.custom_gradient
def ste_round(x):
    return tf.round(x), lambda dy: dy


@tf.custom_gradient
def halved(x):
    """A wrong gradient: half of the right one."""
    return x * x, lambda dy: dy * x


def op_with(forward, grad):
    """Make an op of its forward pass and a backward pass that needs no inputs."""
    return tf.custom_gradient(lambda *inputs: (forward(*inputs), grad))


def make_clip(bound):
    return op_with(tf.identity, lambda dy: tf.clip_by_value(dy, -bound, bound))


class Kernel(keras.layers.Layer):
    """A layer with one weight of shape (3, 3); the broken ones differ in `call`."""

    def build(self, shape):
        self.w = self.add_weight(shape=(3, 3), name="w")


class Bias(keras.layers.Layer):
    """A layer with one weight of shape (3,)."""

    def build(self, shape):
        self.b = self.add_weight(shape=(3,), name="b")


@register
class NotANumber(Kernel):
    def call(self, x):
        return tf.math.log(-tf.abs(matmul(x, self.w.value)))


@register
class BareWeight(Kernel):
    def call(self, x):
        return matmul(x, self.w)


@register
class Noisy(Kernel):
    def call(self, x):
        return matmul(x, self.w.value) + tf.random.normal([])


@register
class Cached(Kernel):
    """The backward pass uses the first input that the layer ever saw."""

    first = None

    def call(self, x):
        if self.first is None and not tf.is_symbolic_tensor(x):
            self.first = x.numpy()
        first = 0.0 if self.first is None else self.first

        @tf.custom_gradient
        def square(x):
            return x * x, lambda dy: 2.0 * tf.cast(first, x.dtype) * dy

        return square(x)


@register
class RawVariable(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale = tf.Variable(2.0)

    def call(self, x):
        return x * self.scale


@register
class RawCounter(keras.layers.Layer):
    """Not trainable, so nothing watches it; in a dict."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.state = {"offset": tf.Variable(0.5, trainable=False)}

    def call(self, x):
        return x + self.state["offset"]


@register
class ForgetsBound(keras.layers.Layer):
    """get_config drops the bound: outputs come back, gradients do not."""

    def __init__(self, bound=1e9, **kwargs):
        super().__init__(**kwargs)
        self.bound = bound

    def call(self, x):
        return make_clip(self.bound)(x)

    def get_config(self):
        return keras.layers.Layer.get_config(self)


@register
class NotSummed(Bias):
    """The gradient of a bias that was broadcast is not summed over the batch."""

    def call(self, x):
        return op_with(tf.add, lambda dy: (dy, dy))(x, self.b.value)


@register
class MeanOfAll(Bias):
    """A scalar for a vector: Adam would broadcast it."""

    def call(self, x):
        return op_with(tf.add, lambda dy: (dy, tf.reduce_mean(dy)))(x, self.b.value)


@register
class DoubleGradient(keras.layers.Layer):
    def call(self, x):
        return op_with(lambda x: 2.0 * x, lambda dy: tf.cast(2.0 * dy, "float64"))(x)


@register
class ByKeyword(Kernel):
    def call(self, x):
        return matmul(x=x, w=self.w.value)


@register
class DecoratedCall(keras.layers.Layer):
    @tf.custom_gradient
    def call(self, x, training=None):
        return 2.0 * x, lambda dy: 2.0 * dy


@register
class WeightOrder(keras.layers.Layer):
    """Gradients of two weights by position: eager gives (w, b), a graph sorts by name."""

    def build(self, shape):
        self.w = self.add_weight(shape=(3,), name="w")
        self.b = self.add_weight(shape=(3,), name="b")

    def call(self, x):
        @tf.custom_gradient
        def affine(x):
            w, b = self.w.value, self.b.value

            def grad(dy, variables=None):
                return dy * w, [tf.reduce_sum(dy * x, 0), tf.reduce_sum(dy, 0)]

            return x * w + b, grad

        return affine(x)


@register
class PythonIf(keras.layers.Layer):
    def call(self, x):
        @tf.custom_gradient
        def double(x):
            def grad(dy):
                return 2.0 * dy if tf.reduce_sum(dy) < 1e9 else dy

            return 2.0 * x, grad

        return double(x)


@register
class StaticBatch(keras.layers.Layer):
    def call(self, x):
        @tf.custom_gradient
        def double(x):
            size = x.shape[0]
            return 2.0 * x, lambda dy: tf.reshape(2.0 * dy, [size, 3]) * size / size

        return double(x)


@register
class TooManyGradients(keras.layers.Layer):
    def call(self, x):
        return op_with(lambda x: 2.0 * x, lambda dy: (2.0 * dy, dy))(x)


@register
class PythonNumberGradient(Bias):
    """A NumPy array as the gradient of a weight: only a tape outside of the tf.function refuses it."""

    def call(self, x):
        @tf.custom_gradient
        def add(x, b):
            return x + 0.0 * b, lambda dy: (dy, np.zeros(3, "float32"))

        return add(x, self.b.value)


@register
class Half(keras.layers.Layer):
    def call(self, x):
        return halved(x)


@register
class Captured(Kernel):
    """The weight is a tensor that the op captures: it gets no gradient."""

    def call(self, x):
        w = tf.convert_to_tensor(self.w)

        @tf.custom_gradient
        def op(x):
            return x @ w, lambda dy: dy @ tf.transpose(w)

        return op(x)


@register
class Clips(keras.layers.Layer):
    def call(self, x):
        return make_clip(0.1)(x)


@register
class StraightThroughUndeclared(keras.layers.Layer):
    def call(self, x):
        return ste_round(x)


@register
class StopsInput(Kernel):
    def call(self, x):
        return tf.stop_gradient(x) @ self.w


@register
class OpMadeInInit(keras.layers.Layer):
    def __init__(self, strength=2.0, **kwargs):
        super().__init__(**kwargs)
        self.strength = strength
        self.op = lambda x: x * strength

    def call(self, x):
        return self.op(x)


@register
class PythonCode(keras.layers.Layer):
    def call(self, x):
        @tf.custom_gradient
        def double(x):
            y = tf.numpy_function(lambda a: 2 * a, [x], x.dtype)
            return tf.ensure_shape(y, x.shape), lambda dy: 2.0 * dy

        return double(x)


@register
class FixedBatch(keras.layers.Layer):
    def call(self, x):
        return tf.reshape(x, [4, 3]) if not tf.is_symbolic_tensor(x) else tf.ensure_shape(x, [4, 3])


@register
class MixesBatch(keras.layers.Layer):
    def call(self, x):
        return x - tf.reduce_mean(x, axis=0)


@register
class Float32Constant(keras.layers.Layer):
    def call(self, x):
        bound = tf.constant(0.5, x.dtype if x.dtype == tf.float64 else tf.float32)
        return tf.minimum(x, bound)


@register
class Overflows(keras.layers.Layer):
    """Finite in float32, infinite in float16."""

    def call(self, x):
        return tf.sqrt(x * x * 1e10 + 1.0) * 1e-5


@register
class Cancels(keras.layers.Layer):
    """What bfloat16, with 8 digits in base 2, leaves of a small number beside a large one."""

    def call(self, x):
        return (x + 64.0) - 64.0


class Unregistered(keras.layers.Layer):
    def call(self, x):
        return 2.0 * x


@register
class Rounds(keras.layers.Layer):
    """Its derivative is zero almost everywhere, and so is its gradient: nothing before it learns."""

    def call(self, x):
        return tf.round(x)


@register
class KeepsTensor(keras.layers.Layer):
    """State outside of the weights: fit compiled and run_eagerly differ."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = 0

    def call(self, x, training=None):
        self.calls += bool(training)
        return x * (1.0 + self.calls)


@register
class MeanForSum(Bias):
    """The bias is shared by the batch: its gradient is a sum over it."""

    def call(self, x):
        add = op_with(lambda x, b: x + b, lambda dy: (dy, tf.reduce_mean(dy, axis=0)))
        return add(x, self.b.value)


@register
class HoldsFunction(keras.layers.Layer):
    """A function as an argument: no config can hold it."""

    def __init__(self, op, **kwargs):
        super().__init__(**kwargs)
        self.op = op

    def call(self, x):
        return self.op(x)


@register
class Squares(keras.layers.Layer):
    """A right one."""

    def call(self, x):
        return tf.square(x)


#: layer, the check that must fail first, words of its line (found, and what to do)
BROKEN = [
    (NotANumber, "runs", "NaN or infinity", "print its output"),
    (BareWeight, "runs", "must accept keyword argument 'variables'", "tf.convert_to_tensor(self.w)"),
    (Noisy, "deterministic", "the output is", "SeedGenerator"),
    (Cached, "gradient", "inputs", ""),
    (RawVariable, "tracked", "neither trains nor saves", "add_weight"),
    (RawCounter, "tracked", "neither trains nor saves", "add_weight"),
    (lambda: ForgetsBound(0.1), "config", "the outputs agree, but the gradient of inputs", "get_config"),
    (
        lambda: HoldsFunction(make_clip(1.0)),
        "config",
        "created by passing non-serializable argument values in `__init__()`, and",
        "get_config",
    ),
    (NotSummed, "shapes", "float32(4, 3), not float32(3,)", "tf.reduce_sum"),
    (MeanOfAll, "shapes", "float32(), not float32(3,)", "broadcast"),
    (DoubleGradient, "shapes", "float64(4, 3), not float32(4, 3)", "tf.cast"),
    (ByKeyword, "tf_function", "keywords arguments", "by position"),
    (WeightOrder, "tf_function", "is the gradient of", "identity"),
    (PythonIf, "tf_function", "as a Python", "tf.where"),
    (StaticBatch, "tf_function", "[None, 3]", "tf.shape(x)[0]"),
    (TooManyGradients, "runs", "returned 2", "for each positional argument"),
    (PythonNumberGradient, "outer_tape", "has no attribute 'name'", "tensors"),
    (Half, "gradient", "inputs", "factor"),
    (
        MeanForSum,
        "gradient",
        "b: ",
        "4 missing (4 is the size of axis 0 of the output: a mean taken for a sum?)",
    ),
    (Captured, "gradient", "w: ", "by position"),
    (Clips, "gradient", "linear", "Loss scaling"),
    (StraightThroughUndeclared, "gradient", "derivative 0", "surrogate="),
    (StopsInput, "gradient", "inputs", "captures"),
    (OpMadeInInit, "numbers", "self.strength", "op made in __init__"),
    (PythonCode, "xla", "unsupported operations", "numpy_function"),
    (FixedBatch, "any_batch_size", "fixed batch size", "tf.shape(x)[0]"),
    (MixesBatch, "independent_examples", "first example alone", "skip"),
    (Float32Constant, "mixed_float16", "half", "dtype=x.dtype"),
    (Overflows, "mixed_float16", "inf", "float32"),
    (Cancels, "mixed_bfloat16", "the output is", "dtype=x.dtype"),
    (Unregistered, "saved", "Could not locate class", "register_keras_serializable"),
    (DecoratedCall, "trains", "keywords arguments", "inner function"),
    (Rounds, "trains", "No gradients provided", "surrogate="),
    (KeepsTensor, "trains", "run_eagerly", "keep state in weights"),
]


@pytest.mark.parametrize(("make", "check", "found", "cure"), BROKEN, ids=[row[0].__name__ for row in BROKEN])
def test_first_failure_is_the_cause(make, check, found, cure):
    report = check_layer(make(), X)
    assert not report, report
    first = report.failures[0]
    assert first.name == CHECKS[check].title, report
    assert found in first.detail, report
    assert cure in first.cure, report


def test_a_cause_is_told_without_the_config_that_keras_appends():
    (first, *_) = check_layer(Unregistered(), X).failures
    assert first.detail.endswith("before trying to load them.")


def test_many_layers_in_one_process_bring_no_warning_of_retracing():
    warned = []
    handler = logging.Handler()
    handler.emit = lambda record: warned.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    try:
        for _ in range(6):  # TensorFlow warns at the fifth
            assert check_layer(Squares(), X, skip=set(CHECKS) - {"runs", "tf_function", "outer_tape", "xla"})
    finally:
        tf.get_logger().removeHandler(handler)
    assert warned == []
