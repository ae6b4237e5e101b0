"""Exercises of notebook 08: a numerical gradient, a test of the upstream gradient, a gate to mend."""

import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

# --- 1. A numerical vector-Jacobian product -------------------------------------------------------


def _columns(f, x, h, down=1.0):
    """Give the differences of f along each axis, one row for each; `down` scales the lower step."""
    rows = [(f(x + h * e) - f(x - down * h * e)) / ((1 + down) * h) for e in np.eye(x.size)]
    return np.array(rows)


def _mixed(x):
    return np.sin(np.cumsum(x))


def _pairs(x):
    return x[:-1] * np.exp(x[1:])


def _judge_numerical(numerical_vjp):
    judging.need_callable(numerical_vjp, "numerical_vjp")
    x, h = judging.random_array((4,), seed=1), 0.01
    for name, f in (("sin of the running sum", _mixed), ("products of neighbors", _pairs)):
        dy, given = judging.random_upstream(f(x).shape), x.copy()
        answer = numerical_vjp(f, given, dy, h)
        if answer is None:
            raise WrongAnswer("what it returns", "an array of shape (4,)", "None", "a `return` is missing")
        if not np.array_equal(given, x):
            cause = "x itself was changed: work on a copy, or add h times a row of np.eye"
            raise WrongAnswer("x after the call", x.round(3).tolist(), given.round(3).tolist(), cause)
        where = f"the gradient of {name}"
        got = judging.need_tensor(tf.constant(answer, tf.float64), tf.constant(x), where)
        right = _columns(f, x, h)
        mistakes = {
            "dy is missing: weight each output by its element of dy before you add": right.sum(axis=1),
            "a factor of 2 is missing: the two points lie 2h apart": 2 * right @ dy,
            "this is a one-sided difference: take the points x + h and x - h": _columns(f, x, h, 0.0) @ dy,
        }
        if f is _mixed:
            own = dy * (f(x + h) - f(x - h)) / (2 * h)
            mistakes["all elements moved at once: move one, and add up what every output does"] = own
            mistakes["each output was used for its own input only: add up what every output does"] = (
                dy * np.diag(right)
            )
        judging.compare(got, right @ dy, where, mistakes)
    return "Two forward passes for each element: slow, and it needs nothing of the code it judges."


def _solve_numerical():
    def numerical_vjp(f, x, dy, h):
        gradient = np.zeros_like(x)
        for i, step in enumerate(h * np.eye(x.size)):
            gradient[i] = np.sum(dy * (f(x + step) - f(x - step))) / (2 * h)
        return gradient

    return numerical_vjp


numerical_vjp = Exercise(
    "a numerical vector-Jacobian product",
    _judge_numerical,
    (
        "Move one element of x by h up and by h down. Every output may change.",
        "`dy` says how much the loss cares for each output: `np.sum(dy * (up - down))`.",
        "Row i of `h * np.eye(x.size)` moves element i alone; divide by the distance of the points, `2 * h`.",
    ),
    _solve_numerical,
    minutes=8,
    difficulty=1,
)


# --- 2. A test for the upstream gradient ----------------------------------------------------------


def _sine(backward):
    """Make a sine with a backward pass `cos(x) · backward(dy)`."""

    @tf.custom_gradient
    def op(x):
        return tf.sin(x), lambda dy: tf.cos(x) * backward(dy)

    return op


_NEGATIVE = "a positive factor does not see the sign of dy: use a negative one"
_BIGGER = "dy stayed too small, or only its sign was turned: use a negative factor of the size 100"
#: What the backward pass does with dy, whether that is linear, and a likely cause of the wrong verdict.
_UPSTREAM = (
    ("multiplies dy by cos(x)", tf.identity, True, "float32 rounds: compare with a tolerance, np.allclose"),
    ("multiplies dy by 0.1·cos(x)", lambda dy: 0.1 * dy, True, "float32 rounds: compare with a tolerance"),
    ("ignores dy", tf.ones_like, False, "compare two backward passes, for dy and for a multiple of it"),
    ("takes |dy|", tf.abs, False, _NEGATIVE),
    ("drops negative dy", tf.nn.relu, False, _NEGATIVE),
    ("takes dy²", tf.square, False, "with a dy of ones and a factor of 1 a square hides: use a random dy"),
    ("clips dy to [-1, 1]", lambda dy: tf.clip_by_value(dy, -1.0, 1.0), False, _BIGGER),
    ("clips dy to [-30, 30]", lambda dy: tf.clip_by_value(dy, -30.0, 30.0), False, _BIGGER),
)


