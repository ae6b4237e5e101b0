"""Vector-Jacobian products, and what they are held against: a numerical derivative or a declared gradient.

The two truths judge flat vectors of float64; a complex number counts as its two parts.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf


def tf_variable(variable) -> tf.Variable:
    """Return the `tf.Variable` of a TensorFlow or Keras variable."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def differentiable(tensor) -> bool:
    """Return whether a tensor or variable can have a gradient: floats and complex numbers."""
    dtype = tf.as_dtype(tensor.dtype)
    return dtype.is_floating or dtype.is_complex


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
    watched = [source for source in sources if differentiable(source)]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        y = op(*inputs)
    pairs = [
        (a, b) for a, b in zip(tf.nest.flatten(y), tf.nest.flatten(dy), strict=True) if differentiable(a)
    ]
    if not pairs:
        return [None] * len(sources)
    targets, upstream = map(list, zip(*pairs, strict=True))
    gradients = iter(tape.gradient(targets, watched, output_gradients=upstream))
    gradients = [next(gradients) if differentiable(source) else None for source in sources]
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


def flat(tensor) -> np.ndarray:
    """Return the elements of a tensor as a float64 vector; complex numbers become pairs."""
    array = np.asarray(tensor)
    return np.ravel(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)).view(np.float64)


def resolution(*vectors) -> float:
    """Return the machine epsilon of the arithmetic behind `vectors`: float32's where it holds them all."""
    values = np.concatenate(vectors)
    with np.errstate(over="ignore"):
        held = np.array_equal(values, values.astype(np.float32), equal_nan=True)
    return float(np.finfo(np.float32 if held and np.any(values) else np.float64).eps)


class Declared:
    """The gradient that a surrogate or a declared backward pass gives."""

    def __init__(self, label, want, rtol, noise=0) -> None:
        self.label, self.want = label, want
        size = np.abs(want[np.isfinite(want)]).max(
            initial=0
        )  # an element far smaller than others is their rounding
        self.tolerance = rtol * (np.abs(want) + 1e-2 * size) + noise + 1e-300
        self.notes: list[tuple[int, str]] = []

    def _errors(self, g):
        # A value that is inf or nan in both is no difference.
        with np.errstate(invalid="ignore"):
            ratio = np.abs(g - self.want) / self.tolerance
        return np.where(np.isfinite(g) | np.isfinite(self.want), np.nan_to_num(ratio, nan=np.inf), 0)

    def mismatch(self, g) -> int | None:
        """Return the flat index where `g` is worst, None where it agrees."""
        errors = self._errors(g)
        return int(np.argmax(errors)) if np.any(errors > 1) else None

    def right(self, k) -> float:
        """Return the right gradient at flat index `k`."""
        return self.want[k]

    def agrees(self, g, where=True) -> bool:
        """Return whether `g` is right at all elements, or at those of the mask `where`."""
        return not np.any((self._errors(g) > 1) & where)

    def factor(self, g) -> float:
        """Return how many times the right gradient `g` is, were it a multiple of it."""
        return float(g @ g / (g @ self.want)) if g @ self.want else 0.0


