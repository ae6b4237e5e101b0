"""Exercises of notebook 10: a second derivative, an implicit gradient, a fixed point to mend."""

import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer


def _judge_second(op, x, second, mistakes):
    """Judge the gradient of an elementwise op as a function of `x`, eager and in a graph."""
    x, dy, ddy = tf.constant(x), judging.random_upstream(x.shape), judging.random_array(x.shape, seed=9)

    def derivative(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            dx = judging.run(op, [x], dy)[1][0]
        return tape.gradient(dx, x, output_gradients=ddy)

    graph = tf.function(derivative, autograph=False).get_concrete_function(x)
    for mode, got in (("", derivative(x)), (" in a tf.function", graph(x))):
        where = f"the second derivative{mode}"
        if got is None:
            cause = "in grad the slope is a constant: no stop_gradient, no NumPy"
            raise WrongAnswer(where, "a tensor", "None", cause)
        judging.compare(got, ddy * dy * second, where, {c: ddy * dy * s for c, s in mistakes.items()})


# --- 1. Right to second order ---------------------------------------------------------------------


def _judge_log_cosh(op):
    judging.need_callable(op, "log_cosh")
    x = np.array([-3.0, -0.7, 0.0, 0.2, 1.5])
    judging.judge_op(
        op,
        forward=lambda x: np.log(np.cosh(x)),
        backward=lambda dy, x: dy * np.tanh(x),
        inputs=[x],
        mistakes={
            "dy is missing": lambda dy, x: np.tanh(x),
            "the slope has lost its sign: it is tanh(x), negative on the left": lambda dy, x: (
                dy * np.tanh(abs(x))
            ),
            "that is the second derivative: grad gives the first, dy · tanh(x)": lambda dy, x: (
                dy * (1 - np.tanh(x) ** 2)
            ),
        },
        forward_mistakes={
            "log 2 is missing": lambda x: np.log(2 * np.cosh(x)),
        },
    )
    large = np.array([-1000.0, -100.0, 100.0, 1000.0])
    y, (dx,) = judging.run(op, [tf.constant(large, tf.float32)], np.ones(4))
    cause = "cosh overflows: take the form with softplus"
    judging.compare(y, abs(large) - np.log(2), "the output for large x", cause=cause)
    cause = "sinh(x)/cosh(x) overflows: take tf.tanh"
    judging.compare(dx, np.sign(large), "the gradient for large x", cause=cause)
    _judge_second(op, x, 1 - np.tanh(x) ** 2, {})
    _judge_second(op, large, np.zeros(4), {})
    return "A rule made of TensorFlow ops of x is its own second derivative's forward pass."


def _solve_log_cosh():
    @tf.custom_gradient
    def log_cosh(x):
        size = tf.abs(x)
        y = size + tf.nn.softplus(-2.0 * size) - tf.math.log(tf.constant(2.0, x.dtype))

        def grad(dy):
            return dy * tf.tanh(x)

        return y, grad

    return log_cosh


log_cosh = Exercise(
    "right to second order",
    _judge_log_cosh,
    (
        "Forward: the form with softplus. In which dtype is your log 2?",
        "Backward: `dy * tf.tanh(x)`, with the `x` of the op; no `stop_gradient`, no NumPy.",
        "Return `size + tf.nn.softplus(-2.0 * size) - tf.math.log(tf.constant(2.0, x.dtype))`, and `grad`.",
    ),
    _solve_log_cosh,
    minutes=8,
    difficulty=1,
)


# --- 2. A gradient without steps ------------------------------------------------------------------


def _judge_cubic(op):
    judging.need_callable(op, "solve_cubic")
    y = np.array([-1.5, -0.4, 0.1, 0.8, 2.0])
    c, slope = y + y**3, 1 / (1 + 3 * y**2)
    judging.judge_op(
        op,
        forward=lambda c: y,
        backward=lambda dy, c: dy * slope,
        inputs=[c],
        mistakes={
            "that is dc/dy, the slope of the equation: the solution has its inverse": lambda dy, c: (
                dy / slope
            ),
            "the slope was taken at c: the theorem speaks of the solution y": lambda dy, c: (
                dy / (1 + 3 * c**2)
            ),
            "dy is passed on unchanged: differentiate y + y³ = c on both sides": lambda dy, c: dy,
            "dy is missing": lambda dy, c: slope,
        },
        forward_mistakes={
            "that is c: run newton on it": lambda c: c,
        },
    )
    mistakes = {"y was a constant there, but not c: use solve_cubic(c) in grad": 0 * y}
    _judge_second(op, c, -6 * y * slope**3, mistakes)
    return "The gradient comes from the equation and its solution: no step of Newton's method is in the rule."


def _solve_cubic():
    def newton(c):
        y = c
        for _ in range(12):
            y = y - (y + y**3 - c) / (1.0 + 3.0 * y**2)
        return y

    @tf.custom_gradient
    def solve_cubic(c):
        def grad(dy):
            y = solve_cubic(tf.identity(c))  # the op itself: no constant, and a copy for traced ops
            return dy / (1.0 + 3.0 * y**2)

        return newton(tf.stop_gradient(c)), grad

    return solve_cubic


solve_cubic = Exercise(
    "a gradient without steps",
    _judge_cubic,
    (
        "Differentiate `y + y³ = c` on both sides: `dy + 3·y²·dy = dc`. What is `dy/dc`?",
        "For the second derivative `y` must depend on `c` inside of `grad`. Which op knows how?",
        "In `grad`: `y = solve_cubic(tf.identity(c))`, then return `dy / (1.0 + 3.0 * y**2)`.",
    ),
    _solve_cubic,
    minutes=12,
    difficulty=2,
)


# --- 3. Find and mend: a network that feeds back --------------------------------------------------


def _adjoint(upstream, slope, w, steps=60):
    u = upstream
    for _ in range(steps):
        u = upstream + (u * slope) @ w.T
    return u


def _judge_equilibrium(op):
    judging.need_callable(op, "equilibrium")
    x, w = judging.random_array((4, 3), seed=5), 0.2 * judging.random_array((3, 3), seed=6)
    z = np.zeros_like(x)
    for _ in range(60):
        z = np.tanh(z @ w + x)
    slope, ones = 1 - z**2, np.ones_like(z)

    def rule(transpose=True, solve=True, last=slope, inner=slope, state=z):
        def backward(dy, x, w):
            u = _adjoint(dy, inner, w if transpose else w.T) if solve else dy
            return u * last, state.T @ (u * last)

        return backward

    judging.judge_op(
        op,
        forward=lambda x, w: z,
        backward=rule(),
        inputs=[x, w],
        mistakes={
            "the slope is missing in the gradient of w": lambda dy, x, w: (
                rule()(dy, x, w)[0],
                rule(last=ones)(dy, x, w)[1],
            ),
            "both faults are still there: look at `w` in the loop, and at what is returned": rule(
                False, last=ones
            ),
            "w stands as in the forward pass: the way back needs its transpose": rule(False),
            "the slope of the last step is missing: u belongs to z, x stands inside of tanh": rule(last=ones),
            "the slope is missing in the loop": rule(inner=ones),
            "nothing is solved: this is the gradient of one last step": rule(solve=False),
            "the gradient of w holds x where z belongs: w is multiplied by z": rule(state=x),
        },
    )
    return "Backward it is the same loop with the transposed Jacobian, then one step to the arguments."


def _solve_equilibrium():
    @tf.custom_gradient
    def equilibrium(x, w):
        z = tf.zeros_like(x)
        for _ in range(25):
            z = tf.tanh(z @ w + x)

        def grad(dy):
            slope = 1.0 - z**2
            u = dy
            for _ in range(25):
                u = dy + (u * slope) @ tf.transpose(w)
            return u * slope, tf.transpose(z) @ (u * slope)

        return z, grad

    return equilibrium


mend_equilibrium = Exercise(
    "find and mend: a network that feeds back",
    _judge_equilibrium,
    (
        "Ask `check_gradient`, with a small `w`. Then write down `J` for `tanh(z·w + x)`: what is `Jᵀ·u`?",
        "Fault one: `J` appears where `Jᵀ` belongs. Fault two: from `u` it is one step more.",
        "`u = dy + (u * s) @ tf.transpose(w)`; return `u * s` and `tf.transpose(z) @ (u * s)`.",
    ),
    _solve_equilibrium,
    minutes=12,
    difficulty=3,
)
