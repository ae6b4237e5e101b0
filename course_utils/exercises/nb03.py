"""Exercises of notebook 03: a logarithm with a guard, log(1 - exp(-x)), a loss that is not finite."""

import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise

IGNORES_DY = "the upstream gradient dy is missing: multiply the local derivative by it"


# --- 1. A logarithm with a guard: no custom gradient needed ---------------------------------------


def _log(x):
    return np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), 0.0)


def _log_slope(x):
    return np.where(x > 0, 1 / np.where(x > 0, x, 1.0), 0.0)


def _judge_log(op):
    trap = "NaN leaks from the branch that was not taken: choose a harmless input first, before the log"
    with np.errstate(all="ignore"):
        judging.judge_op(
            op,
            forward=_log,
            backward=lambda dy, x: dy * _log_slope(x),
            inputs=[np.array([[-2.0, 0.0, 0.5], [1.0, 3.0, 20.0]])],
            mistakes={
                trap: lambda dy, x: np.where(x == 0, np.nan, dy * _log_slope(x)),
                IGNORES_DY: lambda dy, x: _log_slope(x),
                "the gradient is 1/x for negative x as well: the output is constant there": lambda dy, x: (
                    dy * np.divide(1, x, out=np.zeros_like(x), where=x != 0)
                ),
            },
            forward_mistakes={
                "this is the plain logarithm: the output shall be 0 where x <= 0": np.log,
                "the output was multiplied by a mask: 0 times inf, or times NaN, is NaN": lambda x: (
                    np.log(x) * (x > 0)
                ),
                "this is log(|x|): the output shall be 0 where x <= 0": lambda x: np.log(abs(x)),
                "x was clipped to a small number: the output is its logarithm, not 0": lambda x: np.log(
                    np.maximum(x, 1e-7)
                ),
            },
        )
    return "Two tf.where, one before and one after: the derivative of autodiff is then finite everywhere."


def _solve_log():
    def safe_log(x):
        positive = x > 0
        inside = tf.where(positive, x, tf.ones_like(x))
        return tf.where(positive, tf.math.log(inside), tf.zeros_like(x))

    return safe_log


safe_log = Exercise(
    "a logarithm with a guard",
    _judge_log,
    (
        "You need no custom gradient. Where does the example `x**0.5` above choose its harmless input?",
        "The first `tf.where` puts a 1 in place of each x that is not positive, and then comes the log.",
        "`tf.where(x > 0, tf.math.log(tf.where(x > 0, x, tf.ones_like(x))), tf.zeros_like(x))`",
    ),
    _solve_log,
    minutes=5,
    difficulty=1,
)


# --- 2. log(1 - exp(-x)) --------------------------------------------------------------------------

#: Judged one by one, since a tolerance relative to the largest value would hide the small ones.
RANGES = {
    "tiny": [[1e-9, 1e-8]],
    "middle": [[0.01, 0.5, 0.7], [1.0, 2.0, 3.0]],
    "large": [[18.0, 20.0]],
    "huge": [[60.0, 1000.0]],
}


def _log1mexp(x):
    return np.where(x < np.log(2), np.log(-np.expm1(-x)), np.log1p(-np.exp(-x)))


def _log1mexp_slope(x):
    return np.exp(-x) / -np.expm1(-x)  # 1 / expm1(x), without the overflow


def _judge_log1mexp(op):
    mistakes = {
        IGNORES_DY: lambda dy, x: _log1mexp_slope(x),
        "the sign of the gradient is turned: the output grows with x": lambda dy, x: -dy * _log1mexp_slope(x),
        "the gradient rounds 1 - exp(-x) to 0 for small x: write it with expm1": lambda dy, x: (
            dy * np.exp(-x) / (np.float32(1) - np.exp(-np.float32(x)))
        ),
        "NaN leaks from a branch that tf.where did not take: give the gradient yourself": lambda dy, x: (
            dy * np.nan
        ),
        "a difference of two numbers near 1 rounds to 0 for large x: 1/expm1(x) subtracts nothing": (
            lambda dy, x: 0 * dy
        ),
    }
    forward = {
        "1 - exp(-x) rounds to 1 for large x: log1p(-exp(-x)) keeps the small number": lambda x: 0 * x,
        "1 - exp(-x) rounds to 0 for small x: -expm1(-x) keeps the small number": lambda x: 0 * x - np.inf,
    }
    with np.errstate(all="ignore"):
        for x in RANGES.values():
            judging.judge_op(
                op,
                forward=_log1mexp,
                backward=lambda dy, x: dy * _log1mexp_slope(x),
                inputs=[np.array(x)],
                mistakes=mistakes,
                forward_mistakes=forward,
            )
    return "The gradient is the derivative, in a form that rounds well from 1e-9 to 1000: no pseudo-gradient."


