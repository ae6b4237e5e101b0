"""Exercises of notebook 11: keep the output alone, a weight in half precision, a block to mend."""

import numpy as np
import tensorflow as tf

from course_utils import ops
from course_utils.cost import saved_bytes
from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

# --- 1. Keep the output alone ---------------------------------------------------------------------


def _softplus(x):
    return np.logaddexp(0, x)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _judge_softplus(op):
    x = judging.random_array((6, 3), seed=1)
    judging.judge_op(
        op,
        forward=_softplus,
        backward=lambda dy, x: dy * _sigmoid(x),
        inputs=[x],
        mistakes={
            "dy is missing": lambda dy, x: _sigmoid(x),
            "this is 1 minus the slope": lambda dy, x: dy * np.exp(-_softplus(x)),
            "y was put where x belongs: the slope is σ(x), and σ(x) = 1 - exp(-y)": lambda dy, x: (
                dy * _sigmoid(_softplus(x))
            ),
        },
    )
    x = tf.constant(judging.random_array((40, 25), seed=2), tf.float32)
    # A sine after it keeps y in any case, as the next layer of a model does.
    kept = {graph: saved_bytes(lambda x: tf.sin(op(x)), x, graph=graph) / 4000 for graph in (True, False)}
    causes = {
        True: "grad reads x, so x is kept: write the slope in terms of y",
        False: "the tape follows the ops of the forward pass and keeps x for them: stop the gradient of x",
    }
    for graph, cause in causes.items():
        if round(kept[graph], 1) > 1:
            where = f"the tensors kept for a sine of the output, {'in a graph' if graph else 'in eager mode'}"
            raise WrongAnswer(where, "1, the output", f"{kept[graph]:.3g}", cause)
    return "The output is enough, and the next layer keeps it anyway: the activation costs no memory."


def _solve_softplus():
    @tf.custom_gradient
    def softplus_from_output(x):
        y = tf.nn.softplus(tf.stop_gradient(x))

        def grad(dy):
            return dy * -tf.math.expm1(-y)

        return y, grad

    return softplus_from_output


softplus_from_output = Exercise(
    "keep the output alone",
    _judge_softplus,
    (
        "The frame is that of `swish_from_input`: stop the gradient of x, then compute forward.",
        "The slope of softplus is σ(x). From y = log(1 + eˣ) follows exp(-y) = 1 - σ(x).",
        "`y = tf.nn.softplus(tf.stop_gradient(x))`; grad returns `dy * -tf.math.expm1(-y)`.",
    ),
    _solve_softplus,
    minutes=6,
    difficulty=1,
)

# --- 2. A weight in mixed precision ---------------------------------------------------------------


def _judge_mixed(op):
    judging.need_callable(op, "scale_features")
    w = judging.random_array((3,), seed=3)
    for dtype in ("float16", "float32"):
        x = tf.constant(judging.random_array((8, 3), seed=4), dtype)
        for run in (judging.run, judging.run_in_graph):
            _judge_dtypes(op, x, tf.constant(w, tf.float32), run)
    cases = {
        "70000 rows of ones": (70_000, 1.0, "the sum passed 65504, the largest float16: cast before you sum"),
        "x = dy = 300": (1, 300.0, "the product passed 65504, the largest float16: cast both factors"),
    }
    for name, (rows, value, cause) in cases.items():
        x = tf.fill((rows, 1), tf.constant(value, tf.float16))
        _, (_, dw) = judging.run(op, [x, tf.ones(1)], x)
        judging.compare(dw, [rows * value**2], f"the gradient of w for {name}", cause=cause)
    return "Half precision for what is large in number, float32 for what is summed up."


def _judge_dtypes(op, x, w, run):
    dy = tf.constant(judging.random_upstream((8, 3)), x.dtype)
    dtype, precise = x.dtype.name, [np.asarray(t, np.float64) for t in (x, w, dy)]
    y, (dx, dw) = run(op, [x, w], dy)
    judging.compare(judging.need_tensor(y, x, f"the output for {dtype}"), precise[0] * precise[1], "output")
    dx = judging.need_tensor(dx, x, f"the gradient of x for {dtype}")
    judging.compare(dx, precise[2] * precise[1], f"the gradient of x for {dtype}")
    where = f"the gradient of w for {dtype}"
    dw = judging.need_tensor(dw, None, where)
    if dw.shape != w.shape:
        cause = "every row uses w: sum over axis 0"
        raise WrongAnswer(f"the shape of {where}", tuple(w.shape), tuple(dw.shape), cause)
    if dw.dtype != w.dtype:
        cause = "w is float32, and its gradient has the dtype of w"
        raise WrongAnswer(f"the dtype of {where}", w.dtype.name, dw.dtype.name, cause)
    products = precise[2] * precise[0]
    mistakes = {"a mean was taken: every row uses w, so the rows add up": products.mean(axis=0)}
    cause = "digits were lost in float16: cast dy and x to float32 first"
    judging.compare(dw, products.sum(axis=0), where, mistakes, cause)


