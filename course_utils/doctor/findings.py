"""What a check finds: a problem or a note, told from two results or from an error of TensorFlow or Keras."""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf

_VARIABLES = (
    "pass the weight to the op as a positional argument, as tf.convert_to_tensor(self.w); "
    "or take variables=None in grad and return (input_gradients, [one gradient per variable])"
)
_COUNT = "return one gradient (or None) for each positional argument of the op, in order"
_PYTHON_IF = "use tf.where or tf.cond for values; bind Python options in a closure, not as arguments of the op"

#: A part of an error's message, and what to do about it.
CURES = (
    ("must accept keyword argument 'variables'", _VARIABLES),
    ("Must return gradient for each variable", _VARIABLES),
    ("can only concatenate list", "return the gradients of the variables as a list, not a tuple"),
    (
        "supports keywords arguments only when eager",
        "pass tensors to the op by position (eager silently drops the custom gradient when they come by keyword), "
        "and decorate an inner function, not `call`, which Keras calls with keywords",
    ),
    ("gradients, but returned", _COUNT),
    ("returned too few gradients", _COUNT),
    ("unsupported callable", "return (output, grad) from the decorated function"),
    ("too many values to unpack", "return (output, grad) from the decorated function"),
    ("as a Python", _PYTHON_IF),
    ("has no attribute 'numpy'", "use TensorFlow ops: in a graph a tensor has no value yet"),
    ("has no attribute 'name'", "return tensors from grad: tf.constant or tf.ones_like, no Python or NumPy number"),
    ("Incompatible shapes between op input and calculated input gradient", "end grad with the shape of its input"),
    ("Detected unsupported operations", "replace numpy_function, py_function and tf.print: XLA can't compile them"),
    ("does not match type", "build constants with dtype=x.dtype, or tf.cast them to it"),
    ("expected to be a", "build constants with dtype=x.dtype, or tf.cast them to it"),
    ("None values not supported", "the batch size is unknown in fit: use tf.shape(x)[0], not x.shape[0]"),
    ("IndexedSlices", "start grad with dy = tf.convert_to_tensor(dy)"),
    ("out of scope", "keep no tensor in an attribute or a global: it belongs to the trace that made it"),
    ("Could not locate", "register it: @keras.saving.register_keras_serializable(package=...)"),
    ("Python lambda", "use a registered function or a registered layer instead of a lambda"),
    ("pyfunc_", "replace numpy_function and py_function in grad: they do not outlive their process"),
    ("No gradient defined", "export with SaveOptions(experimental_custom_gradients=True), the default"),
)


class Problem(Exception):  # noqa: N818: it becomes a line of the report
    """What a check found: `detail`, and `cure` where the check knows better than its standing cure."""

    def __init__(self, detail: str, cure: str = ""):
        super().__init__(detail)
        self.detail, self.cure = detail, cure


class Note(Problem):
    """Something to know that is no fault."""


def explain(error: Exception) -> Problem:
    """Tell an error that the layer, TensorFlow or Keras raised, in one line, with the cure if it is a known one."""
    text = re.sub(r"\x1b\[\d+m", "", str(error))
    cure = next((cure for part, cure in CURES if part in text), "")
    text = " ".join(text.split("Arguments received by")[0].split())
    for opening in ("Error encountered: ", "call(). ", "}} "):
        text = text.split(opening)[-1]
    return Problem(f"{type(error).__name__}: {text[:240]}", cure)


def difference(before, after, rtol: float) -> str:
    """Return how the tensor `after` differs from `before`, relative to the largest value; "" when it does not."""
    if before is None or after is None:
        return "" if before is after else "is lost (None)" if after is None else "appeared (was None)"
    a, b = (tf.cast(tensor, tf.float64).numpy() for tensor in (before, after))
    if a.shape != b.shape:
        return f"has shape {b.shape}, not {a.shape}"
    wrong = ~(np.isfinite(b) | ~np.isfinite(a))
    if wrong.any():
        return f"is {b[wrong][0]} at {_index(wrong)}"
    error = np.nan_to_num(abs(a - b))
    if error.max(initial=0) <= rtol * np.nan_to_num(abs(a), posinf=0).max(initial=0) + 1e-30:
        return ""
    at = _index(error)
    return f"is {b[tuple(at)]:.6g}, not {a[tuple(at)]:.6g}, at {at}"


def _index(scores: np.ndarray) -> list[int]:
    return [int(i) for i in np.unravel_index(np.argmax(scores), scores.shape)]
