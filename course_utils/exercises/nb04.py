"""Exercises of notebook 04: a clipped estimator, an exact spelling, a quantizer to mend."""

import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

IGNORES_DY = "the upstream gradient dy is missing: return dy where the gradient passes"

# --- 1. Ternary weights with a clipped estimator --------------------------------------------------


def _judge_ternary(op):
    def inside(x):
        return abs(x) <= 1

    judging.judge_op(
        op,
        forward=lambda x: np.clip(np.rint(x), -1, 1),
        backward=lambda dy, x: dy * inside(x),
        inputs=[1.2 * judging.random_array((9, 3), seed=41)],
        mistakes={
            "dy passes everywhere: stop it where |x| > 1": lambda dy, x: dy,
            "the gradient is 0 everywhere, like the derivative: pass dy where |x| <= 1": lambda dy, x: 0 * dy,
            "the window is the wrong way round: pass dy inside of it, not outside": lambda dy, x: (
                dy * ~inside(x)
            ),
            "|dy| was compared with 1, not |x|": lambda dy, x: dy * inside(dy),
            "dy was clipped: it shall pass as it is, or not at all": lambda dy, x: np.clip(dy, -1, 1),
            IGNORES_DY: lambda dy, x: 1.0 * inside(x),
        },
        forward_mistakes={
            "this is the sign: inputs from -0.5 to 0.5 shall give 0": np.sign,
            "only rounded: every output must be -1, 0 or 1": np.rint,
            "only clipped: every output must be -1, 0 or 1": lambda x: np.clip(x, -1, 1),
        },
    )
    return "Three levels forward; backward dy as it is for x from -1 to 1, and nothing outside."


def _solve_ternary():
    @tf.custom_gradient
    def ternary(x):
        def grad(dy):
            return tf.where(tf.abs(x) <= 1.0, dy, tf.zeros_like(dy))  # pseudo-gradient

        return tf.round(tf.clip_by_value(x, -1.0, 1.0)), grad

    return ternary


clipped_ste = Exercise(
    "ternary weights with a clipped estimator",
    _judge_ternary,
    (
        "Forward: `tf.round` and `tf.clip_by_value`. Backward: where does dy pass, and what is elsewhere?",
        "`tf.where(condition, a, b)` takes `a` where the condition holds; the condition is about x, not dy.",
        "`grad` returns `tf.where(tf.abs(x) <= 1.0, dy, tf.zeros_like(dy))`.",
    ),
    _solve_ternary,
    minutes=5,
    difficulty=1,
)


# --- 2. A spelling that is exact ------------------------------------------------------------------

ROUNDED = "q - x is rounded before x is added again: add to q something that is exactly 0"
UNROUNDED = "the forward pass gives x: it must give q, and x only lends its gradient"
Q_LEARNS = "q receives a gradient too, as if the rounding were a weight: stop it"


def _exact_cases():
    x = np.concatenate([3 * judging.random_array((60,), seed=42), [-8.0, 8.0]])
    yield tf.constant(x, tf.float32), tf.constant(np.clip(np.rint(x / 0.1), -8, 7) * 0.1, tf.float32)
    x = 300 * judging.random_array((60,), seed=43)
    yield tf.constant(x, tf.bfloat16), tf.constant(np.sign(x), tf.bfloat16)


def _judge_exact(straight_through):
    judging.need_callable(straight_through, "straight_through")
    for x, q in _exact_cases():
        dy = judging.random_upstream(x.shape)
        for mode, runner in (("", judging.run), (" in a tf.function", judging.run_in_graph)):
            y, (dx, dq) = runner(straight_through, [x, q], dy)
            where = f"{{}} for {x.dtype.name}{mode}"
            y = judging.need_tensor(y, q, where.format("the output"))
            _need_equal(y, q, x, where.format("the output"))
            if dq is not None and np.any(tf.cast(dq, tf.float32) != 0):
                raise WrongAnswer(where.format("the gradient of q"), "None or zeros", "another", Q_LEARNS)
            what = where.format("the gradient of x")
            if dx is None:
                raise WrongAnswer(what, "dy", "None", "x is cut off: it must appear outside stop_gradient")
            mistakes = {
                "the gradient of x is dy negated: turn the difference around": -dy,
                "the gradients of the two x cancel: stop one of them": 0 * dy,
            }
            judging.compare(judging.need_tensor(dx, x, what), dy, what, mistakes)
    return "The output is q itself, or q plus an exact 0, so nothing is rounded, in any dtype."


