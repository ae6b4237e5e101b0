"""A layer whose output is a fixed point, and whose gradient is that of the solution."""

from __future__ import annotations

import keras

from course_utils import ops
from course_utils.layers._package import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class FixedPointLayer(keras.layers.Layer):
    """Give the state `z` that reproduces itself: `z = activation(z @ w + inputs @ kernel + bias)`.

    One layer with the depth of as many as it takes, and the memory of one: a small deep equilibrium model
    (Bai, Kolter and Koltun 2019, "Deep Equilibrium Models", section 3). `ops.fixed_point` solves it and gives
    the gradient by the implicit function theorem. `w` is the weight `recurrent_kernel`, each of its columns
    shortened to a sum of absolute values of at most `contraction`: then there is one solution, and each step
    comes closer to it by that factor (Banach's fixed-point theorem, in the maximum norm).

    Args:
        units: How many elements a state has, 1 or more.
        activation: As for `keras.layers.Dense`; its slope must nowhere be beyond -1 and 1, as for tanh,
            relu and sigmoid.
        contraction: Above 0 and below 1. The closer to 1, the farther a state reaches, and the more steps it
            takes.
        tolerance: As for `ops.fixed_point`.
        max_steps: As for `ops.fixed_point`.
        kernel_initializer: As for `keras.layers.Dense`; for both kernels.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `units` or `max_steps` is no integer of 1 or more, `contraction` is not between 0 and 1,
            or `tolerance` is not positive.

    Example:
        >>> layer = FixedPointLayer(3)
        >>> x = keras.ops.ones((2, 4))
        >>> layer(x).shape, float(layer.residual(x)) < 1e-5
        (TensorShape([2, 3]), True)
    """

    def __init__(
        self,
        units,
        activation="tanh",
        contraction=0.8,
        tolerance=None,
        max_steps=1000,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value in (("units", units), ("max_steps", max_steps)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}: give an integer of 1 or more")
        if not 0 < contraction < 1:
            raise ValueError(f"contraction is {contraction!r}: give a number between 0 and 1")
        if tolerance is not None and not tolerance > 0:
            raise ValueError(f"tolerance is {tolerance!r}: give a positive number or None")
        self.units, self.contraction, self.tolerance, self.max_steps = (
            units,
            contraction,
            tolerance,
            max_steps,
        )
        self.activation = keras.activations.get(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    def build(self, input_shape):
        """Make both kernels and the bias for inputs with `input_shape[-1]` features."""
        features, initializer = input_shape[-1], self.kernel_initializer
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: features})
        self.kernel = self.add_weight(shape=(features, self.units), initializer=initializer, name="kernel")
        self.recurrent_kernel = self.add_weight(
            shape=(self.units, self.units), initializer=initializer, name="recurrent_kernel"
        )
        self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def call(self, inputs):
        """Map a float tensor of shape `(..., features)` to `(..., units)`."""
        drive, w = self._drive(inputs), self._contracting()
        start = keras.ops.zeros_like(drive)
        return ops.fixed_point(
            self._step, start, drive, w, tolerance=self.tolerance, max_steps=self.max_steps
        )

    def residual(self, inputs):
        """Give the largest `|step(z) - z|`: how far the result is from reproducing itself, a scalar.

        Args:
            inputs: Tensor of shape `(batch, ..., features)`, as for the layer itself.
        """
        z = self(inputs)
        return keras.ops.max(keras.ops.abs(self._step(z, self._drive(inputs), self._contracting()) - z))

    def _step(self, z, drive, w):
        return self.activation(keras.ops.matmul(z, w) + drive)

    def _drive(self, inputs):
        return keras.ops.matmul(inputs, self.kernel) + self.bias

    def _contracting(self):
        w = keras.ops.convert_to_tensor(self.recurrent_kernel.value)
        sums = keras.ops.sum(keras.ops.abs(w), axis=0)
        return w * (self.contraction / keras.ops.maximum(sums, self.contraction))

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs with `units` in the last place."""
        return (*input_shape[:-1], self.units)

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        options = {
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "contraction": self.contraction,
            "tolerance": self.tolerance,
            "max_steps": self.max_steps,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
        return {**super().get_config(), **options}
