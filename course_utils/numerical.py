"""Vector-Jacobian products, and what they are held against: a numerical derivative or a declared gradient.

The two truths, `Declared` and `Numerical`, judge flat vectors of float64; a complex number counts as its two
parts, so that its elements have a last index 0 (real) or 1 (imaginary).
"""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import tensorflow as tf


def tf_variable(variable) -> tf.Variable:
    """Return the `tf.Variable` of a TensorFlow or Keras variable."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def differentiable(tensor) -> bool:
    """Return whether a tensor or variable can have a gradient: floats and complex numbers."""
    return tensor.dtype.is_floating or tensor.dtype.is_complex


def vjp(op, inputs, dy, variables=()) -> list:
    """Return the vector-Jacobian products `dyᵀ J`: what the backward pass of `op` gives for `dy`.

    Args:
        op: Callable that takes `*inputs` and returns a tensor or a nested structure of tensors.
        inputs: Sequence of the op's arguments: tensors, or nested lists and dicts of tensors.
        dy: Upstream gradient, with the structure, shapes and dtypes of the op's output.
        variables: `tf.Variable` or `keras.Variable` objects that the op reads.

    Returns:
        List of tensors: the gradients of the leaves of `inputs` (`tf.nest` order), then of `variables`.
        None stands where no gradient arrives, as it does for every integer.

    Example:
        >>> vjp(tf.square, [tf.constant([1.0, 2.0])], dy=tf.constant([1.0, 10.0]))[0].numpy().tolist()
        [2.0, 40.0]
    """
    inputs = tf.nest.map_structure(tf.convert_to_tensor, list(inputs))
    sources = [*tf.nest.flatten(inputs), *map(tf_variable, variables)]
    watched = list(filter(differentiable, sources))
    with tf.GradientTape() as tape:
        tape.watch(watched)
        y = op(*inputs)
    pairs = zip(tf.nest.flatten(y), tf.nest.flatten(dy), strict=True)
    targets, upstream = zip(*(pair for pair in pairs if differentiable(pair[0])), strict=True)
    found = iter(tape.gradient(list(targets), watched, output_gradients=list(upstream)))
    gradients = [next(found) if differentiable(source) else None for source in sources]
    return [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]


def slope(phi, h) -> tuple:
    """Return the derivative of a function of one number at 0, with its error bar.

    Two central differences, with steps `h` and `h / 2`, and their Richardson extrapolation; the bar is the
    difference between the two (Press et al., "Numerical Recipes", 3rd edition, 2007, section 5.7).

    Args:
        phi: Callable of one float, which gives a float or a float64 array.
        h: The larger step, a positive float.

    Returns:
        The derivative and the error bar, each of the shape and dtype of what `phi` gives.

    Example:
        >>> derivative, bar = slope(np.exp, 1e-3)
        >>> bool(abs(derivative - 1) < bar < 1e-6)
        True
    """
    coarse, fine = ((phi(t) - phi(-t)) / (2 * t) for t in (h, h / 2))
    return (4 * fine - coarse) / 3, abs(fine - coarse)


def epsilon(dtype) -> float:
    """Return the machine epsilon of a dtype."""
    return float(ml_dtypes.finfo(dtype.real_dtype.as_numpy_dtype).eps)


def flat(tensor) -> np.ndarray:
    """Return the elements of a tensor as a float64 vector; complex numbers become pairs."""
    array = np.asarray(tensor)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64).ravel().view(np.float64)


def unflat(vector, like) -> tf.Tensor:
    """Return the tensor of the shape and dtype of `like` that has the elements `vector`."""
    array = vector.view(np.complex128 if like.dtype.is_complex else np.float64)
    with np.errstate(over="ignore"):
        return tf.constant(array.reshape(like.shape).astype(like.dtype.as_numpy_dtype))


def resolution(*vectors) -> float:
    """Return the machine epsilon of the arithmetic behind `vectors`: float32's where it holds them all."""
    values = np.concatenate(vectors)
    with np.errstate(over="ignore"):
        held = np.array_equal(values, values.astype(np.float32), equal_nan=True)
    return float(np.finfo(np.float32 if held and np.any(values) else np.float64).eps)


