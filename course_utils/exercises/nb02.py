"""Exercises of notebook 02: an option by closure, a training step by hand, an op that fails in `fit`."""

import keras
import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

# --- 1. An option, bound by closure ---------------------------------------------------------------


def _judge_factory(make_op):
    judging.need_callable(make_op, "make_clipped_identity")
    x = judging.random_array((6, 3), seed=1)
    for low, high in ((-0.5, 0.5), (-2.0, 0.25)):
        op = make_op(low, high)
        if op is None or tf.is_tensor(op) or not callable(op):
            cause = "a factory returns the decorated function itself, without calling it"
            raise WrongAnswer(f"make_op({low}, {high})", "a function of x", f"{op!r:.60}", cause)
        judging.judge_op(
            op,
            forward=lambda x: x,
            backward=lambda dy, x, low=low, high=high: np.clip(dy, low, high),
            inputs=[x],
            mistakes={
                "the gradient is not clipped": lambda dy, x: dy,
                "x was clipped: the op must clip dy": lambda dy, x, low=low, high=high: np.clip(x, low, high),
                "the bounds of the first op are used for the second too": lambda dy, x: np.clip(
                    dy, -0.5, 0.5
                ),
            },
            forward_mistakes={
                "the forward pass must leave x alone": lambda x, low=low, high=high: np.clip(x, low, high)
            },
            dtypes=("float32", "float16"),
        )
    return "Options that are bound by closure are never turned into tensors, so every mode and dtype works."


def _solve_factory():
    def make_clipped_identity(low, high):
        @tf.custom_gradient
        def clipped_identity(x):
            def grad(dy):
                return tf.clip_by_value(dy, low, high)

            return tf.identity(x), grad

        return clipped_identity

    return make_clipped_identity


clipped_identity = Exercise(
    "an option by closure",
    _judge_factory,
    (
        "The outer function takes the options, the inner one is decorated and takes the tensor only.",
        "`grad` may use `low` and `high` of the outer function: it closes over them.",
        "`grad` returns `tf.clip_by_value(dy, low, high)`, with the Python numbers as they are.",
    ),
    _solve_factory,
    minutes=6,
    difficulty=1,
)


# --- 2. A training step by hand -------------------------------------------------------------------


def _judge_step(step):
    judging.need_callable(step, "train_step")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
    x, y = judging.random_array((8, 2), seed=2), judging.random_array((8, 1), seed=3)
    x, y = tf.constant(x, tf.float32), tf.constant(y, tf.float32)
    before = [v.numpy() for v in model.trainable_variables]
    residual = x.numpy() @ before[0] + before[1] - y.numpy()
    gradients = [2 * x.numpy().T @ residual / len(x), 2 * residual.mean(axis=0)]
    loss = step(model, keras.optimizers.SGD(0.1), x, y)
    if not tf.is_tensor(loss) or loss.shape.rank != 0:
        got = "None" if loss is None else f"{loss!r:.60}"
        raise WrongAnswer("what the step returns", "the mean squared error, a scalar tensor", got)
    judging.need_tensor(loss, tf.reduce_sum(x), "the loss")
    judging.compare(
        loss, np.mean(residual**2), "the loss", cause="mean of (model(x) - y)², before the update"
    )
    for variable, old, gradient in zip(model.trainable_variables, before, gradients, strict=True):
        moved = tf.constant(variable.numpy() - old)
        mistakes = {
            "the weights did not move: hand (gradient, variable) pairs to optimizer.apply": np.zeros_like(
                old
            ),
            "the weights moved uphill: the optimizer already subtracts": 0.1 * gradient,
            "the learning rate was applied twice": -0.01 * gradient,
        }
        judging.compare(moved, -0.1 * gradient, f"how far {variable.name} moved", mistakes)
    return "Forward under the tape, gradients of the loss, one update: all that `fit` does to the weights."


def _solve_step():
    def train_step(model, optimizer, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return train_step


train_step = Exercise(
    "one training step by hand",
    _judge_step,
    (
        "Three parts: the loss inside `with tf.GradientTape() as tape:`, the gradients, the update.",
        "`tape.gradient(loss, model.trainable_variables)` gives one gradient for each variable, in order.",
        "`optimizer.apply_gradients(zip(gradients, model.trainable_variables))`, then return the loss.",
    ),
    _solve_step,
    minutes=8,
    difficulty=2,
)


# --- 3. Find and mend: works by hand, fails in fit ------------------------------------------------

STATIC = "x.shape[0] is None where the batch size is unknown, as in fit: ask for tf.shape(x)[0]"


def _judge_mean(op):
    judging.need_callable(op)
    if op(tf.ones((2, 3))) is None:
        raise WrongAnswer("the output", "a tensor", "None", "return y, grad")
    x, dy = judging.random_array((5, 3), seed=4), judging.random_upstream((5, 3))
    try:
        judging.run_in_graph(op, [tf.constant(x, tf.float32)], dy)
    except (ValueError, TypeError) as error:
        if "None" not in str(error):
            raise
        got = f"{type(error).__name__}: {error}".splitlines()[0][:80]
        raise WrongAnswer("a tf.function with an unknown batch size", "gradients", got, STATIC) from None
    judging.judge_op(
        op,
        forward=lambda x: x,
        backward=lambda dy, x: dy / len(x),
        inputs=[x],
        mistakes={
            "the division by the batch size is gone": lambda dy, x: dy,
            "this divides by the number of all elements, not of the examples": lambda dy, x: dy / x.size,
            "this divides by the number of features: the batch is axis 0": lambda dy, x: dy / x.shape[1],
            "this multiplies by the batch size instead of dividing": lambda dy, x: dy * len(x),
        },
    )
    return "The static shape is what is known while a graph is traced; tf.shape asks when it runs."


def _solve_mean():
    @tf.custom_gradient
    def mean_gradient(x):
        def grad(dy):
            return dy / tf.cast(tf.shape(x)[0], dy.dtype)

        return tf.identity(x), grad

    return mean_gradient


mend_batch_size = Exercise(
    "find and mend: fails only in fit",
    _judge_mean,
    (
        "Read the last line of the error: which value is None, and when is it known?",
        "`x.shape` is what TensorFlow knows while it traces the graph; `tf.shape(x)` is a tensor.",
        "`tf.shape(x)[0]` is an integer tensor: cast it to `dy.dtype` before you divide.",
    ),
    _solve_mean,
    minutes=6,
    difficulty=3,
)
