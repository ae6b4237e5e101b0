"""Wrong answers to the exercises of notebook 07."""

import keras
import tensorflow as tf

from course_utils.ops import square_with_clipped_grad

register = keras.saving.register_keras_serializable(package="wrong")


def identity(backward):
    """Make an identity with a backward pass `backward(dy)`."""

    @tf.custom_gradient
    def op(x):
        return tf.identity(x), backward

    return op


# --- scaled_gradient ------------------------------------------------------------------------------


class Scaled(keras.layers.Layer):
    """A right layer, not registered; each mistake changes one part of it."""

    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, inputs):
        return identity(lambda dy: self.factor * dy)(inputs)

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


@register
class OptionForgotten(Scaled):
    def get_config(self):
        return keras.layers.Layer.get_config(self)


@register
class NoGetConfig(keras.layers.Layer):
    def __init__(self, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    call = Scaled.call


@register
class BaseConfigForgotten(Scaled):
    def get_config(self):
        return {"factor": self.factor}


@register
class NoKwargs(Scaled):
    def __init__(self, factor=1.0, name=None, dtype=None):
        super().__init__(factor, name=name, dtype=dtype)


@register
class NotScaled(Scaled):
    def call(self, inputs):
        return tf.identity(inputs)


@register
class ScalesForward(Scaled):
    def call(self, inputs):
        return self.factor * inputs


# --- leaky_backward -------------------------------------------------------------------------------


@tf.custom_gradient
def leaky_op(x):
    return tf.nn.relu(x), lambda dy: tf.where(x > 0, dy, 0.1 * dy)


def unregistered(x):
    return leaky_op(x)


@register
def plain_relu(x):
    return tf.nn.relu(x)


@register
def leaky_relu(x):
    return tf.nn.leaky_relu(x, alpha=0.1)


@register
@tf.custom_gradient
def identity_gradient(x):
    return tf.nn.relu(x), lambda dy: dy


# --- mend_percent ---------------------------------------------------------------------------------


@register
class Percent(keras.layers.Layer):
    """As the notebook has it: both faults."""

    def __init__(self, percent=100.0, **kwargs):
        super().__init__(**kwargs)
        self.bound = percent / 100

    def call(self, inputs):
        return square_with_clipped_grad(inputs, self.bound)

    def get_config(self):
        return {"percent": self.bound}


@register
class SecondFaultOnly(Percent):
    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "percent": self.bound}


@register
class FirstFaultOnly(Percent):
    def get_config(self):
        return {"percent": 100 * self.bound}


@register
class UnitChanged(Percent):
    def __init__(self, percent=100.0, **kwargs):
        super().__init__(100 * percent, **kwargs)

    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "percent": self.bound}


@register
class OptionDropped(Percent):
    def get_config(self):
        return keras.layers.Layer.get_config(self)


@register
class TwiceTooMuch(Percent):
    def get_config(self):
        return {**keras.layers.Layer.get_config(self), "percent": 100 * 100 * self.bound}


WRONG = {
    "scaled_gradient": {
        "not registered": (Scaled, "register_keras_serializable"),
        "option forgotten": (OptionForgotten, "the default came back"),
        "no get_config": (NoGetConfig, "not the present one"),
        "base config forgotten": (BaseConfigForgotten, "name and dtype are missing"),
        "no **kwargs": (NoKwargs, "must pass **kwargs on"),
        "not scaled": (NotScaled, "the gradient is not scaled"),
        "scales the forward pass": (ScalesForward, "must leave x alone"),
        "a layer, not the class": (Scaled(), "give the class itself"),
    },
    "leaky_backward": {
        "the op itself": (leaky_op, "an object of class Bind"),
        "the op itself, registered": (identity_gradient, "the gradient of the identity"),
        "a lambda": (lambda x: leaky_op(x), "a lambda is not loaded"),
        "not registered": (unregistered, "put @keras.saving.register_keras_serializable on it"),
        "plain ReLU": (plain_relu, "gradient of a plain ReLU"),
        "leaky ReLU": (leaky_relu, "this is a leaky ReLU"),
    },
    "mend_percent": {
        "as it was": (Percent, "each reload divides by 100 once more"),
        "base config mended only": (SecondFaultOnly, "each reload divides by 100 once more"),
        "percent mended only": (FirstFaultOnly, "leaves out what every layer has"),
        "percent is the bound": (UnitChanged, "no longer a percentage"),
        "option dropped": (OptionDropped, "the default came back"),
        "multiplied twice": (TwiceTooMuch, "each reload multiplies by 100"),
    },
}
