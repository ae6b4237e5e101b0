"""What the ops share: checks of their arguments."""

from __future__ import annotations

import math
import numbers

import tensorflow as tf


def floating(x, name: str) -> tf.Tensor:
    """Turn `x` into a tensor; refuse one that has no gradient."""
    x = tf.convert_to_tensor(x)
    if not x.dtype.is_floating:
        raise TypeError(
            f"{name} has dtype {x.dtype.name}, which has no gradient: cast it to a floating-point dtype"
        )
    return x


def scalar(value, name: str, dtype, *, low: float = -math.inf, positive: bool = False) -> tf.Tensor:
    """Give an option as a scalar of `dtype` to which no gradient flows.

    Of a tensor or variable only the shape is known before a graph runs. A variable is read here: inside of
    the op `tf.custom_gradient` would ask for its gradient.

    Raises:
        ValueError: `value` is a number out of range or not finite, or a tensor that is no scalar.
    """
    if isinstance(value, numbers.Real):
        if not (float(value) > 0 if positive else math.isfinite(value) and float(value) >= low):
            least = f" of {low:g} or more" if low > -math.inf else ""
            raise ValueError(
                f"{name} is {value}: give {'a positive' if positive else 'a finite'} number{least}"
            )
        return tf.constant(value, dtype)  # tf.cast would round a number to float32 on its way to float64
    value = tf.convert_to_tensor(value)
    if value.shape.rank not in (0, None):
        raise ValueError(f"{name} has shape {tuple(value.shape)}: give a scalar")
    return tf.stop_gradient(tf.cast(value, dtype))
