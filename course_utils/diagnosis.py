"""Why a gradient is wrong: likely causes, cures for well-known exceptions, and the arguments of a check."""

from __future__ import annotations

import inspect
import numbers
import re

import ml_dtypes
import numpy as np
import tensorflow as tf

#: Part of an exception's message (a regular expression), and what to do about it.
CURES = {
    r"must accept keyword argument 'variables'": "the op reads a variable that is not an argument: pass "
    "tf.convert_to_tensor(variable) as an argument, or write grad(*dy, variables=None), which returns (input "
    "gradients, list of variable gradients)",
    r"expected to return \d+ gradients|returned too few gradients|Num gradients \d+ generated": "return one "
    "gradient for each positional argument, in their order, and None for one without",
    r"gradient for each variable|not enough values to unpack \(expected 2|can only concatenate list": "grad"
    " with `variables` returns two things: the input gradients, and a list of one gradient a variable",
    r"too many values to unpack \(expected 2|unsupported callable": "a custom-gradient function returns two "
    "things: the output, and the function grad",
    r"grad\w*\(\) (takes|missing)|<lambda>\(\) takes": "grad gets one upstream gradient for each output",
    r"expected to be a \w+ tensor but is a|must have the same (d)?type|incompatible with that of": "a "
    "constant of a fixed dtype meets the input's: tf.cast(constant, x.dtype)",
    r"no attribute 'numpy'": "use TensorFlow functions: a tensor in a traced function has no value yet",
    r"IndexedSlices": "the upstream gradient is sparse: start grad with dy = tf.convert_to_tensor(dy)",
}


#: Why an argument gets no gradient at all.
MISSING = (
    "missing gradient (None): grad returns None for it, or the path to it leaves TensorFlow "
    "(stop_gradient, numpy, an integer cast, a captured tensor)"
)


def epsilon(tensor) -> float:
    """Return the machine epsilon of a tensor's dtype."""
    return float(ml_dtypes.finfo(tensor.dtype.real_dtype.as_numpy_dtype).eps)


def sentence(error) -> str:
    """Return the type and the message of an exception on one line."""
    text = re.sub(r"^{{.*?}} |(?: \[Op:\w+\])? name: ?$", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:300]}"


