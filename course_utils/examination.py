"""The examination of one op by `check_gradient`, step by step."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from course_utils import diagnosis
from course_utils.numerical import (
    Declared,
    FlatOp,
    Numerical,
    OpError,
    differentiable,
    epsilon,
    flat,
    resolution,
    vjp,
)
from course_utils.report import Report

#: The relative error that a gradient may have, for the dtype it is computed in.
RTOL = {"float64": 1e-8, "complex128": 1e-8, "float32": 1e-3, "complex64": 1e-3}
RTOL |= {"float16": 2e-2, "bfloat16": 1e-1}
LINEAR = "linear in the upstream gradient"
MISSING = (
    "missing gradient (None): grad returns None for it, or the path to it leaves TensorFlow "
    "(stop_gradient, numpy, an integer cast, a captured tensor)"
)
STALE = "stale closure: the gradient is that of an earlier call's inputs; compute it from this call's"


@dataclasses.dataclass
class Point:
    """What an op gives for its inputs, as flat vectors."""

    op: FlatOp
    y: np.ndarray
    dy: np.ndarray
    gradients: list  # tensors or None
    vectors: list[np.ndarray]  # the same, zeros for None
    at_half: list[np.ndarray] | None  # the same at half the inputs, where the op has any


@dataclasses.dataclass
class Examination:
    """The checks of one op, which takes the leaves of the inputs that were given."""

    report: Report
    surrogate: Callable | None
    backward: Callable | None
    names: list[str]  # of the leaves and the variables
    rtol: float | None
    rng: np.random.Generator
    prefix: str = ""
    below: tuple = ()  # the outputs of the op whose gradient is examined, of each order
    inner: float = 0.0  # size of the terms inside the op that its outputs do not show

    def run(self, op, order) -> None:
        """Make all checks, up to the derivative of this order, and put the variables back."""
        try:
            self._examine(op, order)
        except OpError as error:
            told, cure = diagnosis.explain(error.__cause__)
            self._add(False, str(error), f"raises {told}", cure)
        finally:
            op.place(op.start)

    def _examine(self, op, order) -> None:
        native = self._evaluate(op)
        if not (self._same_twice(native) and self._structure(native)):
            return
        wide, gradients = self._in_float64(native)
        point = wide or native
        self._linear(point)
        if wide:
            self._hold_to(wide, native, *gradients)
        for i, target in enumerate(point.op.targets):
            if differentiable(target):
                self._judge(i, target, point)
        if order > 1 and self.report:
            self._next_order(point, order)

    def _add(self, ok, name, detail="", cure="", **where) -> None:
        self.report.add(ok, self.prefix + name, detail, cure=cure, **where)

    def _evaluate(self, op) -> Point:
        halves = [vector / 2 for vector in op.start]
        y, at_half = op(op.start), None
        drawn = op.pack(self.rng.standard_normal(y.size))
        dy = np.concatenate([flat(d) * differentiable(d) for d in tf.nest.flatten(drawn)])
        if not _will_widen(op):
            # An output that is inf or nan in the best precision there is has no slope to compare with.
            dy = np.where(np.isfinite(y), dy, 0)
        gradients = op.vjp(op.start, dy)
        with contextlib.suppress(Exception):  # half the input may be outside the op's domain
            at_half = op.vectors(op.vjp(halves, dy))
        return Point(op, y, dy, gradients, op.vectors(gradients), at_half)

    def _same_twice(self, point) -> bool:
        op = point.op
        # Equal, but for what the order of a sum may change.
        rtol = max(1e-6, *(4 * epsilon(x.dtype) for x in op.targets if differentiable(x)))
        if not Declared("", point.y, rtol).agrees(op(op.start)):
            cure = "seed random numbers (tf.random.stateless_*), reset its state, or check it without them"
            self._add(False, "same result twice", "one input gives two outputs", cure)
            return False
        again = op.vectors(op.vjp(op.start, point.dy))
        for name, g, g2 in zip(self.names, point.vectors, again, strict=True):
            if not Declared("", g, rtol).agrees(g2):
                cure = "the backward pass is random, or keeps a value from an earlier call"
                self._add(False, name, "one input gives two different gradients", cure)
        return self.report.ok

    def _structure(self, point) -> bool:
        for name, x, g in zip(self.names, point.op.targets, point.gradients, strict=True):
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
        op, tensors = point.op, [*point.op.targets, *tf.nest.flatten(point.op.outputs)]
        # A power of two scales without rounding; a large one finds wide clipping, but float16 would overflow.
        factor, rtol = (-2.0, 1e-1) if any(x.dtype.size == 2 for x in tensors) else (-1024.0, 1e-4)
        scaled = op.vectors(op.vjp(op.start, factor * point.dy))
        for name, x, g, s in zip(self.names, op.targets, point.vectors, scaled, strict=True):
            finite = np.isfinite(g) & np.isfinite(s)
            # What is lost among larger terms is rounding, which need not be linear.
            noise = 10 * abs(factor) * epsilon(x.dtype) * _gradient_size(x, point) if np.any(g) else 0
            if not Declared("", factor * g[finite], rtol, noise).agrees(s[finite]):
                detail = f"the gradient of {name} for {factor:g}·dy is not {factor:g} times that for dy"
                cure = diagnosis.upstream_cause(g[finite], s[finite], factor)
                self._add(None if self.backward else False, LINEAR, detail, cure)
                return
        self._add(True, LINEAR)

    def _in_float64(self, native) -> tuple:
        """Return what the op gives in float64, and its gradients there; None if it can't, or if it has."""
        leaves, rounded = native.op.leaves, []
        if not _will_widen(native.op):
            return None, None
        op = FlatOp(native.op.op, [_wide(x) for x in leaves])
        for x, vector in zip(leaves, op.start, strict=True):
            sign = self.rng.choice([-1.0, 1.0], vector.size)
            rounded.append(vector * (1 + epsilon(x.dtype) * sign) if _widens(x) else vector)
        try:
            # What one rounding of the inputs does to the gradient is no fault of the op.
            return self._evaluate(op), [op.vectors(op.vjp(at, native.dy)) for at in (op.start, rounded)]
        except Exception as error:
            told, _ = diagnosis.explain(error.__cause__ or error)
            self._add(None, "float64", f"the op cannot, so the check is coarser: {told}")
            return None, None

    def _hold_to(self, wide, native, want, other) -> None:
        """Hold the gradients in the dtype of the inputs to those in float64, and those at rounded inputs."""
        self._overflow(native.op, wide.op)
        for i, x in enumerate(native.op.leaves):
            if _widens(x):
                with np.errstate(over="ignore", invalid="ignore"):
                    held = want[i].astype(x.dtype.real_dtype.as_numpy_dtype).astype(np.float64)
                    noise = np.nan_to_num(10 * np.abs(other[i] - want[i]), posinf=0)
                truth = Declared("float64", held, RTOL[x.dtype.name], noise + _rounding(x, wide))
                self._settle(f"{self.names[i]} in {x.dtype.name}", i, x, native, truth)

    def _overflow(self, native, wide) -> None:
        for y, y64 in zip(tf.nest.flatten(native.outputs), tf.nest.flatten(wide.outputs), strict=True):
            lost = sorted(np.flatnonzero(~np.isfinite(flat(y))), key=lambda k: not np.isfinite(flat(y64)[k]))
            if lost and self.report:
                right = flat(y64)[lost[0]]
                detail = f"{_place('output', y, lost[0])} in {y.dtype.name}, {right:.6g} in float64"
                cure = "use a form of it that does not overflow" if np.isfinite(right) else ""
                self._add(None, "forward pass", detail, cure)

    def _judge(self, i, target, point) -> None:
        """Hold one gradient to the truth, and to the truth at half the inputs where it is the same."""
        name, g, start = self.names[i], point.vectors[i], point.op.start
        if target.dtype.size == 2 and not (self.surrogate or self.backward):
            self._add(None, name, f"{target.dtype.name} is too coarse for a numerical derivative")
            return
        same = point.at_half is not None and np.any(g) and np.array_equal(g, point.at_half[i])
        right_at_half = not same or self._truth(i, [v / 2 for v in start], point).mismatch(g) is None
        cause = STALE if same and right_at_half else ""
        right = self._settle(name, i, target, point, self._truth(i, start, point), cause)
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
        op, others = point.op, {}
        for j, (name, x) in enumerate(zip(self.names, op.targets, strict=True)):
            if j != i and x.shape == target.shape and point.gradients[j] is not None:
                others[name] = point.vectors[j]
        shape, dy = tuple(target.shape), point.dy
        output_shape = tuple(tf.nest.flatten(op.outputs)[0].shape)
        cause = diagnosis.likely_cause(
            point.vectors[i], op.start[i], k, shape, dy, truth, others, output_shape
        )
        return cause or diagnosis.unused_upstream(
            lambda dy: op.vectors(op.vjp(op.start, dy))[i], dy, op.split(dy)
        )

    def _truth(self, i, at, point):
        """Return what the gradient of argument i is held against at the vectors `at`, for the same `dy`."""
        op, dy, g, x = point.op, point.dy, point.vectors[i], at[i]
        if self.surrogate or self.backward:
            label = "the declared backward" if self.backward else "the surrogate"
            rtol = max(RTOL[op.targets[i].dtype.name], 1e-3 * (resolution(g) > 1e-9))
            return Declared(label, self._intended(op, at, dy)[i], self.rtol or rtol)

        def weighted(y):
            return dy * np.where(dy == 0, 0, y)

        def products(move):
            return weighted(op([*at[:i], x + move, *at[i + 1 :]]))

        y = op(at)
        outside = np.any([_outside(x, lower) for lower in (y, *self.below)], axis=0)
        # An op or a backward pass that casts to float32 inside has no more digits than float32.
        nearby = x + 1e-6 * np.maximum(1, np.abs(x)) * self.rng.standard_normal(x.shape)
        eps = max(resolution(op([*at[:i], nearby, *at[i + 1 :]])), resolution(g))
        # Rounding of the output, and of the input as far as the output depends on it.
        size = np.linalg.norm(weighted(y)) + np.linalg.norm(np.nan_to_num(g, posinf=0, neginf=0) * x)
        size += np.linalg.norm(dy) * self.inner
        rtol = self.rtol or RTOL["float32" if eps > 1e-9 else "float64"]
        return Numerical(products, x, outside, size, eps, rtol, self.rng)

    def _intended(self, op, at, dy) -> list:
        """Return the gradients that the surrogate or the declared backward pass gives, as flat vectors."""
        name, shapes = "backward" if self.backward else "surrogate", _shapes(op.outputs)
        try:
            if self.backward:
                want = tf.nest.flatten(self.backward(op.pack(dy), *op.place(at)))
            else:
                intended = FlatOp(self.surrogate, op.leaves, op.variables)
                intended(at)
                same = _shapes(intended.outputs) == shapes
                want = intended.vjp(at, dy) if same else []
        except Exception as error:
            raise ValueError(f"{name} raises {diagnosis.explain(error.__cause__ or error)[0]}") from error
        if self.surrogate and not same:
            raise ValueError(f"surrogate must return the shapes {shapes}, got {_shapes(intended.outputs)}")
        if len(want) not in (len(op.leaves), len(op.targets)):
            raise ValueError(
                f"backward must return {len(op.leaves)} gradients, one an input, got {len(want)}"
            )
        want += [None] * (len(op.targets) - len(want))
        for x, g in zip(op.targets, want, strict=True):
            if g is not None and tuple(np.shape(g)) != tuple(x.shape):
                raise ValueError(f"backward must return the shape {tuple(x.shape)}, got {tuple(np.shape(g))}")
        return op.vectors(want)

    def _next_order(self, point, order) -> None:
        """Examine the gradient, which is an op of the inputs and dy."""
        op, n = point.op, len(point.op.leaves)
        dys = tf.nest.flatten(op.pack(point.dy))

        def gradient_of(backward):
            def gradient(*leaves):
                xs, dy = leaves[:n], tf.nest.pack_sequence_as(op.outputs, leaves[n:])
                gradients = tf.nest.flatten(backward(dy, *xs))[:n]
                return [tf.zeros_like(x) if g is None else g for x, g in zip(xs, gradients, strict=True)]

            return gradient

        intended = self.backward
        if self.surrogate:
            intended = lambda dy, *xs: vjp(self.surrogate, xs, dy)  # noqa: E731
        names = [*self.names[:n], *(f"dy[{j}]" if dys[1:] else "dy" for j in range(len(dys)))]
        second = dataclasses.replace(
            self,
            surrogate=intended and gradient_of(intended),
            backward=None,
            names=[*names, *self.names[n:]],
            prefix=f"{self.prefix}order 2, ",
            below=(*self.below, point.y),
            # A gradient such as y(1 - y) has the rounding of y, however small it is itself.
            inner=max(_gradient_size(x, point) for x in op.leaves if differentiable(x)),
        )
        found = gradient_of(lambda dy, *xs: vjp(op.op, xs, dy))
        second.run(FlatOp(found, [*op.leaves, *dys], op.variables), order - 1)


def _wide(x):
    return tf.cast(x, tf.complex128 if x.dtype.is_complex else tf.float64) if differentiable(x) else x


def _widens(x) -> bool:
    return differentiable(x) and x.dtype.real_dtype != tf.float64


def _will_widen(op) -> bool:
    return not op.variables and any(map(_widens, op.leaves))


def _outside(x, y) -> np.ndarray:
    """Return where an op has no gradient by `x` as `y` isn't finite: everywhere, if it isn't elementwise."""
    lost = ~np.isfinite(y)
    return lost if lost.size == x.size else np.full(x.shape, lost.any())


def _shapes(y) -> list[tuple]:
    return [tuple(tensor.shape) for tensor in tf.nest.flatten(y)]


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
    factor = 100 if x.dtype.size > 2 else 10  # half precision has no digits to give away
    return factor * epsilon(x.dtype) * _gradient_size(x, wide)


def _gradient_size(x, point) -> float:
    """Return how large a gradient by `x` would be if the outputs were proportional to `x`."""
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.linalg.norm(np.nan_to_num(point.dy * point.y, posinf=0, neginf=0))
        return size / max(np.sqrt(np.mean(flat(x) ** 2)), 1e-30)
