"""Thin Keras layers over the ops: they hold options, weights and shapes, and call the op.

Every class is registered under the package name `course_utils`, so that a saved model finds it again as soon
as `course_utils.layers` is imported, and returns its constructor's options from `get_config`.
"""

from __future__ import annotations

import math

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
class ClipGradient(keras.layers.Layer):
    """Give the inputs back; the pseudo-gradient is clipped element by element (`ops.clip_gradient`).

    What it clips is the upstream gradient as it arrives: it depends on the batch size and, under
    `mixed_float16`, on the loss scale, which makes the bound tens of thousands of times too tight.

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
            constraint=lambda step: keras.ops.maximum(step, 1e-6),
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


@keras.saving.register_keras_serializable(package=PACKAGE)
class GradientProbe(keras.layers.Layer):
    """Change nothing, and keep the size of the gradient that came back through it (`ops.record_upstream`).

    Put it between two layers of a model: after each training step its weight `upstream` holds the size of
    the last upstream gradient. The weight is not trained. With a loss scale it sees the scaled gradient.

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


def _number(name: str, value, *, low: float = -math.inf, positive: bool = False) -> float:
    """Check a constructor's number and give it as a float, which a config can hold."""
    real = isinstance(value, (int, float)) and math.isfinite(value)
    if not real or not (value > 0 if positive else value >= low):
        least = f" of {low:g} or more" if low > -math.inf else ""
        raise ValueError(f"{name} is {value!r}: give a {'positive' if positive else 'finite'} number{least}")
    return float(value)