def _judge_linear(linear_in_dy):
    judging.need_callable(linear_in_dy, "linear_in_dy")
    x = tf.constant(judging.random_array((4, 3), seed=2), tf.float32)
    for name, backward, want, cause in _UPSTREAM:
        got = linear_in_dy(_sine(backward), x)
        if np.shape(got) != () or np.asarray(got).dtype != bool:
            raise WrongAnswer("what it returns", "True or False", f"{got!r:.60}", "return one truth value")
        if bool(got) is not want:
            raise WrongAnswer(f"an op that {name}", want, bool(got), cause)
    return "A vector-Jacobian product is linear in dy; whatever is not depends on batch size and loss scale."


def _solve_linear():
    def linear_in_dy(op, x):
        dy = np.random.default_rng(0).normal(size=op(x).shape).astype("float32")
        results = []
        for factor in (1.0, -100.0):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = op(x)
            results.append(tape.gradient(y, x, output_gradients=tf.constant(factor * dy)))
        return np.allclose(-100.0 * results[0], results[1], rtol=1e-4, atol=1e-4)

    return linear_in_dy


linear_in_dy = Exercise(
    "a test for the upstream gradient",
    _judge_linear,
    (
        "Linear means: c times the upstream gradient gives c times the gradient. Which c shows most?",
        "A positive c does not see `|dy|`, and `c = -1` does not see a clip: take a large negative one.",
        "Draw a random dy, take the gradients for `dy` and `-100 * dy`, compare by `np.allclose`.",
    ),
    _solve_linear,
    minutes=10,
    difficulty=2,
)


# --- 3. Find and mend: a gate ---------------------------------------------------------------------


def _judge_gate(gate):
    judging.need_callable(gate, "gate")
    x, w = judging.random_array((5, 3), seed=3), judging.random_array((3,), seed=4)
    dy, s = judging.random_upstream((5, 3)), 1 / (1 + np.exp(-w))
    _, (_, dw) = judging.run(gate, [tf.constant(x, tf.float32), tf.constant(w, tf.float32)], dy)
    if tf.is_tensor(dw) and dw.shape != w.shape:
        cause = "w serves every example of the batch: sum its gradient over axis 0"
        raise WrongAnswer("the shape of the gradient of w", (3,), tuple(dw.shape), cause)
    full = dy * x * s * (1 - s)
    judging.judge_op(
        gate,
        forward=lambda x, w: x * s,
        backward=lambda dy, x, w: (dy * s, full.sum(axis=0)),
        inputs=[x, w],
        mistakes={
            "the slope of the sigmoid is s·(1 - s), not s": lambda dy, x, w: (
                dy * s,
                (dy * x * s).sum(axis=0),
            ),
            "a mean was taken over the batch: the gradient of a shared weight is the sum": lambda dy, x, w: (
                dy * s,
                full.mean(axis=0),
            ),
            "dy is missing in the gradient of w": lambda dy, x, w: (dy * s, (x * s * (1 - s)).sum(axis=0)),
            "the gradient of x was right before": lambda dy, x, w: (dy * s * (1 - s), full.sum(axis=0)),
        },
        dtypes=("float32",),
    )
    return (
        "One fault in the shape, one in the value: only a tape around a tf.function sees the first by itself."
    )


def _solve_gate():
    @tf.custom_gradient
    def gate(x, w):
        s = tf.sigmoid(w)

        def grad(dy):
            return dy * s, tf.reduce_sum(dy * x * s * (1.0 - s), axis=0)

        return x * s, grad

    return gate


mend_gate = Exercise(
    "find and mend: a gate",
    _judge_gate,
    (
        "Ask `check_gradient` about it: it names the argument, the place and a likely cause.",
        "There are two faults, both in the gradient of `w`: its shape, and the slope of the sigmoid.",
        "`w` is used by every example: `tf.reduce_sum(dy * x * s * (1 - s), axis=0)`.",
    ),
    _solve_gate,
    minutes=10,
    difficulty=3,
)
