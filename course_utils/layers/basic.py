"""Layers and an activation over single ops, and a probe for the gradient."""

from __future__ import annotations

import keras

from course_utils import ops
from course_utils.layers._package import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class CustomSquareLayer(keras.layers.Layer):
    """Square the inputs; the pseudo-gradient clips the local derivative (`ops.square_with_clipped_grad`).

    The inputs may have any shape and floating-point dtype; the outputs have the same.

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


@keras.saving.register_keras_serializable(package=PACKAGE)
class GradientProbe(keras.layers.Layer):
    """Change nothing, and keep the size of the gradient that came back through it (`ops.record_upstream`).

    Put it between two layers of a model: after each training step its weight `upstream` holds the size of
    the last upstream gradient. The weight is not trained. With a loss scale it sees the scaled gradient.

    The inputs may have any shape and floating-point dtype; the outputs have the same.

    Args:
        measure: `"norm"` for the square root of the sum of squares, `"max"` for the largest absolute value.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `measure` is neither of the two.

    Example:
        >>> probe = GradientProbe()
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3), probe, keras.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> history = model.fit(keras.ops.ones((4, 2)), 9 * keras.ops.ones((4, 1)), verbose=0)
        >>> float(probe.upstream) > 0
        True
    """

    def __init__(self, measure="norm", **kwargs):
        super().__init__(**kwargs)
        if measure not in ("norm", "max"):
            raise ValueError(f"measure is {measure!r}: give 'norm' or 'max'")
        self.measure = measure

    def build(self, input_shape):
        """Make the weight that holds the size."""
        # No autocast: mixed precision would read a float16 copy, to which nothing can be assigned.
        options = {"trainable": False, "dtype": "float32", "autocast": False}
        self.upstream = self.add_weight(shape=(), initializer="zeros", name="upstream", **options)

    def call(self, inputs):
        """Pass a float tensor of any shape on as it is."""
        return ops.record_upstream(inputs, self.upstream.value, self.measure)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        return {**super().get_config(), "measure": self.measure}