class Numerical:
    """The numerical derivative of `loss(move) = ⟨dy, op(x + move)⟩` at no move.

    Along a random normal direction d the slope of `t ↦ loss(t·d)` is `⟨g, d⟩` for the right gradient g, and
    for hardly any other: a few evaluations judge all elements. A fault is located by bisection.
    """

    label = "the numerical derivative"

    def __init__(self, loss, x, size, eps, rtol, rng) -> None:
        self.loss, self.x, self.rtol, self.rng = loss, x, rtol, rng
        self.unit = np.maximum(1, np.abs(x))
        self.steps = np.cbrt(eps) / np.array([1, 8, 64])
        self.open = np.ones(x.shape, bool)  # elements that have a derivative, as far as is known
        # Noise counts up to a point, as the error bar does: an op that is all noise must not pass anything.
        self.rounding = max(10 * eps * size, min(8 * self._noise(), 1e5 * eps * size))
        self.notes: list[tuple[int, str]] = []

    def _direction(self):
        return self.rng.standard_normal(self.x.shape) * self.unit * self.open

    def _noise(self):
        """Return the rounding that shows in the loss, larger than usual where terms cancel inside the op.

        So near to x and on one side of it the loss is a straight line, even where x is a kink or a jump: what
        a third difference leaves is rounding.
        """
        near, found = self.steps[0] * 1e-6, []
        for d in (self._direction() for _ in range(4)):
            one, two, three, four = (self.loss(n * near * d) for n in (1, 2, 3, 4))
            found.append(abs(four - 3 * three + 3 * two - one))
        return np.nan_to_num(max(found))

    def _measure(self, d, steps):
        return [(h, *slope(lambda t: self.loss(t * d), h)) for h in steps]

    def _gap(self, g, d, measured):
        """Return the distance of g from the slope along d in tolerances, at the step that is kindest to g."""
        gaps = [np.inf]
        for h, numeric, bar in measured:
            scale = max(abs(numeric), np.linalg.norm(g * d))
            if len(gaps) > 1 and 0 < 1e-3 * scale < self.rounding / h:
                continue  # so small a step would agree with anything
            # A bar counts up to a point: an op that is all noise must not pass anything.
            tolerance = self.rtol * scale + min(bar, 1e-3 * scale) + self.rounding / h + 1e-300
            gaps.append(np.nan_to_num(abs(g @ d - numeric) / tolerance, nan=np.inf))
        return min(gaps)

    def _differs(self, g, d):
        first, rest = self.steps[:1], self.steps[1:]
        return self._gap(g, d, self._measure(d, first)) > 1 and self._gap(g, d, self._measure(d, rest)) > 1

    def mismatch(self, g) -> int | None:
        """Return a flat index where `g` is wrong, None where it agrees; note what has no derivative."""
        undefined = np.flatnonzero(~np.isfinite(g))
        for k in undefined[:8]:
            if not self._excused(g, k):
                return k
        self.open[undefined] = False
        g = np.where(self.open, g, 0)
        for _ in range(2):
            d = self._direction()
            while self._differs(g, d):
                k = self._bisect(g, d)
                if not self._excused(g, k):
                    return k
                if len(self.notes) > 9:
                    self.notes.append((k, "is the tenth such point: the rest is not checked"))
                    return None
                # Where several elements share a value they share its kink, as all zeros do under relu.
                self.open[self.x == self.x[k] if len(self.notes) > 2 else k] = False
                d = d * self.open
        return None

    def _bisect(self, g, d):
        part = np.flatnonzero(d)
        only = np.zeros_like(d)
        while len(part) > 1:
            gaps = []
            halves = np.array_split(part, 2)
            for half in halves:
                only[:] = 0
                only[half] = d[half]
                gaps.append(self._gap(g, only, self._measure(only, self.steps[:1])))
            part = halves[int(np.argmax(gaps))]
        return int(part[0])

    def _along(self, k):
        e = np.zeros_like(self.x)
        e[k] = self.unit[k]
        return e

    def _steps_at(self, k):
        """Return smaller steps as well, where the usual ones do not agree with each other."""
        _, numeric, bar = self._measure(self._along(k), self.steps[-1:])[0]
        return self.steps if bar <= 1e-3 * abs(numeric) else self.steps[-1] / 8.0 ** np.arange(5)

    def right(self, k) -> float:
        """Return the numerical derivative at flat index `k`, from the step with the smallest error bar."""
        measured = self._measure(self._along(k), self._steps_at(k))
        return (
            min(measured, key=lambda m: np.nan_to_num(m[2] + self.rounding / m[0], nan=np.inf))[1]
            / self.unit[k]
        )

    def _excused(self, g, k):
        """Return whether `op` has no derivative at `k` and `g[k]` is as good as any; add a note if so."""
        e, unit = self._along(k), self.unit[k]
        at = functools.cache(lambda t: self.loss(t * e))
        h, tiny = self.steps[1], self.steps[2]
        # One-sided differences with steps h and h/2, extrapolated like `slope`.
        sides = [[(at(s * t) - at(0)) / (s * t * unit) for t in (h, h / 2)] for s in (-1, 1)]
        left, right = (2 * fine - coarse for coarse, fine in sides)
        if not np.isfinite([left, right]).all():
            self.notes.append(
                (k, "the op has no finite slope on both sides; its gradient there is not checked")
            )
            return True
        if not np.isfinite(g[k]):
            return False
        if self._gap(g, e, self._measure(e, self._steps_at(k))) <= 1:
            self.notes.append((k, "the op bends within 1e-6; smaller steps agree"))
            return True
        jump = abs(at(h) - at(-h))
        if jump > 100 * self.rounding and abs(at(tiny) - at(-tiny)) > jump / 2:
            self.notes.append((k, f"the op jumps; it takes slope {g[k]:.3g}"))
            return True
        size = max(abs(left), abs(right))
        bars = sum(abs(fine - coarse) for coarse, fine in sides)
        slack = min(bars, 1e-3 * size) + 10 * (self.rtol * size + self.rounding / h / unit)
        low, high = sorted((left, right))
        if high - low < 10 * slack or not low - slack <= g[k] <= high + slack:
            return False
        self.notes.append((k, f"there is a kink, slopes {left:.3g} and {right:.3g}; the op takes {g[k]:.3g}"))
        return True

    @functools.cached_property
    def _probes(self):
        directions = [self._direction() for _ in range(2)]
        return [(d, self._measure(d, self.steps)) for d in directions]

    def agrees(self, g, where=None) -> bool:
        """Return whether `g` is right at all elements, or at those of the mask `where`."""
        if not np.isfinite(g).all():
            return False
        probes = self._probes
        if where is not None:
            probes = [(d * where, self._measure(d * where, self.steps)) for d, _ in probes]
        return all(self._gap(g, d, measured) <= 1 for d, measured in probes)

    def factor(self, g) -> float:
        """Return how many times the right gradient `g` is, were it a multiple of it."""
        d, measured = self._probes[0]
        return float(g @ d / measured[0][1]) if measured[0][1] else 0.0
