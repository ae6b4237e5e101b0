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
def clipped_square(x):
    """Square `x`, as an activation function; the pseudo-gradient clips the local derivative to `[-1, 1]`.

    A plain function around `ops.square_with_clipped_grad`: Keras saves a registered function by its name, and
    cannot load a function that `tf.custom_gradient` made. For another bound take `CustomSquareLayer`.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.

    Example:
        >>> dense = keras.layers.Dense(2, activation=clipped_square)
        >>> dense.get_config()["activation"]["config"]
        'course_utils>clipped_square'
    """
    return ops.square_with_clipped_grad(x)
