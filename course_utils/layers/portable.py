"""A layer, and its op, that run on every backend of Keras: TensorFlow, JAX and PyTorch.

Nothing here imports a backend. What makes a custom gradient portable is told in notebook 12: operations of
`keras.ops` alone, a `grad` that takes both forms of call, every differentiable tensor as a positional
argument, plain Python options outside of the decorated function, and gradients returned as a tuple.
"""

from __future__ import annotations

import keras

from course_utils.layers._constraints import LowerBound
from course_utils.layers._package import PACKAGE


def pact(x, bound, bits=4):
    """Clip `x` to `[0, bound]` and round it to `2**bits` levels; both gradients are straight-through.

    Forward: `y = round(clip(x / bound, 0, 1) · n) · bound / n` with `n = 2**bits - 1`. Backward, a
    pseudo-gradient that leaves the rounding out: `dx = dy` where `0 <= x < bound`, else 0, and
    `dbound = sum(dy)` over all elements where `x >= bound`. It is the activation of Choi et al. (2018, "PACT:
    Parameterized Clipping Activation for Quantized Neural Networks", arXiv:1805.06085, section 3): a ReLU
    whose upper end is learned.

    Args:
        x: Tensor of any shape, of a floating-point dtype.
        bound: Upper end of the levels, a positive scalar tensor, a weight's `.value` or a number.
        bits: How many bits a level takes, an integer from 1 to 16.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `bits` is no integer from 1 to 16, or `bound` is no scalar.

    Example:
        >>> y = pact(keras.ops.array([-1.0, 0.4, 1.3, 9.0]), bound=3.0, bits=2)
        >>> keras.ops.convert_to_numpy(y).tolist()
        [0.0, 0.0, 1.0, 3.0]
    """
    levels = 2 ** _bits(bits) - 1
    x = keras.ops.convert_to_tensor(x)
    dtype = keras.backend.standardize_dtype(x.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise TypeError(f"x has dtype {dtype}, which has no gradient: cast it to a floating-point dtype")
    bound = keras.ops.cast(bound, dtype)
    if len(bound.shape) != 0:
        raise ValueError(f"bound has shape {tuple(bound.shape)}: give a scalar")

    @keras.ops.custom_gradient
    def op(x, bound):
        def grad(*args, upstream=None):
            # TensorFlow and JAX call grad(dy); PyTorch calls grad(x, bound, upstream=dy).
            dy = args[0] if upstream is None else upstream
            nothing = keras.ops.zeros_like(dy)
            inside = keras.ops.logical_and(x >= 0, x < bound)
            dbound = keras.ops.sum(keras.ops.where(x >= bound, dy, nothing))
            return keras.ops.where(inside, dy, nothing), dbound  # a tuple: PyTorch takes no list

        ratio = keras.ops.clip(x / bound, 0.0, 1.0)
        return keras.ops.round(ratio * levels) / levels * bound, grad

    return op(x, bound)


@keras.saving.register_keras_serializable(package=PACKAGE)
class PACT(keras.layers.Layer):
    """Clip and quantize the inputs up to a learned bound, on any backend (`pact`, a pseudo-gradient).

    The bound is one trainable weight; training keeps it above 1e-3. The authors advise to decay it as other
    weights are decayed, which `regularizer` does (Choi et al. 2018, as for `pact`). The inputs may have any
    shape; the outputs have the same.

    Args:
        bits: How many bits a level takes, an integer from 1 to 16.
        bound: The bound to start with, a positive number.
        regularizer: A regularizer for the bound, as for `keras.layers.Dense`.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Attributes:
        bound: The weight, a scalar.

    Raises:
        ValueError: `bits` is no integer from 1 to 16, or `bound` is not a positive number.

    Example:
        >>> layer = PACT(bits=2, bound=3.0)
        >>> keras.ops.convert_to_numpy(layer(keras.ops.array([[0.4, 1.3, 9.0]]))).tolist()
        [[0.0, 1.0, 3.0]]
        >>> [weight.name for weight in layer.trainable_weights]
        ['bound']
    """

    def __init__(self, bits=4, bound=6.0, regularizer=None, **kwargs):
        super().__init__(**kwargs)
        self.bits = _bits(bits)
        if not isinstance(bound, (int, float)) or not 0 < bound < float("inf"):
            raise ValueError(f"bound is {bound!r}: give a positive number")
        self.initial_bound = float(bound)
        self.regularizer = keras.regularizers.get(regularizer)

    def build(self, input_shape):
        """Make the weight; it does not depend on the shape of the inputs."""
        self.bound = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(self.initial_bound),
            regularizer=self.regularizer,
            constraint=LowerBound(1e-3),
            name="bound",
        )

    def call(self, inputs):
        """Apply `pact` to a float tensor of any shape; the result has its shape and dtype."""
        # The weight itself would fail in eager TensorFlow, and get no gradient in PyTorch.
        return pact(inputs, self.bound.value, self.bits)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: the op works on each element by itself."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again, at its first bound."""
        options = {"bits": self.bits, "bound": self.initial_bound}
        regularizer = keras.regularizers.serialize(self.regularizer)
        return {**super().get_config(), **options, "regularizer": regularizer}


def _bits(bits) -> int:
    if not isinstance(bits, int) or not 1 <= bits <= 16:
        raise ValueError(f"bits is {bits!r}: give an integer from 1 to 16")
    return bits
