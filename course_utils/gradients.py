"""Does the backward pass of an op tell the truth?"""

import numpy as np
import tensorflow as tf

from course_utils.report import Report

RTOL = {"float64": 1e-8, "float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}
#: Where elementwise ops break: both signs, zero, tails, overflow.
EDGE_POINTS = np.array([-100, -10, -3, -1, -0.1, -1e-3, 0, 1e-3, 0.1, 1, 3, 10, 100], "float32")


def vjp(op, inputs, dy, variables=()):
    """Vector-Jacobian products `dyᵀ J`: what the backward pass of `op` returns for `dy`."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = op(*inputs)
    grads = tape.gradient(y, [*inputs, *variables], output_gradients=dy)
    return [None if g is None else tf.convert_to_tensor(g) for g in grads]


def slope(phi, h):
    """Derivative of a function of one number at 0, with its error bar: two central differences."""
    coarse, fine = ((phi(s) - phi(-s)) / (2 * s) for s in (h, h / 2))
    return (4 * fine - coarse) / 3, abs(fine - coarse)


def check_gradient(op, *inputs, surrogate=None, backward=None, variables=(), order=1, rtol=None, seed=0):
    """Compare the gradients of `op` at `inputs` with the truth, for a random upstream gradient `dy`.

    The truth is the numerical derivative of `op`. For a gradient that differs on purpose, state the
    intent instead: `surrogate=f` (the backward pass of `op` must be that of `f`), or `backward=g`
    (it must return `g(dy, *inputs)`; for backward passes that are not linear in `dy`).

    """
    report = Report(f"gradient of {getattr(op, '__name__', op)}")
    rng = np.random.default_rng(
        [2024, seed]
    )  # not default_rng(0): x may come from that, and dy = x hides errors
    variables = [getattr(v, "value", v) if not isinstance(v, tf.Variable) else v for v in variables]
    xs, n = [tf.convert_to_tensor(x) for x in inputs], len(inputs)
    names = [f"input {i}" for i in range(n)] + [v.name for v in variables]
    y, y2 = op(*xs), op(*xs)
    dy = tf.nest.map_structure(lambda y: tf.cast(rng.standard_normal(y.shape), y.dtype), y)
    if not all(
        np.array_equal(_np(a), _np(b), equal_nan=True)
        for a, b in zip(tf.nest.flatten(y), tf.nest.flatten(y2))
    ):
        report.add(False, "deterministic", "same input, two different outputs: seed the op to check it")
        return report
    vjp(
        op, [x / 2 if x.dtype.is_floating else x for x in xs], dy, variables
    )  # a stale cache shows after this
    grads, again = vjp(op, xs, dy, variables), vjp(op, xs, dy, variables)
    for name, x, g, g2 in zip(names, [*xs, *variables], grads, again):
        if g is None:
            continue
        if g.shape != x.shape or g.dtype != x.dtype:
            report.add(
                False,
                name,
                f"its gradient is {g.dtype.name}{g.shape}, it is {tf.as_dtype(x.dtype).name}{x.shape}",
            )
        elif not np.all(np.isfinite(_np(g))):
            i = _index(np.argmin(np.isfinite(_np(g))), g)
            report.add(
                False,
                name,
                f"at {list(i)}, x = {_np(x)[i]:.4g}: the gradient is {_np(g)[i]}",
                error=np.inf,
                index=i,
            )
        elif not np.allclose(_np(g), _np(g2), rtol=1e-6, atol=0):
            report.add(False, name, "same input, same dy, two different gradients")
    if not report:
        return report
    report.add(True, "shapes, dtypes, finite, deterministic")
    grads = [
        tf.zeros_like(tf.convert_to_tensor(x)) if g is None else g for x, g in zip([*xs, *variables], grads)
    ]

    if not backward:  # a vector-Jacobian product is linear in dy
        scaled = vjp(op, xs, tf.nest.map_structure(lambda d: -2 * d, dy), variables)
        linear = all(
            s is None or np.allclose(_np(s), -2 * _np(g), RTOL[g.dtype.name], 1e-6)
            for s, g in zip(scaled, grads)
        )
        report.add(linear, "linear in dy", "" if linear else "backward(-2·dy) is not -2·backward(dy)")
    if surrogate or backward:
        intended = tf.nest.flatten(backward(dy, *xs)) if backward else vjp(surrogate, xs, dy, variables)
        for name, x, g, w in zip(names, [*xs, *variables], grads, intended):
            _compare(
                report,
                name,
                x,
                g,
                tf.zeros_like(g) if w is None else w,
                rtol,
                "backward" if backward else "surrogate",
            )
        return report

    if not variables and xs[0].dtype != tf.float64 and all(x.dtype.is_floating for x in xs):
        try:  # float64 settles the truth, then judges the dtype of x
            xs64, dy64 = tf.nest.map_structure(lambda t: tf.cast(t, tf.float64), [xs, dy])
            grads64 = [tf.zeros_like(x) if g is None else g for x, g in zip(xs64, vjp(op, xs64, dy64))]
            for name, x, g, g64 in zip(names, xs, grads, grads64):
                _compare(report, f"{name} in {x.dtype.name}", x, g, g64, None, "float64")
            xs, dy, grads = xs64, dy64, grads64
        except (TypeError, ValueError, tf.errors.InvalidArgumentError):
            report.add(None, "float64", "the op cannot; checked less precisely")
    for i, (name, x) in enumerate(zip(names, [*xs, *variables])):
        if x.dtype in ("float32", "float64"):
            _compare_numerically(report, name, op, xs, variables, i, dy, _np(grads[i]), 2, rtol, rng)
        elif x.dtype in ("float16", "bfloat16"):
            report.add(None, name, "too coarse to differentiate numerically")

    if order > 1 and report:  # the gradient is an op of x and dy: check its gradient

        def gradient(*args):
            grads = vjp(op, args[:n], tf.nest.pack_sequence_as(dy, args[n:]))
            return [tf.zeros_like(x) if g is None else g for x, g in zip(args, grads)]

        second = check_gradient(gradient, *xs, *tf.nest.flatten(dy), order=order - 1, rtol=rtol, seed=seed)
        report.add(second, f"order {order}", "; ".join(f"{c.name}: {c.detail}" for c in second.failures))
    return report


def _np(x):
    return tf.cast(x, tf.float64).numpy()


def _index(flat, x):
    return tuple(int(k) for k in np.unravel_index(flat, x.shape))


def _compare(report, name, x, got, want, rtol, label):
    """Element by element, relative to each element with a floor at 1/1000 of the largest."""
    got, want = _np(got), _np(want)
    error, tol = (
        abs(got - want),
        (rtol or RTOL[tf.as_dtype(x.dtype).name]) * (abs(want) + 1e-3 * abs(want).max(initial=0)) + 1e-30,
    )
    wrong = int(np.sum(~(error <= tol)))
    if wrong:
        i = _index(np.argmax(error / tol), got)
        _mismatch(report, name, x, i, got[i], label, want[i], f" ({wrong} of {got.size} elements wrong)")
    else:
        report.add(True, name, f"equals {label}", error=error.max(initial=0))


def _mismatch(report, name, x, i, got, label, want, more=""):
    hints = {-1: ", sign flipped", 0.5: ", factor 2 missing", 2: ", factor 2 too many", 0: ", no gradient"}
    hint = next((text for ratio, text in hints.items() if want and abs(got / want - ratio) < 1e-3), "")
    report.add(
        False,
        name,
        f"at {list(i)}, x = {_np(x)[i]:.4g}: op gives {got:.6g}, {label} {want:.6g}{hint}{more}",
        error=abs(got - want),
        index=i,
    )


def _compare_numerically(report, name, op, xs, variables, i, dy, g, probes, rtol, rng):
    """Along a random direction d, the slope of t ↦ ⟨dy, op(x + t·d)⟩ must be ⟨g, d⟩."""
    target = [*xs, *variables][i]
    x = np.array(target)
    eps, rtol = np.finfo(x.dtype).eps, rtol or RTOL[x.dtype.name]
    h = np.cbrt(eps)
    parts = lambda y: np.concatenate(
        [(_np(a) * _np(b)).ravel() for a, b in zip(tf.nest.flatten(y), tf.nest.flatten(dy))]
    )
    noise = 10 * eps / h * np.linalg.norm(parts(op(*xs)))  # rounding of op, seen through a step h

    def phi(t, d):
        moved = (x + t * d).astype(x.dtype)
        if i < len(xs):
            return parts(op(*xs[:i], tf.constant(moved), *xs[i + 1 :])).sum()
        target.assign(moved)
        try:
            return parts(op(*xs)).sum()
        finally:
            target.assign(x)

    def gap(d):
        """How far the backward pass is from the slope along d, in tolerances; and the slope."""
        numeric, bar = slope(lambda t: phi(t, d), h)
        scale = max(abs(numeric), np.linalg.norm(g * d))
        tol = rtol * scale + min(bar, 1e-3 * scale) + noise + 1e-300
        return np.nan_to_num(abs(np.vdot(g, d) - numeric) / tol, nan=np.inf), numeric

    kinks = {}
    for _ in range(probes):
        d = rng.standard_normal(x.shape) * np.maximum(1, abs(x))
        for at in kinks:
            d[at] = 0
        only = lambda part: d * np.isin(np.arange(d.size), part).reshape(d.shape)
        while gap(d)[0] > 1:
            part = np.flatnonzero(d)
            while len(part) > 1:  # like git bisect: go where the gap is
                part = max(np.array_split(part, 2), key=lambda p: gap(only(p))[0])
            at, e = _index(part[0], x), only(part)
            left, right = sorted(
                s / d[at] for s in ((phi(0, e) - phi(-h, e)) / h, (phi(h, e) - phi(0, e)) / h)
            )
            slack = 10 * (rtol * max(abs(left), abs(right)) + noise / abs(d[at]))
            if right - left < 1e3 * slack or not left - slack <= g[at] <= right + slack or len(kinks) > 9:
                return _mismatch(
                    report, name, target, at, float(g[at]), "numerically", float(gap(e)[1] / d[at])
                )
            kinks[at] = f"{list(at)} (slopes {left:.3g} and {right:.3g}, op takes {g[at]:.3g})"
            d[at] = 0
    report.add(
        True,
        name,
        "equals the numerical derivative" + f", but for kinks at {', '.join(kinks.values())}" * bool(kinks),
    )
