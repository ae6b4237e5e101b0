"""Layers that give their inputs back and reshape the gradient on its way: clip, scale, reverse."""

from __future__ import annotations

import math

import keras

from course_utils import ops
from course_utils.layers._package import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class ClipGradient(keras.layers.Layer):
    """Give the inputs back; the pseudo-gradient is clipped element by element (`ops.clip_gradient`).

    What it clips is the upstream gradient as it arrives: it depends on the batch size and, under
    `mixed_float16`, on the loss scale, which makes the bound tens of thousands of times too tight.

    The inputs may have any shape and floating-point dtype; the outputs have the same.

    Args:
        bound: Largest absolute element of the gradient, a positive number.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `bound` is not a positive number.

    Example:
        >>> ClipGradient(bound=2.0)(keras.ops.array([[1.0, 3.0]])).numpy().tolist()
        [[1.0, 3.0]]
    """

    def __init__(self, bound=1.0, **kwargs):
        super().__init__(**kwargs)
        self.bound = _number("bound", bound, positive=True)

    def call(self, inputs):
        """Apply the op to a float tensor of any shape; the result has its shape and dtype."""
        return ops.clip_gradient(inputs, self.bound)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: the forward pass changes nothing."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        return {**super().get_config(), "bound": self.bound}


@keras.saving.register_keras_serializable(package=PACKAGE)
class ClipGradientByNorm(keras.layers.Layer):
    """Give the inputs back; the pseudo-gradient is shortened to a norm (`ops.clip_gradient_by_norm`).

    Like `ClipGradient` it depends on the batch size and on the loss scale; it keeps the direction.

    The inputs may have any shape and floating-point dtype; the outputs have the same.

    Args:
        bound: Largest norm, a positive number.
        axis: The axis, or the list of axes, that one norm goes over; by default all of them, the batch
            included. -1 gives each row of a `(batch, features)` tensor a norm of its own.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `bound` is not a positive number; when called, the inputs have no such axis.

    Example:
        >>> ClipGradientByNorm(bound=2.0, axis=-1)(keras.ops.array([[1.0, 3.0]])).numpy().tolist()
        [[1.0, 3.0]]
    """

    def __init__(self, bound=1.0, axis=None, **kwargs):
        super().__init__(**kwargs)
        self.bound = _number("bound", bound, positive=True)
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else axis

    def call(self, inputs):
        """Apply the op to a float tensor of any shape; the result has its shape and dtype."""
        return ops.clip_gradient_by_norm(inputs, self.bound, self.axis)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: the forward pass changes nothing."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        return {**super().get_config(), "bound": self.bound, "axis": self.axis}


@keras.saving.register_keras_serializable(package=PACKAGE)
class ScaleGradient(keras.layers.Layer):
    """Give the inputs back; the pseudo-gradient is multiplied by a factor (`ops.scale_gradient`).

    The inputs may have any shape and floating-point dtype; the outputs have the same.

    Args:
        factor: A finite number; 0 lets no gradient through.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `factor` is not a finite number.

    Example:
        >>> ScaleGradient(0.1)(keras.ops.array([[1.0, 3.0]])).numpy().tolist()
        [[1.0, 3.0]]
    """

    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        self.factor = _number("factor", factor)

    def call(self, inputs):
        """Apply the op to a float tensor of any shape; the result has its shape and dtype."""
        return ops.scale_gradient(inputs, self.factor)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: the forward pass changes nothing."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        return {**super().get_config(), "factor": self.factor}


@keras.saving.register_keras_serializable(package=PACKAGE)
class GradientReversal(keras.layers.Layer):
    """Give the inputs back; the pseudo-gradient is reversed, with a strength that can be scheduled.

    The rule is `ops.reverse_gradient`. The strength is a weight that is not trained: `layer.strength.assign`
    reaches a model that is traced already, and the value is saved with the model's weights.

    The inputs may have any shape and floating-point dtype; the outputs have the same.

    Args:
        strength: The strength to start with, a number of 0 or more.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Attributes:
        strength: The weight, a scalar.

    Raises:
        ValueError: `strength` is not a number of 0 or more.

    Example:
        >>> layer = GradientReversal(strength=0.0)
        >>> layer(keras.ops.array([[1.0, 3.0]])).numpy().tolist()
        [[1.0, 3.0]]
        >>> _ = layer.strength.assign(0.5)
        >>> layer.trainable_weights, float(layer.strength)
        ([], 0.5)
    """

    def __init__(self, strength=1.0, **kwargs):
        super().__init__(**kwargs)
        self.initial_strength = _number("strength", strength, low=0.0)
        start = keras.initializers.Constant(self.initial_strength)
        # Made here and not in build: a schedule may set it before the first call.
        self.strength = self.add_weight(shape=(), initializer=start, trainable=False, name="strength")

    def call(self, inputs):
        """Apply the op to a float tensor of any shape; the result has its shape and dtype."""
        return ops.reverse_gradient(inputs, self.strength)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: the forward pass changes nothing."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again, at its first strength."""
        return {**super().get_config(), "strength": self.initial_strength}


def _number(name: str, value, *, low: float = -math.inf, positive: bool = False) -> float:
    """Check a constructor's number and give it as a float, which a config can hold."""
    real = isinstance(value, (int, float)) and math.isfinite(value)
    if not real or not (value > 0 if positive else value >= low):
        least = f" of {low:g} or more" if low > -math.inf else ""
        raise ValueError(f"{name} is {value!r}: give a {'positive' if positive else 'finite'} number{least}")
    return float(value)
