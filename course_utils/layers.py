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