def _solve_mixed():
    @tf.custom_gradient
    def scale_features(x, w):
        half = tf.cast(w, x.dtype)

        def grad(dy):
            products = tf.cast(dy, w.dtype) * tf.cast(x, w.dtype)
            return dy * half, tf.reduce_sum(products, axis=0)

        return x * half, grad

    return scale_features


scale_features = Exercise(
    "a weight in mixed precision",
    _judge_mixed,
    (
        "Forward: w in the dtype of x. Backward: each gradient has the dtype of its input.",
        "The sum over the batch may pass 65504. Cast the factors, not the sum.",
        "`tf.reduce_sum(tf.cast(dy, w.dtype) * tf.cast(x, w.dtype), axis=0)` is the gradient of w.",
    ),
    _solve_mixed,
    minutes=8,
    difficulty=2,
)

# --- 3. Find and mend: a recomputed block ---------------------------------------------------------


def _judge_block(block):
    judging.need_callable(block, "block")
    x, w = (tf.constant(judging.random_array(s, seed=5), tf.float32) for s in ((20, 4), (4, 6)))
    seed = tf.constant([3, 4])
    dy = tf.constant(judging.random_upstream((20, 6)), tf.float32)
    for where, f in (("", block), (" in a tf.function", tf.function(lambda *a: block(*a), autograph=False))):
        y, (dx, dw) = judging.run(lambda x, w, f=f: f(x, w, seed), [x, w], dy)
        _judge_masks(y, f(x, w, seed), f(x, w, seed + 1), x.numpy() @ w.numpy(), where)
        if dw is None:
            cause = "recompute_grad gives no gradient to a tensor closed over: hand w over as an argument"
            raise WrongAnswer(f"the gradient of w{where}", "a tensor", "None", cause)
        _judge_block_gradients(x.numpy(), w.numpy(), dy.numpy(), y.numpy() != 0, dx, dw, where)
    _judge_block_memory(lambda x, w: block(x, w, seed), x, w)
    return "What is computed twice must give the same twice: the seed goes in, nothing random stays inside."


def _judge_masks(y, again, other, h, where):
    y = judging.need_tensor(y, None, f"the output{where}")
    if not np.array_equal(y, again):
        cause = "a Dropout layer draws anew each time: tf.nn.experimental.stateless_dropout takes a seed"
        raise WrongAnswer(f"two calls with one seed{where}", "the same output", "two outputs", cause)
    if np.array_equal(y, other):
        raise WrongAnswer(f"calls with two seeds{where}", "two masks", "one mask", "the seed is not used")
    full = h * _sigmoid(h)
    mistakes = {"what is left must be doubled, so that the mean stays": full * (y.numpy() != 0)}
    judging.compare(y, 2 * full * (y.numpy() != 0), f"what dropout left{where}", mistakes)


def _judge_block_gradients(x, w, dy, mask, dx, dw, where):
    h = x @ w
    s = _sigmoid(h)
    dh = 2 * dy * mask * s * (1 + h * (1 - s))
    cause = "the recomputation drew another mask than the forward pass"
    judging.compare(dw, x.T @ dh, f"the gradient of w{where}", cause=cause)
    judging.compare(dx, dh @ w.T, f"the gradient of x{where}", cause=cause)


def _judge_block_memory(f, x, w):
    kept, ends = saved_bytes(f, x, w, graph=True), 4 * (20 * 4 + 4 * 6)
    if kept > ends + 16:  # a seed may wait too
        mask_kept = kept == ends + 20 * 6
        cause = (
            "the mask is kept: draw it inside of the recomputed function"
            if mask_kept
            else "the block is not recomputed: tf.recompute_grad belongs around it"
        )
        raise WrongAnswer("the bytes kept in a graph", f"{ends}: x and w", kept, cause)


def _solve_block():
    def block(x, w, seed):
        @tf.recompute_grad
        def inside(x, w):  # the seed needs no gradient, so it may be closed over
            h = ops.swish_from_input(x @ w)
            return tf.nn.experimental.stateless_dropout(h, rate=0.5, seed=seed)

        return inside(x, w)

    return block


mend_block = Exercise(
    "find and mend: a recomputed block",
    _judge_block,
    (
        "Who gets a gradient from `tf.recompute_grad`: arguments, variables, tensors closed over?",
        "The block runs twice. Which line gives something else the second time?",
        "Make it `inside(x, w)`, with `tf.nn.experimental.stateless_dropout(h, rate=0.5, seed=seed)`.",
    ),
    _solve_block,
    minutes=10,
    difficulty=3,
)
