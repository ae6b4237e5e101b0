"""Cases of the clinic that work in one mode, dtype or place, and fail in another."""

import keras
import numpy as np
import tensorflow as tf

from course_utils import check_gradient, check_layer
from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer
from course_utils.exercises.nb13.shared import SLOW, named_errors, need_layer, settle

# --- 6. By hand without effect, in fit an error ---------------------------------------------------

KEYWORD_CAUSES = {
    "expected to return 1 gradients, but returned 2": (
        "a tensor that is passed by keyword is not counted as an input: pass both by position"
    ),
    "expected to return 2 gradients, but returned 1": (
        "grad owes one entry to each argument by position: None for the importance"
    ),
    "supports keywords arguments only": "a tensor is passed by keyword: a graph refuses what eager ignores",
}


def _judge_weigh(layer_class):
    need_layer(layer_class, "Weigh")
    layer, dy = layer_class(), judging.random_upstream((4, 3))
    x, importance = judging.random_array((4, 3), seed=11), np.array([[0.0], [0.5], [1.0], [-3.0]])
    inputs = [tf.constant(a, tf.float32) for a in (x, importance)]
    forward = {"the output was weighed too: the layer gives x back": importance * x}
    mistakes = {
        "this is the gradient of plain tf.identity, the rule was ignored: how is the op called?": dy,
        "only the importance was given back: multiply dy by it": importance + 0 * dy,
    }
    for mode, run in (("eager mode", judging.run), ("a tf.function", judging.run_in_graph)):
        with named_errors(f"the gradient in {mode}", KEYWORD_CAUSES):
            y, (dx, _) = run(lambda x, importance: layer([x, importance]), inputs, dy)
        judging.compare(y, x, f"the output in {mode}", forward)
        where = f"the gradient in {mode}"
        judging.compare(judging.need_tensor(dx, inputs[0], where), importance * dy, where, mistakes)
    settle(check_layer(layer, inputs, backward=lambda dy, x, weight: (weight * dy, None), skip=SLOW))
    return "Tensors go to a custom gradient by position: by keyword eager mode drops the rule, silently."


def _solve_weigh():
    @tf.custom_gradient
    def weigh(x, importance):
        return tf.identity(x), lambda dy: (importance * dy, None)  # pseudo-gradient

    class Weigh(keras.layers.Layer):
        def call(self, inputs):
            x, importance = inputs
            return weigh(x, importance)

    return Weigh


weigh = Exercise(
    "by hand without effect, in fit an error",
    _judge_weigh,
    (
        "Read the message of `fit` to its end: it says what it does not support.",
        "Eager mode accepts the call, and records only what came by position.",
        "Call `weigh(x, importance)`.",
    ),
    _solve_weigh,
    minutes=4,
    difficulty=1,
)


# --- 7. A question that a graph cannot answer -----------------------------------------------------

IF_CAUSES = {
    "as a Python": "Python asks for a value that a graph does not have yet: let a TensorFlow op decide"
}


def _shorten(dy):
    return dy / max(1.0, np.linalg.norm(dy))


def _judge_limit(op):
    judging.need_callable(op, "limit")
    x, long = judging.random_array((5, 3), seed=12), judging.random_upstream((5, 3))
    with named_errors("a tf.function", IF_CAUSES):
        judging.judge_op(
            op,
            forward=lambda x: x,
            backward=lambda dy, x: _shorten(dy),
            inputs=[x],
            mistakes={
                "dy is longer than 1, and was not shortened": lambda dy, x: dy,
                "each element was cut by itself: that turns dy": lambda dy, x: np.clip(dy, -1, 1),
                "each row was shortened by itself: the norm is that of all of dy": lambda dy, x: (
                    dy / np.maximum(1, np.linalg.norm(dy, axis=-1, keepdims=True))
                ),
            },
        )
    inputs = tf.constant(x, tf.float32)
    for name, dy in (("a dy of norm 0.1", 0.1 * _shorten(long)), ("a dy of zeros", 0 * long)):
        _, (dx,) = judging.run_in_graph(op, [inputs], dy)
        mistakes = {"a dy shorter than 1 was made longer: leave it alone": 10 * dy} if dy.any() else {}
        cause = "0 / 0: divide by something that is never 0, such as tf.maximum(norm, 1.0)"
        dx = judging.need_tensor(dx, inputs, f"the gradient for {name}")
        judging.compare(dx, dy, f"the gradient for {name}", mistakes, cause)
    settle(check_gradient(op, x, backward=lambda dy, x: tf.clip_by_norm(dy, 1.0)))
    return "AutoGraph rewrites no grad: a choice in it is `tf.where`, a maximum, or `tf.cond`."


def _solve_limit():
    @tf.custom_gradient
    def limit(x):
        def grad(dy):
            return dy / tf.maximum(tf.norm(dy), 1.0)

        return tf.identity(x), grad

    return limit


limit = Exercise(
    "a question that a graph cannot answer",
    _judge_limit,
    (
        "While `fit` traces the model, `norm` is a symbol. Which line wants to know its value?",
        "An `if` can be a number: divide by 1 where dy is short.",
        "Return `dy / tf.maximum(tf.norm(dy), 1.0)`.",
    ),
    _solve_limit,
    minutes=5,
    difficulty=2,
)


# --- 8. Right in float32 --------------------------------------------------------------------------

