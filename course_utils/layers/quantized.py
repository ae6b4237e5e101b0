"""Layers that quantize, and are trained through."""

from __future__ import annotations

import keras

from course_utils import ops
from course_utils.layers._constraints import LowerBound
from course_utils.layers._package import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class QuantizeLayer(keras.layers.Layer):
    """Round the inputs to `2**bits` levels; a straight-through pseudo-gradient (`ops.quantize`).

    The inputs may have any shape and floating-point dtype; the outputs have the same.

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


@keras.saving.register_keras_serializable(package=PACKAGE)
class LSQDense(keras.layers.Layer):
    """A dense layer whose kernel is quantized with a learned step (`ops.lsq_quantize`, a pseudo-gradient).

    The kernel itself stays in floating point and is what the optimizer trains; the outputs are
    `activation(inputs @ lsq_quantize(kernel, step) + bias)`. With `n` for the size of the kernel and `high`
    for its highest level, the step starts at `2 · mean|kernel| / sqrt(high)`, and its gradient is scaled by
    `1 / sqrt(n · high)` (Esser et al., "Learned Step Size Quantization", ICLR 2020, sections 2.1 and 2.2).
    Training keeps the step above 1e-6. To start from a trained kernel, assign it and call `reset_step`.

    Args:
        units: How many outputs, 1 or more.
        bits: How many bits a level of the kernel has, an integer, 2 or more.
        activation: As for `keras.layers.Dense`.
        use_bias: Whether to add a bias, which is not quantized.
        kernel_initializer: As for `keras.layers.Dense`.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: `units` or `bits` is no integer or too small.

    Example:
        >>> layer = LSQDense(2, bits=3, kernel_initializer="ones")
        >>> layer(keras.ops.ones((5, 4))).shape
        TensorShape([5, 2])
        >>> print(f"{float(layer.step):.4f}")  # 2 · 1 / sqrt(3)
        1.1547
    """

    def __init__(
        self,
        units,
        bits=4,
        activation=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, value, least in (("units", units, 1), ("bits", bits, 2)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is {value!r}: give an integer of {least} or more")
        self.units, self.bits, self.use_bias = units, bits, use_bias
        self.activation = keras.activations.get(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    @property
    def _high(self) -> int:
        return 2 ** (self.bits - 1) - 1

    def build(self, input_shape):
        """Make kernel, step and bias for inputs with `input_shape[-1]` features."""
        features = input_shape[-1]
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: features})
        # No autocast: levels are computed in the dtype of the weights, and the result is cast.
        self.kernel = self.add_weight(
            shape=(features, self.units), initializer=self.kernel_initializer, autocast=False, name="kernel"
        )
        self.step = self.add_weight(
            shape=(),
            initializer=lambda shape, dtype: keras.ops.cast(self._first_step(), dtype),
            constraint=LowerBound(1e-6),
            autocast=False,
            name="step",
        )
        if self.use_bias:
            self.bias = self.add_weight(shape=(self.units,), initializer="zeros", name="bias")

    def _first_step(self):
        mean = keras.ops.mean(keras.ops.abs(self.kernel))
        return keras.ops.maximum(2.0 * mean / self._high**0.5, 1e-6)

    def reset_step(self):
        """Set the step to its starting value for the kernel as it is now."""
        self.step.assign(self._first_step())

    def call(self, inputs):
        """Map a float tensor of shape `(..., features)` to `(..., units)`."""
        size = self.kernel.shape[0] * self.units
        scale = 1.0 / (size * self._high) ** 0.5
        kernel = ops.lsq_quantize(self.kernel.value, self.step.value, self.bits, grad_scale=scale)
        outputs = keras.ops.matmul(inputs, keras.ops.cast(kernel, self.compute_dtype))
        return self.activation(outputs + self.bias if self.use_bias else outputs)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs with `units` in the last place."""
        return (*input_shape[:-1], self.units)

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        return {
            **super().get_config(),
            "units": self.units,
            "bits": self.bits,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
