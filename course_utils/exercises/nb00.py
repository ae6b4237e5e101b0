"""Exercise of notebook 00: how an exercise works."""

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise


def _judge_double(op):
    judging.judge_op(
        op,
        forward=lambda x: 2 * x,
        backward=lambda dy, x: 2 * dy,
        inputs=[judging.random_array((4, 3), seed=0)],
        forward_mistakes={
            "the tensor was squared: multiply by 2 instead": lambda x: x**2,
            "the tensor comes back as it was: multiply it by 2": lambda x: x,
            "2 was added: multiply by 2 instead": lambda x: x + 2,
        },
    )
    return "TensorFlow knows the derivative of a product, so this op needs no gradient of your own."


def _solve_double():
    def double(x):
        return 2 * x

    return double


double = Exercise(
    "double a tensor",
    _judge_double,
    (
        "Tensors understand Python's arithmetic: `+`, `-`, `*`, `/`.",
        "Replace the line with `raise` by one that returns `2 * x`.",
    ),
    _solve_double,
    minutes=1,
    difficulty=1,
)
