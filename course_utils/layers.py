"""Thin Keras layers over the ops: they hold options, weights and shapes, and call the op.

Every class is registered under the package name `course_utils`, so that a saved model finds it again as soon
as `course_utils.layers` is imported, and returns its constructor's options from `get_config`.
"""

from __future__ import annotations

import keras

from course_utils import ops

PACKAGE = "course_utils"


@keras.saving.register_keras_serializable(package=PACKAGE)
class CustomSquareLayer(keras.layers.Layer):
    """Square the inputs; the pseudo-gradient clips the local derivative (`ops.square_with_clipped_grad`).

    Args:
        bound: Largest absolute local derivative, a positive number.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `bound` is not a positive number.

    Example:
        >>> layer = CustomSquareLayer(bound=2.0)
        >>> layer(keras.ops.array([[1.0, 3.0]])).numpy().tolist()
        [[1.0, 9.0]]
        >>> CustomSquareLayer.from_config(layer.get_config()).bound
        2.0
    """

    def __init__(self, bound=1.0, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(bound, (int, float)) or not bound > 0:
            raise ValueError(f"bound is {bound!r}: give a positive number")
        self.bound = float(bound)

    def call(self, inputs):
        """Apply the op to a float tensor of any shape; the result has its shape and dtype."""
        return ops.square_with_clipped_grad(inputs, self.bound)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: the op works on each element by itself."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        return {**super().get_config(), "bound": self.bound}


@keras.saving.register_keras_serializable(package=PACKAGE)
class QuantizeLayer(keras.layers.Layer):
    """Round the inputs to `2**bits` levels; a straight-through pseudo-gradient (`ops.quantize`).

    Args:
        bits: How many bits a level takes, an integer from 2 to 16.
        step: Distance of two levels, a positive number.
        window: Where the gradient passes, as a multiple of the range of the levels; a positive number, or
            `math.inf` for everywhere.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `bits` is no integer from 2 to 16, or `step` or `window` is not a positive number.

    Example:
        >>> layer = QuantizeLayer(bits=3, step=0.5)
        >>> layer(keras.ops.array([[0.3, 9.0]])).numpy().tolist()
        [[0.5, 1.5]]
        >>> QuantizeLayer.from_config(layer.get_config()).step
        0.5
    """

    def __init__(self, bits=4, step=0.25, window=1.0, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(bits, int) or not 2 <= bits <= 16:
            raise ValueError(f"bits is {bits!r}: give an integer from 2 to 16")
        for name, value in (("step", step), ("window", window)):
            if not isinstance(value, (int, float)) or not value > 0:
                raise ValueError(f"{name} is {value!r}: give a positive number")
        self.bits, self.step, self.window = bits, float(step), float(window)

    def call(self, inputs):
        """Apply the op to a float tensor of any shape; the result has its shape and dtype."""
        return ops.quantize(inputs, self.bits, self.step, self.window)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: the op works on each element by itself."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        options = {"bits": self.bits, "step": self.step, "window": self.window}
        return {**super().get_config(), **options}