def place(name, tensor, k) -> str:
    """Return an element of a tensor as text, such as `x[2, 0] = 1.5`; `k` counts complex parts."""
    array = np.asarray(tensor)
    index = np.unravel_index(k // (2 if array.dtype.kind == "c" else 1), array.shape)
    position = f"[{', '.join(map(str, index))}]" if index else ""
    value = complex(array[index]) if array.dtype.kind == "c" else float(array[index])
    return f"{name}{position} = {value:.6g}"


def cure_for(error) -> str:
    """Return what to do about an exception that an op raised; empty where it is not known."""
    return next((cure for pattern, cure in CURES.items() if re.search(pattern, str(error))), "")


def shape_cause(got, want) -> str:
    """Return why a gradient has shape `got` where the input has shape `want`."""
    got, want = tuple(got), tuple(want)
    padded = (1,) * (len(got) - len(want)) + want
    if len(padded) == len(got) and all(w in (1, g) for g, w in zip(got, padded, strict=True)):
        axes = [
            axis
            for axis, (g, w) in enumerate(zip(got, padded, strict=True))
            if g != w or axis < len(got) - len(want)
        ]
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
    effect = " Loss scaling and batch size change what this op does"
    powers = {0: "the upstream gradient is ignored: multiply by dy", 2: "the upstream gradient is squared"}
    powers[3] = "the upstream gradient is cubed"
    for power, text in powers.items():
        if np.allclose(scaled, factor**power * once, rtol=1e-3):
            return f"{text}.{effect}"
    if np.allclose(scaled, -factor * once, rtol=1e-3):
        return f"the absolute value of the upstream gradient is used.{effect}"
    if np.allclose(scaled, -once, rtol=1e-3):
        return f"only the sign or the direction of the upstream gradient is used (normalized?).{effect}"
    if np.any((once == 0) & (scaled != 0)) and np.all((once == 0) | (scaled == 0)):
        return f"upstream gradients of one sign are dropped.{effect}"
    if np.linalg.norm(scaled) < abs(factor) * np.linalg.norm(once):
        return f"the upstream gradient is clipped.{effect}"
    return f"the upstream gradient is used non-linearly.{effect}"


def likely_cause(g, x, k, shape, dy, truth, others) -> str:
    """Return the likely cause of a wrong gradient, found by trying what makes it right; empty if none.

    Args:
        g: The gradient, a flat vector.
        x: The argument, a flat vector.
        k: Where the gradient is wrong, an index into it.
        shape: The argument's shape.
        dy: The upstream gradient, a flat vector.
        truth: `Numerical` or `Declared`: it can judge any other candidate for the gradient.
        others: The gradients of the op's other arguments of this shape, by name.
    """
    if not np.any(g):
        return "no gradient: the backward pass returns zeros"
    if not np.isfinite(g).all():
        return "0·inf, 0/0 or an overflow: make the input safe before the division, root or exp (tf.where)"
    if truth.agrees(np.zeros_like(g)):
        return "piecewise constant, its derivative is 0: state the intent with surrogate="
    if truth.agrees(-g):
        return "sign flipped"
    for name, other in others.items():
        if truth.agrees(other):
            return f"swapped with the gradient of {name}"
    return (
        _rearranged(g, shape, truth)
        or _factor(g, shape, truth)
        or _copied(g, dy, shape)
        or _one_sided(g, x, k, truth)
    )


def _rearranged(g, shape, truth) -> str:
    if g.size != np.prod(shape):
        return "TensorFlow's complex gradient is dy times the conjugate of the derivative (tf.math.conj)"
    array = g.reshape(shape)
    if len(shape) > 1 and shape[-1] == shape[-2] and truth.agrees(np.swapaxes(array, -1, -2).ravel()):
        return "transposed"
    for axis, length in enumerate(shape):
        if length > 1 and truth.agrees(np.flip(array, axis).ravel()):
            return f"reversed along axis {axis}"
    return ""


def _factor(g, shape, truth) -> str:
    factor = truth.factor(g)
    if not factor or not np.isfinite(factor) or not truth.agrees(g / factor):
        return ""
    ratio, word = (factor, "too many") if abs(factor) > 1 else (1 / factor, "missing")
    if abs(ratio - round(ratio)) > 1e-3 * abs(ratio) or abs(ratio) < 1.5:
        # One number is a multiple of any other, so only a telling factor counts there.
        return f"constant factor: {factor:.6g} times the right gradient" if g.size > 1 else ""
    axes = [axis for axis, length in enumerate(shape) if length == round(abs(ratio))]
    size = f" ({round(ratio)} is the size of axis {axes[0]}: a mean taken for a sum?)" if axes else ""
    return f"constant factor: {abs(round(ratio))} {word}{' and sign flipped' if factor < 0 else ''}{size}"


def _copied(g, dy, shape) -> str:
    if g.size == dy.size and np.allclose(g, dy, rtol=1e-6):
        return "dy is passed through unchanged: the local derivative is missing (or state it: surrogate=)"
    if len(shape) > 1 and g.size == np.prod(shape):
        for axis, length in enumerate(shape):
            if length > 1 and np.ptp(g.reshape(shape), axis).max() == 0:
                return f"the same all along axis {axis}: averaged or summed over it"
    return ""


def _one_sided(g, x, k, truth) -> str:
    for text, right in {"negative": x > 0, "positive": x < 0}.items():
        rest = ~right & (np.arange(x.size) != k)  # one wrong element makes no rule
        if np.any(right) and np.any(rest) and truth.agrees(g, right) and not truth.agrees(g, rest):
            return f"only {text} inputs are wrong: look at the condition of that branch"
    return ""


def unused_upstream(gradient, dys) -> str:
    """Return which part of `dys` goes unused; `gradient` gives the flat gradient for such leaves."""
    for j in range(len(dys)) if len(dys) > 1 else ():
        if not np.any(gradient([dy if n == j else tf.zeros_like(dy) for n, dy in enumerate(dys)])):
            return f"the upstream gradient of output {j} is not used"
    rolled = [tf.reshape(tf.roll(tf.reshape(dy, [-1]), 1, 0), dy.shape) for dy in dys]
    if np.allclose(gradient(rolled), gradient(dys), rtol=1e-6):
        return "only the sum of the upstream gradient is used: dy belongs to its own element of the output"
    return ""


def check_options(op, surrogate, backward, order, rtol, seed) -> None:
    """Raise an error that names the first option of `check_gradient` that can't be used."""
    for name, value in {"op": op, "surrogate": surrogate, "backward": backward}.items():
        if not callable(value) and (name == "op" or value is not None):
            raise TypeError(f"{name} must be callable, got {value!r}")
    if surrogate and backward:
        raise ValueError("give surrogate or backward, not both: each states the whole intended gradient")
    for name, value, least in (("order", order, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if rtol is not None and (
        isinstance(rtol, bool) or not isinstance(rtol, numbers.Real) or not 0 < float(rtol) < 1
    ):
        raise ValueError(f"rtol must be a number between 0 and 1, or None, got {rtol!r}")


def check_inputs(op, inputs, variables) -> tuple[list, list[str]]:
    """Return the inputs as nested tensors and the names of all leaves and variables, or raise an error."""
    if not inputs:
        raise ValueError("inputs: give at least one input after op, such as check_gradient(op, x)")
    tensors: list = []
    names: list[str] = []
    for name, value in zip(_parameters(op, len(inputs)), inputs, strict=True):
        leaves = dict(_leaves(name, value))
        names += leaves
        tensors.append(
            tf.nest.pack_sequence_as(value, list(leaves.values())) if _nested(value) else leaves[name]
        )
    if isinstance(variables, str | tf.Variable) or not np.iterable(variables):
        raise TypeError(f"variables must be a list of tf.Variable or keras.Variable, got {variables!r}")
    for variable in variables:
        if not isinstance(variable, tf.Variable) and not isinstance(
            getattr(variable, "value", None), tf.Variable
        ):
            raise TypeError(f"variables must hold tf.Variable or keras.Variable objects, got {variable!r}")
        names.append(getattr(variable, "path", variable.name).removesuffix(":0"))
    floats = [t for t in tf.nest.flatten(tensors) if t.dtype.is_floating or t.dtype.is_complex]
    if not floats and not variables:
        raise ValueError("inputs: only integers, which get no gradient: give floats, such as 2.0 for 2")
    return tensors, names


def _parameters(op, count) -> list[str]:
    try:
        parameters = list(inspect.signature(op).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    return names + [f"input {i}" for i in range(len(names), count)]


def _nested(value) -> bool:
    """Return whether `value` is a structure of tensors; a list of numbers is one tensor."""
    if isinstance(value, list | tuple):
        return not all(isinstance(leaf, numbers.Number) for leaf in tf.nest.flatten(value))
    return isinstance(value, dict)


def _leaves(name, value):
    if not _nested(value):
        yield name, _tensor(name, value)
        return
    for key in sorted(value) if isinstance(value, dict) else range(len(value)):
        yield from _leaves(f"{name}[{key!r}]", value[key])


def _tensor(name, value):
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices):
        raise TypeError(
            f"{name} is a {type(value).__name__}: give a dense tensor, such as {name}.to_tensor()"
        )
    try:
        tensor = tf.convert_to_tensor(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a tensor, an array or a number, got {value!r}") from error
    if not (
        tensor.dtype.is_floating or tensor.dtype.is_complex or tensor.dtype.is_integer or tensor.dtype.is_bool
    ):
        raise TypeError(f"{name} has dtype {tensor.dtype.name}: give numbers, and pass options by a lambda")
    if not tf.executing_eagerly():
        raise ValueError("check_gradient needs values: call it outside tf.function")
    if tensor.shape.num_elements() == 0:
        raise ValueError(f"{name} is empty, shape {tuple(tensor.shape)}: give at least one element")
    values = np.asarray(tensor)
    bad = ~np.isfinite(values.astype(complex if values.dtype.kind == "c" else float))
    if np.any(bad):
        index = [int(i) for i in np.argwhere(bad)[0]]
        raise ValueError(f"{name} is {values[tuple(index)]} at {index}: give finite inputs")
    return tensor


def check_outputs(name, y) -> None:
    """Raise an error unless all outputs are dense tensors, at least one of them of floats."""
    leaves = tf.nest.flatten(y)
    for leaf in leaves:
        if not isinstance(leaf, tf.Tensor):
            raise TypeError(f"{name} must return tensors, got {type(leaf).__name__}: {str(leaf)[:80]}")


def check_declared(want, targets, n) -> list:
    """Return the declared gradients of all targets, None for none; raise an error where one does not fit."""
    if len(want) not in (n, len(targets)):
        raise ValueError(f"backward must return {n} gradients, one for each input, got {len(want)}")
    want = [*want, *[None] * (len(targets) - len(want))]
    for target, gradient in zip(targets, want, strict=True):
        if gradient is not None and tuple(np.shape(gradient)) != tuple(target.shape):
            raise ValueError(
                f"backward must return the shape {tuple(target.shape)}, got {tuple(np.shape(gradient))}"
            )
    return want
