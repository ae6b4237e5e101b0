"""What a check finds: a problem or a note, told from two results or from an error of TensorFlow or Keras."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_COUNT = "return one gradient (or None) for each positional argument of the op, in order"
_DTYPE = "build constants with dtype=x.dtype, or tf.cast them to it"
_PAIR = "return (output, grad) from the decorated function"
_STATIC = "the batch size is unknown in fit: use tf.shape(x)[0], not x.shape[0]"
#: A part of an error's message, and what to do about it.
CURES = {
    "must accept keyword argument 'variables'": "pass the weight by position: tf.convert_to_tensor(self.w); "
    "or take variables=None in grad and return (input_gradients, [one gradient per variable])",
    "Must return gradient for each variable": "return (input_gradients, [one per variable]) from grad",
    "supports keywords arguments only when eager": "pass tensors by position (by keyword, eager "
    "silently drops the custom gradient); decorate an inner function, not `call`: Keras passes keywords",
    "gradients, but returned": _COUNT,
    "returned too few gradients": _COUNT,
    "unsupported callable": _PAIR,
    "too many values to unpack": _PAIR,
    "as a Python": "use tf.where or tf.cond for values; bind Python options in a closure, not as arguments",
    "has no attribute 'numpy'": "use TensorFlow ops: in a graph a tensor has no value yet",
    "has no attribute 'name'": "return tensors from grad, as tf.ones_like(x): no Python or NumPy numbers",
    "calculated input gradient": "end grad with the shape of its input",
    "Detected unsupported operations": "replace numpy_function, py_function, tf.print: XLA can't compile it",
    "does not match type": _DTYPE,
    "was expected to be a": _DTYPE,
    "None values not supported": _STATIC,
    "Failed to convert elements of [None": _STATIC,
    "'IndexedSlices'": "start grad with dy = tf.convert_to_tensor(dy)",
    "out of scope": "keep no tensor in an attribute or a global: it belongs to the trace that made it",
    "Could not locate": "register it: @keras.saving.register_keras_serializable(package=...)",
    "pyfunc_": "replace numpy_function and py_function in grad: they do not outlive their process",
}


class Problem(Exception):  # noqa: N818
    """What a check found: `detail`, and `cure` where the check knows better than its standing cure."""

    def __init__(self, detail: str, cure: str = "") -> None:
        super().__init__(detail)
        self.detail, self.cure = detail, cure


class Note(Problem):
    """Something to know that is no fault."""


def explain(error: Exception) -> Problem:
    """Tell in one line an error that the layer, TensorFlow or Keras raised, with its cure if known."""
    text = str(error).replace("\x1b[1m", "").replace("\x1b[0m", "").split("Arguments received by")[0]
    part = next((part for part in CURES if part in text), "")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    told = next(
        (line for line in lines if part and part in line),
        lines[-1 if "in user code" in text or "Traceback" in text else 0],
    )
    for opening in ("Error encountered: ", "call(). "):
        told = told.split(opening)[-1]
    prefix = "" if told.startswith(type(error).__name__) else f"{type(error).__name__}: "
    return Problem(prefix + told[:200], CURES.get(part, ""))


def difference(before, after, rtol: float, floor: float = 0.0) -> str:
    """Return how the tensor `after` differs from `before`, relative to the largest value; "" if not."""
    if before is None or after is None:
        return "" if before is after else "is lost (None)" if after is None else "appeared (was None)"
    a, b = (np.asarray(tf.cast(tensor, tf.float64)) for tensor in (before, after))
    if a.shape != b.shape:
        return f"has shape {b.shape}, not {a.shape}"
    error = np.where(np.isfinite(b) | ~np.isfinite(a), np.nan_to_num(abs(a - b)), np.inf)
    if error.max(initial=0) <= rtol * abs(a[np.isfinite(a)]).max(initial=0) + max(floor, 1e-30):
        return ""
    at = tuple(int(i) for i in np.unravel_index(np.argmax(error), error.shape))
    return f"is {b[at]:.6g}, not {a[at]:.6g}, at {list(at)}"
