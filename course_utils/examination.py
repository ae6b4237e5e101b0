"""The examination of one op by `check_gradient`, step by step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from course_utils import diagnosis
from course_utils.numerical import Declared, Numerical, differentiable, flat, resolution, vjp
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
STALE = "stale closure: the gradient is that of an earlier call's inputs; compute it from this call's"


class OpError(Exception):
    """The op under test raised: the message is the stage, the cause is what it raised."""


def _attempt(stage, f, *args):
    try:
        return f(*args)
    except Exception as error:
        raise OpError(stage) from error


def _wide(tensor):
    if not differentiable(tensor):
        return tensor
    return tf.cast(tensor, tf.complex128 if tensor.dtype.is_complex else tf.float64)


def _halved(xs) -> list:
    return [x / 2 if differentiable(x) else x for x in xs]


def _shapes(y) -> list[tuple]:
    return [tuple(tensor.shape) for tensor in tf.nest.flatten(y)]


def _close(a, b) -> bool:
    """Return whether two results are equal, but for what the order of a sum may change."""
    tolerance = max(1e-6, 4 * diagnosis.epsilon(a)) if differentiable(a) else 0.0
    return Declared("", flat(a), tolerance).mismatch(flat(b)) is None


@dataclasses.dataclass
class Point:
    """What an op gives at one set of inputs."""

    xs: list
    y: list
    dy: object
    gradients: list  # tensors or None
    at_half: list | None  # the gradients at half the inputs as flat vectors, where the op has any
    vectors: list | None = None  # the gradients as flat vectors, zeros for None


def _rounding(x, wide) -> float:
    """Return what rounding leaves of a gradient by `x` that is lost among larger terms, or saturated to 0."""
    products = [flat(d) * flat(y) for d, y in zip(tf.nest.flatten(wide.dy), wide.y, strict=True)]
    size = np.linalg.norm(np.nan_to_num(np.concatenate(products), posinf=0, neginf=0))
    factor = 100 if x.dtype.size > 2 else 10  # half precision has no digits to give away
    return factor * diagnosis.epsilon(x) * size / max(np.sqrt(np.mean(flat(x) ** 2)), 1e-30)


@dataclasses.dataclass
class Examination:
    """One op under test; its inputs are the leaves of those that were given."""

    report: Report
    op: Callable
    surrogate: Callable | None
    backward: Callable | None
    variables: list
    names: list[str]
    rtol: float | None
    rng: np.random.Generator

    def run(self, leaves) -> Point | None:
        """Make all checks of first order; return what was judged, None where it came to nothing."""
        native = self._evaluate(leaves)
        if not (self._same_twice(native) and self._structure(native)):
            return None
        self._upstream(native)
        point = self._in_float64(native) or native
        for i, target in enumerate(self._targets(point.xs)):
            if differentiable(target):
                self._judge(i, target, point)
        return point

    def _targets(self, xs) -> list:
        return [*xs, *self.variables]

    def _evaluate(self, xs) -> Point:
        with contextlib.suppress(
            Exception
        ):  # first of all elsewhere: what an op keeps from its first call is stale
            self.op(*_halved(xs))
        y = _attempt("forward pass", self.op, *xs)
        diagnosis.check_outputs("op", y)
        dy = tf.nest.map_structure(self._upstream_gradient, y)
        at_half = None
        with contextlib.suppress(Exception):  # half the input may be outside the op's domain
            at_half = self._vectors(xs, self._vjp(_halved(xs), dy))
        return Point(xs, tf.nest.flatten(y), dy, _attempt("backward pass", self._vjp, xs, dy), at_half)

    def _vjp(self, xs, dy):
        return vjp(self.op, xs, dy, self.variables)

    def _upstream_gradient(self, y):
        if not differentiable(y):
            return tf.zeros_like(y)
        parts = self.rng.standard_normal((2, *y.shape))
        dy = tf.cast(parts[0] + 1j * parts[1] if y.dtype.is_complex else parts[0], y.dtype)
        # An output that is inf or nan even in double precision has no slope to compare with.
        return tf.where(np.isfinite(y), dy, 0) if y.dtype.real_dtype == tf.float64 else dy

    def _vectors(self, xs, gradients) -> list:
        """Return gradients as flat vectors, with zeros for None."""
        pairs = zip([*xs, *self.variables], gradients, strict=True)
        return [np.zeros_like(flat(x)) if g is None else flat(g) for x, g in pairs]

    def _same_twice(self, point) -> bool:
        again = tf.nest.flatten(_attempt("forward pass", self.op, *point.xs))
        if not all(map(_close, point.y, again)):
            cure = "give its random numbers a fixed seed (tf.random.stateless_*), or check it without them"
            self.report.add(False, "same result twice", "one input gives two outputs", cure=cure)
            return False
        again = _attempt("backward pass", self._vjp, point.xs, point.dy)
        for name, g, g2 in zip(self.names, point.gradients, again, strict=True):
            if g is not None and not _close(g, g2):
                cure = "the backward pass is random, or keeps a value from an earlier call"
                self.report.add(False, name, "one input gives two different gradients", cure=cure)
        return self.report.ok

    def _structure(self, point) -> bool:
        for name, x, g in zip(self.names, self._targets(point.xs), point.gradients, strict=True):
            if g is not None and g.shape != x.shape:
                detail = f"the gradient has shape {tuple(g.shape)}, the argument {tuple(x.shape)}"
                self.report.add(False, name, detail, cure=diagnosis.shape_cause(g.shape, x.shape))
            elif g is not None and g.dtype != x.dtype:
                detail = f"the gradient has dtype {g.dtype.name}, the argument {x.dtype.name}"
                self.report.add(False, name, detail, cure="wrong dtype: tf.cast(gradient, x.dtype)")
        if self.report:
            self.report.add(True, "shapes, dtypes, same result twice")
            point.vectors = self._vectors(point.xs, point.gradients)
        return self.report.ok

    def _upstream(self, point) -> None:
        """Check that the backward pass is linear in dy, as a vector-Jacobian product is."""
        # A power of two scales without rounding; a large one finds wide clipping, but float16 would overflow.
        half = any(x.dtype.size == 2 for x in [*self._targets(point.xs), *point.y])
        factor = -2.0 if half else -1024.0
        dy = tf.nest.map_structure(
            lambda d: d * tf.cast(factor, d.dtype) if differentiable(d) else d, point.dy
        )
        scaled = self._vectors(point.xs, _attempt("backward pass", self._vjp, point.xs, dy))
        for name, g, s in zip(self.names, point.vectors, scaled, strict=True):
            finite = np.isfinite(g) & np.isfinite(s)
            truth = Declared("", factor * g[finite], 1e-1 if half else 1e-5)
            if truth.mismatch(s[finite]) is not None:
                detail = f"the gradient of {name} for {factor:g}·dy is not {factor:g} times that for dy"
                cure = diagnosis.upstream_cause(g[finite], s[finite], factor)
                self.report.add(None if self.backward else False, LINEAR, detail, cure=cure)
                return
        self.report.add(True, LINEAR)

    def _in_float64(self, native) -> Point | None:
        """Hold the dtype of the inputs to float64, if the op can; return what it gives in float64."""
        xs, dys = ([_wide(t) for t in tensors] for tensors in (native.xs, tf.nest.flatten(native.dy)))
        if all(x is n for x, n in zip(xs, native.xs, strict=True)) or any(
            map(differentiable, self.variables)
        ):
            return None
        dy = tf.nest.pack_sequence_as(native.dy, dys)
        # What one rounding of the inputs does to the gradient is no fault of the op.
        rounded = [self._rounded(x, n) for x, n in zip(xs, native.xs, strict=True)]
        try:
            wide = self._evaluate(xs)
            all_gradients = wide.gradients, vjp(self.op, xs, dy), vjp(self.op, rounded, dy)
            wide.vectors, want, other = (self._vectors(xs, gradients) for gradients in all_gradients)
        except Exception as error:
            detail = f"the op cannot, so the check is coarser: {diagnosis.sentence(error.__cause__ or error)}"
            self.report.add(None, "float64", detail)
            return None
        for y, y64 in zip(native.y, wide.y, strict=True):
            self._overflow(y, y64)
        for i, (x, x64) in enumerate(zip(native.xs, xs, strict=True)):
            if x is not x64:
                with np.errstate(over="ignore", invalid="ignore"):
                    held = want[i].astype(x.dtype.real_dtype.as_numpy_dtype).astype(np.float64)
                    noise = np.nan_to_num(10 * np.abs(other[i] - want[i]), posinf=0)
                    noise += _rounding(x, wide)
                self._settle(
                    f"{self.names[i]} in {x.dtype.name}",
                    i,
                    x,
                    native,
                    Declared("float64", held, RTOL[x.dtype.name], noise),
                )
        return wide

    def _rounded(self, x64, x):
        if x is x64:
            return x
        return x64 * tf.cast(1 + diagnosis.epsilon(x) * self.rng.choice([-1.0, 1.0], x.shape), x64.dtype)

    def _overflow(self, y, y64) -> None:
        lost = np.flatnonzero(~np.isfinite(flat(y)))
        if lost.size and self.report:
            k = int(lost[0])
            detail = f"{diagnosis.place('output', y, k)} in {y.dtype.name}, {flat(y64)[k]:.6g} in float64"
            self.report.add(None, "forward pass", detail, cure="use a form of it that does not overflow")

    def _judge(self, i, target, point) -> None:
        """Hold one gradient to the truth, and to the truth at half the inputs where it is the same."""
        if target.dtype.size == 2 and not (self.surrogate or self.backward):
            self.report.add(
                None, self.names[i], f"{target.dtype.name} is too coarse for a numerical derivative"
            )
            return
        g, halves = point.vectors[i], None
        if point.at_half is not None and np.any(g) and np.array_equal(g, point.at_half[i]):
            halves = self._truth(i, _halved(point.xs), point)
        right_at_half = halves is None or halves.mismatch(g) is None
        cause = STALE if halves and right_at_half else ""
        if (
            self._settle(self.names[i], i, target, point, self._truth(i, point.xs, point), cause)
            and not right_at_half
        ):
            self.report.add(
                False, self.names[i], "half the inputs give the same gradient, where it is wrong", cure=STALE
            )

    def _settle(self, name, i, target, point, truth, cause="") -> bool:
        """Add the line that says whether the gradient of argument i is right; return whether it is."""
        g = point.vectors[i]
        k = truth.mismatch(g)
        for at, text in truth.notes:
            self.report.add(None, name, f"at {diagnosis.place(self.names[i], target, at)} {text}")
        if k is None:
            none = (
                "; none arrives (None), as it is zero"
                if point.gradients[i] is None and not self.backward
                else ""
            )
            self.report.add(True, name, f"equals {truth.label}{none}")
            return True
        parts = [k] if not target.dtype.is_complex else [k - k % 2, k - k % 2 + 1]
        got, right = (
            complex(*v) if v[1:] else v[0] for v in ([g[p] for p in parts], [truth.right(p) for p in parts])
        )
        where = diagnosis.place(self.names[i], target, k)
        detail = f"at {where} the op gives {got:.6g}, {truth.label} {right:.6g}"
        index = np.unravel_index(k // len(parts), tuple(target.shape))
        cure = cause or self._cause(i, target, k, point, truth)
        self.report.add(False, name, detail, cure=cure, error=abs(got - right), index=tuple(map(int, index)))
        return False

    def _cause(self, i, target, k, point, truth) -> str:
        if any(check.name == LINEAR for check in self.report.failures):
            return ""  # it is said there
        if point.gradients[i] is None:
            return diagnosis.MISSING
        others = {
            self.names[j]: point.vectors[j]
            for j, other in enumerate(self._targets(point.xs))
            if j != i and other.shape == target.shape and point.gradients[j] is not None
        }
        dys = tf.nest.flatten(point.dy)
        upstream = np.concatenate([flat(d) for d in dys])
        cause = diagnosis.likely_cause(
            point.vectors[i], flat(target), k, tuple(target.shape), upstream, truth, others
        )

        def gradient(leaves):
            return self._vectors(point.xs, self._vjp(point.xs, tf.nest.pack_sequence_as(point.dy, leaves)))[i]

        return cause or diagnosis.unused_upstream(gradient, dys)

    def _truth(self, i, xs, point):
        """Return what the gradient of argument i is held against at `xs`, for the `dy` of `point`."""
        target, g = self._targets(xs)[i], point.vectors[i]
        if self.surrogate or self.backward:
            label, want = self._declared(xs, point.dy)
            rtol = self.rtol or max(RTOL[target.dtype.name], 1e-3 if resolution(g) > 1e-9 else 0)
            return Declared(label, want[i], rtol)
        x, weights = flat(target), [flat(d) for d in tf.nest.flatten(point.dy)]
        unit = np.maximum(1, np.abs(x))

        def products(move):
            y = tf.nest.flatten(self._moved(i, xs, target, x + move))
            return np.concatenate([np.where(w == 0, 0, w * flat(a)) for w, a in zip(weights, y, strict=True)])

        # An op or a backward pass that casts to float32 inside has no more digits than float32.
        nearby = self._moved(i, xs, target, x + 1e-6 * unit * self.rng.standard_normal(x.shape))
        eps = max(resolution(*map(flat, tf.nest.flatten(nearby))), resolution(g))
        dtype = "float32" if eps > 1e-9 else "float64"
        # Rounding of the output, and of the input as far as the output depends on it.
        size = np.linalg.norm(products(np.zeros_like(x))) + np.linalg.norm(np.nan_to_num(g * x))
        return Numerical(lambda move: products(move).sum(), x, size, eps, self.rtol or RTOL[dtype], self.rng)

    def _moved(self, i, xs, target, vector):
        """Return the op's output where argument i has the elements `vector`."""
        elements = vector.view(np.complex128) if target.dtype.is_complex else vector
        value = tf.constant(elements.reshape(target.shape).astype(target.dtype.as_numpy_dtype))
        if i < len(xs):
            return _attempt("forward pass near the input", self.op, *xs[:i], value, *xs[i + 1 :])
        before = tf.identity(target)
        target.assign(value)
        try:
            return _attempt("forward pass near the input", self.op, *xs)
        finally:
            target.assign(before)

    def _declared(self, xs, dy):
        """Return the name and the vectors of the intended gradient."""
        name = "surrogate" if self.surrogate else "backward"
        f: Any = self.surrogate or self.backward
        try:
            if self.backward:
                want = tf.nest.flatten(f(dy, *xs))
            else:
                y = f(*xs)
                want = vjp(f, xs, dy, self.variables) if _shapes(y) == _shapes(dy) else None
        except Exception as error:
            raise ValueError(f"{name} raises {diagnosis.sentence(error)}") from error
        if want is None:
            raise ValueError(f"{name} must return the shapes of op, {_shapes(dy)}, got {_shapes(y)}")
        return f"the declared {name}" if self.backward else f"the {name}", self._vectors(
            xs, diagnosis.check_declared(want, self._targets(xs), len(xs))
        )
