"""The examination of one op by `check_gradient`, step by step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from course_utils import diagnosis
from course_utils.numerical import Declared, Numerical, differentiable, epsilon, flat, resolution, unflat, vjp
from course_utils.report import Report

#: The relative error that a gradient may have, for the dtype it is computed in.
RTOL = {
    "float64": 1e-8,
    "complex128": 1e-8,
    "float32": 1e-3,
    "complex64": 1e-3,
    "float16": 2e-2,
    "bfloat16": 1e-1,
}
LINEAR = "linear in the upstream gradient"
MISSING = (
    "missing gradient (None): grad returns None for it, or the path to it leaves TensorFlow "
    "(stop_gradient, numpy, an integer cast, a captured tensor)"
)
STALE = "stale closure: the gradient is that of an earlier call's inputs; compute it from this call's"


class OpError(Exception):
    """The op under test raised: the message is the stage, the cause is what it raised."""


def _attempt(stage, f, *args):
    try:
        return f(*args)
    except Exception as error:
        raise OpError(stage) from error


def _halved(xs) -> list:
    return [x / 2 if differentiable(x) else x for x in xs]


def _wide(x):
    return tf.cast(x, tf.complex128 if x.dtype.is_complex else tf.float64) if differentiable(x) else x


def _shapes(y) -> list[tuple]:
    return [tuple(tensor.shape) for tensor in tf.nest.flatten(y)]


def _close(a, b) -> bool:
    """Return whether two results are equal, but for what the order of a sum may change."""
    tolerance = max(1e-6, 4 * epsilon(a.dtype)) if differentiable(a) else 0.0
    return Declared("", flat(a), tolerance).agrees(flat(b))


@dataclasses.dataclass
class Point:
    """What an op gives at one set of inputs: outputs, upstream gradient, gradients (tensors or None)."""

    xs: list
    y: list
    dy: object
    gradients: list
    vectors: list  # the gradients as flat vectors, zeros for None; empty where a shape is wrong
    at_half: list | None  # the same at half the inputs, where the op has any


@dataclasses.dataclass
class Examination:
    """One op under test; it takes the leaves of the inputs that were given, which `names` names."""

    report: Report
    op: Callable
    surrogate: Callable | None
    backward: Callable | None
    variables: list
    names: list[str]
    rtol: float | None
    rng: np.random.Generator
    prefix: str = ""

    def run(self, leaves, order) -> None:
        """Make all checks, up to the derivative of this order."""
        native = self._evaluate(leaves)
        if not (self._same_twice(native) and self._structure(native)):
            return
        self._linear(native)
        point = self._in_float64(native) or native
        for i, target in enumerate(self._targets(point.xs)):
            if differentiable(target):
                self._judge(i, target, point)
        if order > 1 and self.report:
            self._next_order(point).run([*point.xs, *tf.nest.flatten(point.dy)], order - 1)

    def _next_order(self, point) -> Examination:
        """Return the examination of the gradient, which is an op of the inputs and dy."""
        n, outputs = len(point.xs), len(tf.nest.flatten(point.dy))

        def gradient_of(backward):
            def gradient(*leaves):
                gradients = backward(tf.nest.pack_sequence_as(point.dy, leaves[n:]), *leaves[:n])
                return [
                    tf.zeros_like(x) if g is None else g for x, g in zip(leaves[:n], gradients, strict=False)
                ]

            return gradient

        intended = None
        if self.surrogate or self.backward:
            intended = gradient_of(lambda dy, *xs: self._intended(xs, dy))
        names = [*self.names[:n], *(f"dy[{j}]" if outputs > 1 else "dy" for j in range(outputs))]
        return dataclasses.replace(
            self,
            op=gradient_of(lambda dy, *xs: vjp(self.op, xs, dy)),
            surrogate=intended,
            backward=None,
            names=[*names, *self.names[n:]],
            prefix=f"{self.prefix}order 2, ",
        )

    def _add(self, ok, name, detail="", cure="", **where) -> None:
        self.report.add(ok, self.prefix + name, detail, cure=cure, **where)

    def _targets(self, xs) -> list:
        return [*xs, *self.variables]

    def _vjp(self, xs, dy) -> list:
        return vjp(self.op, xs, dy, self.variables)

    def _vectors(self, xs, gradients) -> list:
        """Return gradients as flat vectors, with zeros for None."""
        pairs = zip(self._targets(xs), gradients, strict=True)
        return [np.zeros_like(flat(x)) if g is None else flat(g) for x, g in pairs]

    def _evaluate(self, xs) -> Point:
        with contextlib.suppress(
            Exception
        ):  # first of all elsewhere: what an op keeps from its first call is stale
            self.op(*_halved(xs))
        y = _attempt("forward pass", self.op, *xs)
        for tensor in tf.nest.flatten(y):
            if not isinstance(tensor, tf.Tensor):
                raise TypeError(f"op must return tensors, got {type(tensor).__name__}: {str(tensor)[:80]}")
        dy = tf.nest.map_structure(self._dy, y)
        gradients, at_half = _attempt("backward pass", self._vjp, xs, dy), None
        with contextlib.suppress(Exception):  # half the input may be outside the op's domain
            at_half = self._vectors(xs, self._vjp(_halved(xs), dy))
        return Point(xs, tf.nest.flatten(y), dy, gradients, self._vectors(xs, gradients), at_half)

    def _dy(self, y):
        """Draw an upstream gradient."""
        if not differentiable(y):
            return tf.zeros_like(y)
        values = self.rng.standard_normal(flat(y).size)
        # An output that is inf or nan even in double precision has no slope to compare with.
        lost = y.dtype.real_dtype == tf.float64 and ~np.isfinite(flat(y))
        return unflat(np.where(lost, 0, values), y)

    def _same_twice(self, point) -> bool:
        again = tf.nest.flatten(_attempt("forward pass", self.op, *point.xs))
        if not all(map(_close, point.y, again)):
            cure = "give its random numbers a fixed seed (tf.random.stateless_*), or check it without them"
            self._add(False, "same result twice", "one input gives two outputs", cure)
            return False
        again = _attempt("backward pass", self._vjp, point.xs, point.dy)
        for name, g, g2 in zip(self.names, point.gradients, again, strict=True):
            if g is not None and not _close(g, g2):
                cure = "the backward pass is random, or keeps a value from an earlier call"
                self._add(False, name, "one input gives two different gradients", cure)
        return self.report.ok

    def _structure(self, point) -> bool:
        for name, x, g in zip(self.names, self._targets(point.xs), point.gradients, strict=True):
            if g is not None and g.shape != x.shape:
                got, want = tuple(g.shape), tuple(x.shape)
                detail = f"the gradient has shape {got}, the argument {want}"
                self._add(False, name, detail, diagnosis.shape_cause(got, want))
            elif g is not None and g.dtype != x.dtype:
                detail = f"the gradient has dtype {g.dtype.name}, the argument {x.dtype.name}"
                self._add(False, name, detail, "wrong dtype: tf.cast(gradient, x.dtype)")
        if self.report:
            self._add(True, "shapes, dtypes, same result twice")
        return self.report.ok

    def _linear(self, point) -> None:
        """Check that the backward pass is linear in dy, as a vector-Jacobian product is."""
        # A power of two scales without rounding; a large one finds wide clipping, but float16 would overflow.
        half = any(x.dtype.size == 2 for x in [*self._targets(point.xs), *point.y])
        factor, rtol = (-2.0, 1e-1) if half else (-1024.0, 1e-5)
        dy = tf.nest.map_structure(lambda d: d * tf.cast(factor, d.dtype), point.dy)
        scaled = self._vectors(point.xs, _attempt("backward pass", self._vjp, point.xs, dy))
        for name, g, s in zip(self.names, point.vectors, scaled, strict=True):
            finite = np.isfinite(g) & np.isfinite(s)
            if not Declared("", factor * g[finite], rtol).agrees(s[finite]):
                detail = f"the gradient of {name} for {factor:g}·dy is not {factor:g} times that for dy"
                cure = diagnosis.upstream_cause(g[finite], s[finite], factor)
                self._add(None if self.backward else False, LINEAR, detail, cure)
                return
        self._add(True, LINEAR)

    def _in_float64(self, native) -> Point | None:
        """Hold the dtype of the inputs to float64, if the op can; return what it gives in float64."""
        xs, dys = ([_wide(t) for t in tensors] for tensors in (native.xs, tf.nest.flatten(native.dy)))
        if not any(map(self._widens, native.xs)) or any(map(differentiable, self.variables)):
            return None
        dy = tf.nest.pack_sequence_as(native.dy, dys)
        try:
            wide = self._evaluate(xs)
            want = self._vectors(xs, vjp(self.op, xs, dy))
            # What one rounding of the inputs does to the gradient is no fault of the op.
            rounded = [self._rounded(x) if self._widens(x) else x for x in native.xs]
            other = self._vectors(xs, vjp(self.op, rounded, dy))
        except Exception as error:
            told, _ = diagnosis.explain(error.__cause__ or error)
            self._add(None, "float64", f"the op cannot, so the check is coarser: {told}")
            return None
        for y, y64 in zip(native.y, wide.y, strict=True):
            self._overflow(y, y64)
        for i, x in enumerate(native.xs):
            if self._widens(x):
                with np.errstate(over="ignore", invalid="ignore"):
                    held = want[i].astype(x.dtype.real_dtype.as_numpy_dtype).astype(np.float64)
                    noise = np.nan_to_num(10 * np.abs(other[i] - want[i]), posinf=0)
                truth = Declared("float64", held, RTOL[x.dtype.name], noise + _rounding(x, wide))
                self._settle(f"{self.names[i]} in {x.dtype.name}", i, x, native, truth)
        return wide

    @staticmethod
    def _widens(x) -> bool:
        return differentiable(x) and x.dtype.real_dtype != tf.float64

    def _rounded(self, x):
        sign = self.rng.choice([-1.0, 1.0], x.shape)
        wide = _wide(x)
        return wide * tf.cast(1 + epsilon(x.dtype) * sign, wide.dtype)

    def _overflow(self, y, y64) -> None:
        lost = np.flatnonzero(~np.isfinite(flat(y)))
        if lost.size and self.report:
            detail = f"{_place('output', y, lost[0])} in {y.dtype.name}, {flat(y64)[lost[0]]:.6g} in float64"
            self._add(None, "forward pass", detail, "use a form of it that does not overflow")

    def _judge(self, i, target, point) -> None:
        """Hold one gradient to the truth, and to the truth at half the inputs where it is the same."""
        name, g = self.names[i], point.vectors[i]
        if target.dtype.size == 2 and not (self.surrogate or self.backward):
            self._add(None, name, f"{target.dtype.name} is too coarse for a numerical derivative")
            return
        same = point.at_half is not None and np.any(g) and np.array_equal(g, point.at_half[i])
        right_at_half = not same or self._truth(i, _halved(point.xs), point).mismatch(g) is None
        cause = STALE if same and right_at_half else ""
        right = self._settle(name, i, target, point, self._truth(i, point.xs, point), cause)
        if right and not right_at_half:
            self._add(False, name, "half the inputs give the same gradient, where it is wrong", STALE)

    def _settle(self, name, i, target, point, truth, cause="") -> bool:
        """Add the line that says whether the gradient of argument i is right; return whether it is."""
        g = point.vectors[i]
        k = truth.mismatch(g)
        for at, text in truth.notes:
            self._add(None, name, f"at {_place(self.names[i], target, at)} {text}")
        if k is None:
            lost = point.gradients[i] is None and not self.backward
            self._add(True, name, f"equals {truth.label}{'; none arrives (None), as it is zero' * lost}")
            return True
        right = truth.right(k)
        detail = f"at {_place(self.names[i], target, k)} the op gives {g[k]:.6g}, {truth.label} {right:.6g}"
        cause = cause or self._cause(i, target, k, point, truth)
        self._add(False, name, detail, cause, error=abs(g[k] - right), index=_index(target, k))
        return False

    def _cause(self, i, target, k, point, truth) -> str:
        if any(check.name.endswith(LINEAR) for check in self.report.failures):
            return ""  # it is said there
        if point.gradients[i] is None:
            return MISSING
        others = {
            name: vector
            for name, vector, x, g in zip(
                self.names, point.vectors, self._targets(point.xs), point.gradients, strict=True
            )
            if x is not target and x.shape == target.shape and g is not None
        }
        dys = [flat(d) for d in tf.nest.flatten(point.dy)]
        shape, dy = tuple(target.shape), np.concatenate(dys)
        cause = diagnosis.likely_cause(point.vectors[i], flat(target), k, shape, dy, truth, others)

        def gradient(vectors):
            leaves = map(unflat, vectors, tf.nest.flatten(point.dy))
            return self._vectors(
                point.xs, self._vjp(point.xs, tf.nest.pack_sequence_as(point.dy, list(leaves)))
            )[i]

        return cause or diagnosis.unused_upstream(gradient, dys)

    def _truth(self, i, xs, point):
        """Return what the gradient of argument i is held against at `xs`, for the `dy` of `point`."""
        target, g = self._targets(xs)[i], point.vectors[i]
        if self.surrogate or self.backward:
            label = "the declared backward" if self.backward else "the surrogate"
            want = self._vectors(xs, self._intended(xs, point.dy))[i]
            return Declared(
                label, want, self.rtol or max(RTOL[target.dtype.name], 1e-3 * (resolution(g) > 1e-9))
            )
        x, weights = flat(target), [flat(d) for d in tf.nest.flatten(point.dy)]

        def products(move):
            y = map(flat, tf.nest.flatten(self._moved(i, xs, target, x + move)))
            return np.concatenate([np.where(w == 0, 0, w * a) for w, a in zip(weights, y, strict=True)])

        # An op or a backward pass that casts to float32 inside has no more digits than float32.
        nearby = 1e-6 * np.maximum(1, np.abs(x)) * self.rng.standard_normal(x.shape)
        eps = max(resolution(products(nearby) / np.concatenate(weights)), resolution(g))
        # Rounding of the output, and of the input as far as the output depends on it.
        size = np.linalg.norm(products(0 * x)) + np.linalg.norm(np.nan_to_num(g) * x)
        rtol = self.rtol or RTOL["float32" if eps > 1e-9 else "float64"]
        return Numerical(lambda move: products(move).sum(), x, size, eps, rtol, self.rng)

    def _moved(self, i, xs, target, vector):
        """Return the op's output where argument i has the elements `vector`."""
        value, stage = unflat(vector, target), "forward pass near the input"
        if i < len(xs):
            return _attempt(stage, self.op, *xs[:i], value, *xs[i + 1 :])
        before = tf.identity(target)
        target.assign(value)
        try:
            return _attempt(stage, self.op, *xs)
        finally:
            target.assign(before)

    def _intended(self, xs, dy) -> list:
        """Return the gradients that the surrogate or the declared backward pass gives."""
        name, targets = "backward" if self.backward else "surrogate", self._targets(xs)
        try:
            if self.surrogate:
                y = self.surrogate(*xs)
                want = vjp(self.surrogate, xs, dy, self.variables) if _shapes(y) == _shapes(dy) else None
            else:
                want = tf.nest.flatten(self.backward(dy, *xs))
        except Exception as error:
            raise ValueError(f"{name} raises {diagnosis.explain(error)[0]}") from error
        if want is None:
            raise ValueError(f"surrogate must return the shapes of op, {_shapes(dy)}, got {_shapes(y)}")
        if len(want) not in (len(xs), len(targets)):
            raise ValueError(f"backward must return {len(xs)} gradients, one for each input, got {len(want)}")
        want += [None] * (len(targets) - len(want))
        for x, g in zip(targets, want, strict=True):
            if g is not None and tuple(np.shape(g)) != tuple(x.shape):
                raise ValueError(f"{name} must return the shape {tuple(x.shape)}, got {tuple(np.shape(g))}")
        return want


def _index(tensor, k) -> tuple[int, ...]:
    """Return the index of element `k` of the flat vector; a complex number has two, its parts."""
    shape = (*tensor.shape, 2) if tensor.dtype.is_complex else tuple(tensor.shape)
    return tuple(int(n) for n in np.unravel_index(k, shape))


def _place(name, tensor, k) -> str:
    """Return an element of a tensor as text, such as `x[2, 0] = 1.5`."""
    index = ", ".join(map(str, _index(tensor, k)))
    return f"{name}{f'[{index}]' if index else ''} = {flat(tensor)[k]:.6g}"


def _rounding(x, wide) -> float:
    """Return what rounding leaves of a gradient by `x` that is lost among larger terms, or saturated to 0."""
    products = [flat(d) * flat(y) for d, y in zip(tf.nest.flatten(wide.dy), wide.y, strict=True)]
    size = np.linalg.norm(np.nan_to_num(np.concatenate(products), posinf=0, neginf=0))
    factor = 100 if x.dtype.size > 2 else 10  # half precision has no digits to give away
    return factor * epsilon(x.dtype) * size / max(np.sqrt(np.mean(flat(x) ** 2)), 1e-30)