def _solve_log1mexp():
    @tf.custom_gradient
    def log1mexp(x):
        def grad(dy):
            return dy / tf.math.expm1(x)

        small = tf.math.log(-tf.math.expm1(-x))
        large = tf.math.log1p(-tf.exp(-x))
        return tf.where(x < 0.6931, small, large), grad

    return log1mexp


log1mexp = Exercise(
    "log(1 - exp(-x)) without loss",
    _judge_log1mexp,
    (
        "Of `log(-expm1(-x))` and `log1p(-exp(-x))`, which is exact for small x? `tf.where` may choose.",
        "The first for x below log 2 = 0.6931, the second above. Autodiff through both is NaN at 1e-9.",
        "The derivative exp(-x) / (1 - exp(-x)) is 1 / expm1(x): `grad` returns `dy / tf.math.expm1(x)`.",
    ),
    _solve_log1mexp,
    minutes=10,
    difficulty=2,
)


# --- 3. Find and mend: a loss that is not finite --------------------------------------------------

LABELS = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
NEAR, FAR = [[0.5, 0.3, -1.5], [2.0, 0.0, -3.0]], [[100.0, -100.0, -100.0], [100.0, -50.0, 50.0]]


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


def _judge_mend(loss):
    judging.need_callable(loss, "binary_cross_entropy")

    def op(x):
        return loss(x, tf.constant(LABELS, x.dtype))

    def residual(x):
        return _sigmoid(x) - LABELS

    mistakes = {
        IGNORES_DY: lambda dy, x: residual(x),
        "this divides by p(1 - p): that is the gradient for p, the op is asked for that of the logits": (
            lambda dy, x: dy * residual(x) / (_sigmoid(x) * (1 - _sigmoid(x)))
        ),
        "the sign is turned: training would walk uphill": lambda dy, x: -dy * residual(x),
        "max and |x| have a corner at logit 0, where autodiff takes slope 1: see the max form above": (
            lambda dy, x: dy * np.where(x == 0, 1 - LABELS, residual(x))
        ),
    }

    def clipped(x, least):
        p = np.clip(np.float32(_sigmoid(x)), np.float32(least), np.float32(1 - least))
        return -(LABELS * np.log(p) + (1 - LABELS) * np.log(np.float32(1) - p))

    forward = {
        "p rounds to 0 or 1, and log(0) is -inf: work with the logits, never with p": _naive_loss,
        "p was clipped: the loss stays finite, but wrong, and its gradient is 0": lambda x: clipped(x, 1e-7),
        "the sign of the loss is turned": lambda x: -_cross_entropy(x),
    }
    with np.errstate(all="ignore"):
        for x in (NEAR, FAR):
            judging.judge_op(
                op,
                forward=_cross_entropy,
                backward=lambda dy, x: dy * residual(x),
                inputs=[np.array(x)],
                mistakes=mistakes,
                forward_mistakes=forward,
            )
    return (
        "Loss and gradient are right at ±100 too. The shortest mend is the built-in, with no custom gradient."
    )


def _cross_entropy(x):
    return np.logaddexp(0, x) - x * LABELS


def _naive_loss(x):
    p = np.float32(1) / (1 + np.exp(-np.float32(x)))
    return -LABELS * np.log(p) - (1 - LABELS) * np.log(1 - p)


def _solve_mend():
    def binary_cross_entropy(logits, labels):
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    return binary_cross_entropy


mend_cross_entropy = Exercise(
    "find and mend: a loss that is not finite",
    _judge_mend,
    (
        "Call it with logits 100 and -100 and both labels; then compare its gradient at 0.3 with autodiff.",
        "Two faults: the log of a probability that has rounded to 0 or 1, and a gradient that belongs to p.",
        "The best mend deletes the op: look in `tf.nn` for a sigmoid cross entropy that takes logits.",
    ),
    _solve_mend,
    minutes=8,
    difficulty=3,
)