def _need_equal(y, q, x, where: str) -> None:
    """Refuse an output that is not q to the last bit; no tolerance, since that is the exercise."""
    y, q, x = (np.asarray(tf.cast(t, tf.float64)) for t in (y, q, x))
    wrong = np.flatnonzero(y != q)
    if wrong.size:
        i = wrong[np.argmax(abs(y - q)[wrong])]
        cause = UNROUNDED if np.allclose(y, x) else ROUNDED
        place = f"{where}, element [{i}], where x is {x[i]:.6g}"
        raise WrongAnswer(place, f"{q[i]:.9g}", f"{y[i]:.9g}", cause)


def _solve_exact():
    def straight_through(x, q):
        return (x - tf.stop_gradient(x)) + tf.stop_gradient(q)

    return straight_through


exact_straight_through = Exercise(
    "a spelling that is exact",
    _judge_exact,
    (
        "`x + tf.stop_gradient(q - x)` fails where q - x is rounded. Which difference is never rounded?",
        "`x - tf.stop_gradient(x)` is exactly 0, and its gradient with respect to x is 1.",
        "Add `tf.stop_gradient(q)` to that difference; keep the brackets.",
    ),
    _solve_exact,
    minutes=8,
    difficulty=2,
)


# --- 3. Find and mend: an unsigned quantizer ------------------------------------------------------


def _judge_unsigned(op):
    def level(x, highest):
        return np.clip(np.rint(x / 0.5), 0, highest) * 0.5

    def inside(x):
        return (x >= 0) & (x <= 1.5)

    x = np.concatenate([0.75 + judging.random_array((9, 2), seed=44), [[-3.0, 3.0], [1.6, -0.1]]])
    judging.judge_op(
        op,
        forward=lambda x: level(x, 3),
        backward=lambda dy, x: dy * inside(x),
        inputs=[x],
        mistakes={
            "dy passes where the quantizer saturates, too: let it pass for 0 <= x <= 1.5": lambda dy, x: dy,
            "the gradient stops half a step too late, at the last rounding edge, not at the last level": (
                lambda dy, x: dy * ((x >= -0.25) & (x <= 1.75))
            ),
            "the gradient passes up to 2.0, a level that two bits do not have": lambda dy, x: (
                dy * ((x >= 0) & (x <= 2))
            ),
            "there is a gradient of 0 everywhere: is x itself behind a stop_gradient?": lambda dy, x: 0 * dy,
            IGNORES_DY: lambda dy, x: 1.0 * inside(x),
        },
        forward_mistakes={
            "x comes back as it was: stop_gradient holds back the wrong term": lambda x: x,
            "x comes back clipped, but not rounded: stop_gradient holds back the wrong term": lambda x: (
                np.clip(x, 0, 1.5)
            ),
            "there are five levels: two bits hold the codes 0 to 3": lambda x: level(x, 4),
            "there is a level too few: two bits hold the codes 0 to 3": lambda x: level(x, 2),
        },
    )
    return "Three faults: the wrong term was stopped, a level was too many, and dy passed where q saturates."


def _solve_unsigned():
    def quantize_unsigned(x):
        inside = tf.clip_by_value(x, 0.0, 1.5)  # its own gradient stops dy where q saturates
        q = tf.round(inside / 0.5) * 0.5
        return inside + tf.stop_gradient(q - inside)

    return quantize_unsigned


mend_quantizer = Exercise(
    "find and mend: an unsigned quantizer",
    _judge_unsigned,
    (
        "There are three faults. First print the outputs for x = 0.2 and x = 3: are they levels at all?",
        "The forward value must be q, so q is what stop_gradient may hold; and 2**2 codes end at 3.",
        (
            "`tf.clip_by_value` already has the gradient that is wanted: clip x first, then let the "
            "clipped x take the place of x in `x + tf.stop_gradient(q - x)`."
        ),
    ),
    _solve_unsigned,
    minutes=10,
    difficulty=3,
)