class OpError(Exception):
    """The op under test raised: the message is the stage, the cause is what it raised."""


class FlatOp:
    """An op as a function of flat vectors, one for each of its inputs and variables, to one flat vector."""

    def __init__(self, op, leaves, variables=()) -> None:
        self.op, self.leaves, self.variables = op, leaves, variables
        self.targets, self.size = [*leaves, *variables], 0
        self.start = [flat(target) for target in self.targets]

    def place(self, at) -> list:
        """Return the vectors as inputs; the variables get their values."""
        pairs = zip(at, self.targets, strict=True)
        tensors = [unflat(vector, target) if differentiable(target) else target for vector, target in pairs]
        for variable, value in zip(self.variables, tensors[len(self.leaves) :], strict=True):
            variable.assign(value)
        return tensors[: len(self.leaves)]

    def __call__(self, at) -> np.ndarray:
        """Return all outputs; `outputs` holds them as the op returned them."""
        self.outputs = self._attempt("forward pass", self.op, *self.place(at))
        outputs = tf.nest.flatten(self.outputs)
        for y in outputs:
            if not isinstance(y, tf.Tensor):
                raise TypeError(f"op must return tensors, got {type(y).__name__}: {str(y)[:80]}")
            if not (differentiable(y) or y.dtype.is_integer or y.dtype.is_bool):
                raise TypeError(f"op must return numbers, got {y.dtype.name}")
        if not any(differentiable(y) and tf.size(y) for y in outputs):
            raise TypeError(f"op must return a float tensor with elements, got {str(self.outputs)[:80]}")
        vector = np.concatenate([flat(y) for y in outputs])
        self.size = self.size or vector.size
        if vector.size != self.size:
            raise TypeError(
                f"op must return one shape whatever the values of its inputs, got {self.size} elements for "
                f"some and {vector.size} for others nearby"
            )
        return vector

    def split(self, dy) -> list[np.ndarray]:
        """Return the part of each output in a vector of all of them."""
        sizes = [flat(y).size for y in tf.nest.flatten(self.outputs)]
        return np.split(dy, np.cumsum(sizes)[:-1])

    def pack(self, dy) -> Any:
        """Return a vector in the structure of the outputs."""
        leaves = map(unflat, self.split(dy), tf.nest.flatten(self.outputs))
        return tf.nest.pack_sequence_as(self.outputs, list(leaves))

    def vjp(self, at, dy) -> list:
        """Return the gradients of all inputs and variables, tensors or None."""
        return self._attempt("backward pass", vjp, self.op, self.place(at), self.pack(dy), self.variables)

    def vectors(self, gradients) -> list[np.ndarray]:
        """Return gradients as flat vectors, with zeros for None."""
        pairs = zip(self.start, gradients, strict=True)
        return [np.zeros_like(vector) if g is None else flat(g) for vector, g in pairs]

    @staticmethod
    def _attempt(stage, f, *args) -> Any:
        try:
            return f(*args)
        except Exception as error:
            raise OpError(stage) from error


class Declared:
    """The gradient that a surrogate or a declared backward pass gives."""

    def __init__(self, label, want, rtol, noise=0.0) -> None:
        # An element that is far smaller than others is their rounding.
        size = np.abs(want[np.isfinite(want)]).max(initial=0)
        self.label, self.want = label, want
        self.notes: list[tuple[int, str]] = []
        self.tolerance = rtol * (np.abs(want) + 1e-2 * size) + noise + 1e-300

    def _errors(self, g):
        with np.errstate(invalid="ignore"):
            errors = np.nan_to_num(np.abs(g - self.want) / self.tolerance, nan=np.inf)
        return np.where(np.isfinite(g) | np.isfinite(self.want), errors, 0)  # nan in both is no difference

    def mismatch(self, g) -> int | None:
        """Return the flat index where `g` is worst, None where it agrees."""
        errors = self._errors(g)
        return int(np.argmax(errors)) if np.any(errors > 1) else None

    def agrees(self, g, where=True) -> bool:
        """Return whether `g` is right at all elements, or at those of the mask `where`."""
        return not np.any((self._errors(g) > 1) & where)

    def right(self, k) -> float:
        """Return the right gradient at flat index `k`."""
        return self.want[k]


