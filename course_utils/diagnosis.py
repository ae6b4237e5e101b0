"""Why a gradient is wrong: likely causes, and cures for the exceptions that ops and layers raise."""

from __future__ import annotations

import re

import numpy as np

#: Part of an exception's message (a regular expression), and what to do about it.
CURES = {
    "must accept keyword argument 'variables'": "pass the weight by position and as a tensor, not self.w but "
    "tf.convert_to_tensor(self.w); "
    "or take variables=None in grad and return (input gradients, [one gradient per variable])",
    "gradient for each variable|not enough values to unpack|can only concatenate list": "a grad with "
    "variables returns two things: the input gradients, and a list of one gradient per variable",
    r"gradients, but returned|returned too few gradients|Num gradients \d+ generated": "return one gradient "
    "for each positional argument of the op, in order, and None for one without",
    "too many values to unpack|unsupported callable": "return (output, grad) from the decorated function",
    r"grad\w*\(\) (takes|missing)|<lambda>\(\) takes": "grad gets one upstream gradient for each output",
    "supports keywords arguments only when eager": "pass tensors by position (by keyword, eager silently "
    "drops the custom gradient); decorate an inner function, not `call`: Keras passes keywords",
    "as a Python": "use tf.where or tf.cond for values; bind Python options in a closure, not as arguments",
    "has no attribute 'numpy'": "use TensorFlow ops: in a traced function a tensor has no value yet",
    "has no attribute 'name'": "return tensors from grad, as tf.ones_like(x): no Python or NumPy numbers",
    "calculated input gradient": "end grad with the shape of its input",
    "Detected unsupported operations": "replace numpy_function, py_function, tf.print: XLA can't compile it",
    r"does not match type|expected to be a|must have the same (d)?type|incompatible with that of": "build "
    "constants with dtype=x.dtype, or tf.cast them to it: one of a fixed dtype meets the input's",
    r"None values not supported|Failed to convert elements of \[None": "the batch size is unknown in fit: "
    "use tf.shape(x)[0], not x.shape[0]",
    "IndexedSlices": "the upstream gradient is sparse: start grad with dy = tf.convert_to_tensor(dy)",
    "out of scope": "keep no tensor in an attribute or a global: it belongs to the trace that made it",
    "Could not locate": "register it: @keras.saving.register_keras_serializable(package=...)",
    "pyfunc_": "replace numpy_function and py_function in grad: they do not outlive their process",
}

#: TensorFlow does so in `tf.linalg.cholesky` and what is made of it.
TRIANGLE = (
    "the op reads the lower triangle and shares its gradient with the upper one, as is right for symmetric "
    "inputs: check lambda a: op((a + tf.linalg.matrix_transpose(a)) / 2)"
)


def explain(error) -> tuple[str, str]:
    """Return an exception of an op, TensorFlow or Keras on one line, and its cure, empty if not known."""
    noise = r"\x1b\[\d+m|(Arguments received by|Full object config:).*"
    text = re.sub(noise, "", str(error), flags=re.DOTALL)
    text = re.sub(r"(?<=[\w,])\n(?=[a-z])", " ", text)  # Keras wraps some sentences
    found = next(filter(None, (re.search(pattern, text) for pattern in CURES)), None)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # Keras's headline says only which layer it was.
    lines = [line for line in lines if not line.endswith(".call().")] or [""]
    told = lines[-1 if "in user code" in text or "Traceback" in text else 0]
    if found:
        told = next((line for line in lines if re.search(found.re, line)), told)
    told = re.sub(r"^.*(Error encountered: |call\(\)\. )|^{{.*?}} |(?: \[Op:\w+\])? name: ?$", "", told)
    kind = type(error).__name__
    told = told[:300] if told.startswith(kind) else f"{kind}: {told[:300]}"
    return told, CURES[found.re.pattern] if found else ""


def shape_cause(got, want) -> str:
    """Return why a gradient has shape `got` where the input has shape `want`."""
    new = len(got) - len(want)
    padded = (1,) * new + want
    if len(padded) == len(got) and all(w in (1, g) for g, w in zip(got, padded, strict=True)):
        axes = [axis for axis, g in enumerate(got) if g != padded[axis] or axis < new]
        return (
            f"not summed over the broadcast axis: tf.reduce_sum over {axes}, tf.reshape to the input's shape"
        )
    if got == want[::-1]:
        return "transposed: tf.transpose it, or swap the factors of the matrix product"
    if np.prod(got) == np.prod(want):
        return "right number of elements, wrong shape: tf.reshape(gradient, tf.shape(x))"
    return "an optimizer may broadcast it without complaint: return the shape of the input"