FIXED = "a tensor of a fixed dtype meets dy in another: give it the dtype of dy"
FIXED_OTHER = "one dtype works now and the others do not: ask dy for its dtype, name none"
DTYPE_WORDS = ("was expected to be a", "have the same type", "does not match type", "incompatible with that")


def _leaky(dy, x):
    return np.where(x > 0, dy, 0.125 * dy)


def _judge_relu_with_leak(op):
    judging.need_callable(op, "relu_with_leak")
    x, dy = judging.random_array((5, 3), seed=13), judging.random_upstream((5, 3))
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        inputs, half = tf.constant(x, dtype), dtype in ("float16", "bfloat16")
        cause = FIXED if dtype == "float16" else FIXED_OTHER
        with named_errors(f"the gradient for {dtype}", dict.fromkeys(DTYPE_WORDS, cause)):
            _, (dx,) = judging.run(op, [inputs], dy)
        if tf.is_tensor(dx) and dx.dtype != inputs.dtype:
            cause = FIXED_OTHER
            if half:
                cause = "cast up and not back: the next layer multiplies half precision by what it gets"
            raise WrongAnswer("the dtype of the gradient", dtype, dx.dtype.name, cause)
    judging.judge_op(
        op,
        forward=lambda x: np.maximum(x, 0),
        backward=_leaky,
        inputs=[x],
        mistakes={
            "where x is negative nothing comes through: an eighth of dy should": lambda dy, x: dy * (x > 0),
            "dy goes through in full where x is negative: an eighth of it should": lambda dy, x: dy,
        },
        forward_mistakes={"the forward pass leaks too: it is a plain ReLU": lambda x: _leaky(x, x)},
        dtypes=("float16", "bfloat16", "float32", "float64"),
    )
    settle(check_gradient(op, x, backward=lambda dy, x: tf.where(x > 0, dy, 0.125 * dy)))
    return "A Python number adapts to the dtype it meets; a tensor, once made, does not."


def _solve_relu_with_leak():
    leak = tf.constant(0.125)

    @tf.custom_gradient
    def relu_with_leak(x):
        def grad(dy):
            return tf.where(x > 0, dy, tf.cast(leak, dy.dtype) * dy)  # pseudo-gradient

        return tf.nn.relu(x), grad

    return relu_with_leak


relu_with_leak = Exercise(
    "right in float32",
    _judge_relu_with_leak,
    (
        "The forward pass never touches `leak`. What dtype has it, and what dtype has dy here?",
        "Which dtype it needs is known in `grad` alone: that of `dy`.",
        "`tf.cast(leak, dy.dtype) * dy`, or a plain Python 0.125.",
    ),
    _solve_relu_with_leak,
    minutes=4,
    difficulty=1,
)


# --- 9. A lookup behind the op --------------------------------------------------------------------

SPARSE_CAUSES = {
    "no attribute 'values'": "where the whole table is used, dy is an ordinary tensor: grad must take both",
    "no attribute 'indices'": "where the whole table is used, dy is an ordinary tensor: grad must take both",
    "IndexedSlices": "a lookup sends back an IndexedSlices, rows with their indices: turn it into a tensor",
}


def _judge_slow_rows(op):
    judging.need_callable(op, "slow_rows")
    table, rows = judging.random_array((5, 2), seed=14), [0, 2, 2]
    dy = judging.random_upstream((3, 2))
    inputs = tf.constant(table, tf.float32)
    where = "the gradient of the table, behind tf.gather"
    added, last = np.zeros((5, 2)), np.zeros((5, 2))
    np.add.at(added, rows, 0.1 * dy)
    last[rows] = 0.1 * dy
    with named_errors(where, SPARSE_CAUSES):
        _, (dtable,) = judging.run(lambda table: tf.gather(op(table), rows), [inputs], dy)
    if tf.is_tensor(dtable) and dtable.shape == dy.shape:
        cause = "these are the rows that were looked up: the gradient has a row for each row of the table"
        raise WrongAnswer(f"the shape of {where}", (5, 2), tuple(dtable.shape), cause)
    mistakes = {
        "row 2 was looked up twice, and its two parts must be added": last,
        "dy was not made smaller: a tenth of it should come through": 10 * added,
    }
    judging.compare(judging.need_tensor(dtable, inputs, where), added, where, mistakes)
    with named_errors("the gradient where the whole table is used", SPARSE_CAUSES):
        judging.judge_op(op, lambda t: t, lambda dy, t: 0.1 * dy, [table])
    return "The upstream gradient is what the next op sends back, and a lookup sends back rows and indices."


def _solve_slow_rows():
    @tf.custom_gradient
    def slow_rows(table):
        def grad(dy):
            return 0.1 * tf.convert_to_tensor(dy)  # pseudo-gradient

        return tf.identity(table), grad

    return slow_rows


slow_rows = Exercise(
    "a lookup behind the op",
    _judge_slow_rows,
    (
        "What kind of object is dy here? It holds three rows, and says which rows of the table they are.",
        "TensorFlow can turn it into a tensor of the table's shape; rows that occur twice are added.",
        "Return `0.1 * tf.convert_to_tensor(dy)`; an ordinary tensor passes through that unchanged.",
    ),
    _solve_slow_rows,
    minutes=5,
    difficulty=2,
)