class Numerical:
    """The numerical derivative, at no move, of a loss: the sum of `products(move) = dy * op(x + move)`.

    Along a random normal direction d the slope of `t ↦ loss(t·d)` is `⟨g, d⟩` for the right gradient g, and
    for hardly any other: a few evaluations judge all elements. A fault is located by bisection. `size` is the
    norm of the products and `eps` the machine epsilon of the arithmetic; `outside` says of each element of x
    whether the op is NaN or infinite there, so that it has no gradient.
    """

    label = "the numerical derivative"

    def __init__(self, products, x, outside, size, eps, rtol, rng) -> None:
        self.x, self.outside, self.rtol = x, outside, rtol
        self.notes: list[tuple[int, str]] = []
        self.unit = np.maximum(1, np.abs(x))
        self.steps = np.cbrt(eps) / np.array([1, 8, 64])
        self.rounding, self.most_rounding = 10 * eps * size, 1e5 * eps * size
        self.probes = [rng.standard_normal(x.shape) * self.unit for _ in range(2)]
        self._products = products
        self._known: dict = {}

    def _loss(self, move):
        """Evaluate the op, once at each place, however many gradients are judged."""
        key = hash(move.tobytes())
        if key not in self._known:
            self._known[key] = self._products(move).sum()
        return self._known[key]

    def _slope(self, d, h):
        return slope(lambda t: self._loss(t * d), h)

    def _gap(self, g, d, steps):
        """Return the distance of g from the slope along d in tolerances, at the step that is kindest to g."""
        gaps = []
        for h in steps:
            numeric, bar = self._slope(d, h)
            scale = max(abs(numeric), np.linalg.norm(g * d))
            # Where rounding makes the bar, the slope may be off by more than one. It counts up to a point,
            # and so does the rounding that a smaller step brings: with an op that is all noise, or with no
            # step at all, any gradient would agree.
            bar = min(3 * bar, 1e-3 * scale)
            rounding = min(self.rounding / h, max(self.rounding / self.steps[0], 1e-3 * scale))
            tolerance = self.rtol * scale + bar + rounding + 1e-300
            gaps.append(np.nan_to_num(abs(g @ d - numeric) / tolerance, nan=np.inf))
            if gaps[-1] <= 1:
                break
        return min(gaps)

    def agrees(self, g, where=True) -> bool:
        """Return whether `g` is right at all elements, or at those of the mask `where`."""
        return np.isfinite(g).all() and all(self._gap(g, d * where, self.steps) <= 1 for d in self.probes)

    def mismatch(self, g) -> int | None:
        """Return a flat index where `g` is wrong, None where it agrees; note what has no derivative."""
        undefined = ~np.isfinite(g)
        outside = np.flatnonzero(undefined & self.outside)
        if outside.size:
            more = f", as at {outside.size - 1} more" if outside[1:].size else ""
            self.notes.append((outside[0], f"the op is NaN or infinite{more}: no gradient is checked there"))
        for k in np.flatnonzero(undefined & ~self.outside)[:8]:
            if not self._excused(g, k):
                return int(k)
        self._leave_out(undefined)
        g = np.nan_to_num(g, nan=0, posinf=0, neginf=0)
        if self.agrees(g):
            return None
        self._listen()
        for d in self.probes:
            while np.any(d) and self._gap(g, d, self.steps) > 1:
                k = self._bisect(g, d)
                if not self._excused(g, k):
                    return k
                if len(self.notes) > 9:
                    self.notes.append((k, "is the tenth such point: the rest is not checked"))
                    return None
                # Where several elements share a value they share its kink, as all zeros do under relu.
                self._leave_out(self.x == self.x[k] if len(self.notes) > 2 else k)
        return None

    def _leave_out(self, elements):
        """Look no longer along elements that have no derivative."""
        for d in self.probes:
            d[elements] = 0

    def _listen(self):
        """Measure the rounding that shows in the loss: more than usual where terms cancel inside the op.

        So near to x and on one side of it the loss is a straight line, even where x is a kink or a jump: what
        a third difference leaves is rounding. It counts up to a point, as an error bar does.
        """
        near, found = self.steps[0] * 1e-6, []
        for d in self.probes:
            one, two, three, four = (self._loss(n * near * d) for n in (1, 2, 3, 4))
            found.append(abs(four - 3 * three + 3 * two - one))
        self.rounding = max(self.rounding, min(8 * np.nan_to_num(max(found)), self.most_rounding))

    def _bisect(self, g, d):
        part = np.flatnonzero(d)
        while len(part) > 1:
            first, second = np.array_split(part, 2)
            only = np.where(np.isin(np.arange(d.size), first), d, 0)
            part = first if self._gap(g, only, self.steps[:1]) > 1 else second
        return int(part[0])

    def _along(self, k):
        """Return the direction of element k, and steps: smaller ones too where the usual do not agree."""
        e = np.zeros_like(self.x)
        e[k] = self.unit[k]
        numeric, bar = self._slope(e, self.steps[-1])
        return e, self.steps if bar <= 1e-3 * abs(numeric) else self.steps[-1] / 8.0 ** np.arange(5)

    def right(self, k) -> float:
        """Return the numerical derivative at flat index `k`, from the step with the smallest error bar."""
        e, steps = self._along(k)
        measured = [(self._slope(e, h), h) for h in steps]
        best = min(measured, key=lambda m: np.nan_to_num(m[0][1] + self.rounding / m[1], nan=np.inf))
        return best[0][0] / self.unit[k]

    def _excused(self, g, k):
        """Return whether `op` has no derivative at `k` and `g[k]` is as good as any; add a note if so."""
        note = self._note(g, k)
        self.notes += [(k, note)] if note else []
        return bool(note)

    def _note(self, g, k):
        e, steps = self._along(k)
        at = functools.cache(lambda t: self._products(t * e))
        _, h, tiny = self.steps
        # One-sided differences with steps h and h/2, extrapolated like `slope`; of each output for itself,
        # since at a kink that several have each may take any slope between its own two.
        sides = [[(at(s * t) - at(0)) / (s * t * e[k]) for t in (h, h / 2)] for s in (-1, 1)]
        left, right = (2 * fine - coarse for coarse, fine in sides)
        if not np.isfinite([left.sum(), right.sum()]).all():
            return "the op has no finite slope on both sides; its gradient there is not checked"
        if not np.isfinite(g[k]):
            # As of a cube root at 0: the smaller the step, the steeper, and no end to it.
            rises = [(abs(at(t) - at(-t)).sum(), t) for t in (h, tiny, tiny / 8)]
            steep = [rise / t for rise, t in rises]
            endless = steep[2] > 2 * steep[1] > 4 * steep[0] and rises[2][0] > 100 * self.rounding
            return "the op has no finite slope; its gradient there is not checked" if endless else ""
        if self._gap(g, e, steps) <= 1:
            return "the op bends within 1e-6; smaller steps agree"
        jump, near = (abs((at(t) - at(-t)).sum()) for t in (h, tiny))
        if jump > 100 * self.rounding and near > jump / 2:
            return f"the op jumps; it takes slope {g[k]:.3g}"
        size = max(abs(left).sum(), abs(right).sum())
        bars = sum(abs(fine - coarse).sum() for coarse, fine in sides)
        slack = min(bars, 1e-3 * size) + 10 * (self.rtol * size + self.rounding / h / e[k])
        low, high = np.minimum(left, right).sum(), np.maximum(left, right).sum()
        if high - low > 10 * slack and low - slack <= g[k] <= high + slack:
            return f"there is a kink, slopes {low:.3g} to {high:.3g}; the op takes {g[k]:.3g}"
        return ""