def upstream_cause(once, scaled, factor) -> str:
    """Return how a backward pass misuses `dy`, from its gradients for `dy` and for `factor · dy`."""
    ways = [
        (scaled, once, "the upstream gradient is ignored: multiply by dy"),
        (scaled, factor**2 * once, "the upstream gradient is squared"),
        (scaled, factor**3 * once, "the upstream gradient is cubed"),
        (scaled, -factor * once, "the absolute value of the upstream gradient is used"),
        (scaled, -once, "only the sign or the direction of the upstream gradient is used (normalized?)"),
        (scaled * once, 0, "upstream gradients of one sign are dropped"),
    ]
    way = next((text for got, want, text in ways if np.allclose(got, want, rtol=1e-3, atol=0)), "")
    if not way:
        clipped = np.linalg.norm(scaled) < abs(factor) * np.linalg.norm(once)
        way = f"the upstream gradient is {'clipped' if clipped else 'used non-linearly'}"
    return f"{way}. Loss scaling and batch size change what this op does"


def likely_cause(g, x, k, shape, dy, truth, others, output_shape=()) -> str:
    """Return the likely cause of a wrong gradient, found by trying what makes it right; empty if none.

    Args:
        g: The gradient, a flat vector.
        x: The argument, a flat vector.
        k: Where the gradient is wrong, an index into it.
        shape: The shape of the argument.
        dy: The upstream gradient, a flat vector.
        truth: `Numerical` or `Declared`: it can judge any other candidate for the gradient.
        others: The gradients of the op's other arguments of this shape, by name.
        output_shape: The shape of the op's output.
    """
    if not np.any(g):
        return "no gradient: the backward pass returns zeros"
    if not np.isfinite(g[k]):
        return "0·inf, 0/0 or an overflow: make the input safe before the division, root or exp (tf.where)"
    g = np.nan_to_num(g, posinf=0, neginf=0)
    if g.size != np.prod(shape):
        return "TensorFlow's complex gradient is dy times the conjugate of the derivative (tf.math.conj)"
    mended = [*_mended(g.reshape(shape), others), _factor(g, k, shape, truth, output_shape)]
    cause = next((text for other, text in mended if truth.agrees(np.ravel(other))), "")
    return cause or _pattern(g, x, k, shape, dy, truth)


def _mended(g, others):
    """Yield gradients that may be right, each with the fault that made `g` of it."""
    yield np.zeros_like(g), "piecewise constant, its derivative is 0: state the intent with surrogate="
    yield -g, "sign flipped"
    for name, other in others.items():
        yield other, f"swapped with the gradient of {name}"
    if g.ndim > 1 and g.shape[-1] == g.shape[-2]:
        turned = np.swapaxes(g, -1, -2)
        yield turned, "transposed"
        lower = np.tril(g + turned) - g * np.eye(g.shape[-1])
        yield lower, TRIANGLE
    for axis in range(g.ndim):
        yield np.flip(g, axis), f"reversed along axis {axis}"


def _factor(g, k, shape, truth, output_shape):
    """Return `g` without the factor that it has at k, and that factor in words."""
    right = truth.right(k)
    factor = g[k] / right if right else 0.0
    if not factor or not np.isfinite(factor):
        return np.full_like(g, np.nan), ""
    ratio, word = (factor, "too many") if abs(factor) > 1 else (1 / factor, "missing")
    whole = round(ratio)
    if abs(ratio - whole) > 1e-3 * abs(ratio) or abs(whole) < 2:
        # One number is a multiple of any other, so only a telling factor counts there.
        return g / factor, f"constant factor: {factor:.6g} times the right gradient" if g.size > 1 else ""
    text = f"constant factor: {abs(whole)} {word}{' and sign flipped' if factor < 0 else ''}"
    if whole in shape:
        text += f" ({whole} is the size of axis {shape.index(whole)}: a mean taken for a sum?)"
    elif whole in output_shape:  # a bias is shared by a batch that its own shape does not show
        axis = output_shape.index(whole)
        text += f" ({whole} is the size of axis {axis} of the output: a mean taken for a sum?)"
    return (g / whole if word == "too many" else g * whole), text


def _pattern(g, x, k, shape, dy, truth) -> str:
    if g.size == dy.size and np.allclose(g, dy, rtol=1e-6):
        return "dy is passed through unchanged: the local derivative is missing (or state it: surrogate=)"
    for axis, length in enumerate(shape):
        if len(shape) > 1 and length > 1 and np.ptp(g.reshape(shape), axis).max() == 0:
            return f"the same all along axis {axis}: averaged or summed over it"
    for text, right in {"negative": x > 0, "positive": x < 0}.items():
        rest = ~right & (np.arange(x.size) != k)  # one wrong element makes no rule
        if np.any(right) and np.any(rest) and truth.agrees(g, right) and not truth.agrees(g, rest):
            return f"only {text} inputs are wrong: look at the condition of that branch"
    return ""


def unused_upstream(gradient, dy, parts) -> str:
    """Return which of the `parts` of `dy` goes unused, from the function that gives its gradient."""
    for j in range(len(parts)) if len(parts) > 1 else ():
        alone = [part * (n == j) for n, part in enumerate(parts)]
        if not np.any(gradient(np.concatenate(alone))):
            return f"the upstream gradient of output {j} is not used"
    if np.allclose(gradient(np.roll(dy, 1)), gradient(dy), rtol=1e-6):
        return "only the sum of the upstream gradient is used: dy belongs to its own element of the output"
    return ""
