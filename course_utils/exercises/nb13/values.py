"""Cases of the clinic that run without an error and give wrong numbers, or NaN."""

import numpy as np
import tensorflow as tf

from course_utils import check_gradient
from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer
from course_utils.exercises.nb13.shared import settle
from course_utils.gradients import EDGE_POINTS

# --- 1. The weight of a loss changes nothing ------------------------------------------------------


def _smooth_slope(x):
    return x / np.sqrt(x * x + 1)


def _judge_smooth_abs(op):
    judging.judge_op(
        op,
        forward=lambda x: np.sqrt(x * x + 1) - 1,
        backward=lambda dy, x: dy * _smooth_slope(x),
        inputs=[judging.random_array((4, 3), seed=1)],
        mistakes={
            "the gradient is the same for any dy: what does grad do with it?": lambda dy, x: _smooth_slope(x),
            "dy and the slope were added: the chain rule multiplies": lambda dy, x: dy + _smooth_slope(x),
            "dy goes through unchanged: the slope of the op is missing now": lambda dy, x: dy,
            "only the sign of dy is used: its size carries the weight of the loss": lambda dy, x: (
                np.sign(dy) * _smooth_slope(x)
            ),
            "dy was added up over all elements: each element has a dy of its own": lambda dy, x: (
                dy.sum() * _smooth_slope(x)
            ),
        },
    )
    settle(check_gradient(op, EDGE_POINTS))
    return "A grad function gives dy times the slope: ones as dy, as for a plain sum, hide its absence."


def _solve_smooth_abs():
    @tf.custom_gradient
    def smooth_abs(x):
        root = tf.sqrt(x * x + 1.0)

        def grad(dy):
            return dy * x / root

        return root - 1.0, grad

    return smooth_abs


smooth_abs = Exercise(
    "the weight of a loss changes nothing",
    _judge_smooth_abs,
    (
        "The gradient is right for the op alone, where dy is 1. Where would the 0.01 of the weight come in?",
        "It arrives as `dy`. Does `grad` use its argument?",
        "Return `dy * x / root`.",
    ),
    _solve_smooth_abs,
    minutes=3,
    difficulty=1,
)


# --- 2. The optimizer refuses ---------------------------------------------------------------------


def _leak_parts(dy, x, leak):
    """Give the gradient of x, and that of the leak for each element of x."""
    return np.where(x > 0, dy, leak * dy), dy * np.minimum(x, 0)


def _leak_shape_cause(got: tuple) -> str:
    if got == ():
        return "all was added up, features too: each has its own leak (Adam would take one for all)"
    if len(got) == 1:
        return "the right rank, the wrong axis: the last axis holds the features"
    return (
        "the leak serves every example and every step: its gradient is a sum over *all* axes but the last, "
        "however many x has"
    )


def _judge_learned_leak(op):
    judging.need_callable(op, "learned_leak")
    leak = judging.random_array((3,), seed=2)
    for seed, shape in enumerate([(6, 3), (4, 5, 3)], start=3):
        x, dy = judging.random_array(shape, seed), judging.random_upstream(shape)
        axes = tuple(range(len(shape) - 1))
        _, (_, dleak) = judging.run(op, [tf.constant(x, tf.float32), tf.constant(leak, tf.float32)], dy)
        if tf.is_tensor(dleak) and dleak.shape != leak.shape:
            where = f"the shape of the gradient of leak, x of shape {shape}"
            raise WrongAnswer(where, leak.shape, tuple(dleak.shape), _leak_shape_cause(tuple(dleak.shape)))

        def backward(dy, x, leak, reduce=np.sum, axes=axes):
            dx, each = _leak_parts(dy, x, leak)
            return dx, reduce(each, axis=axes)

        judging.judge_op(
            op,
            forward=lambda x, leak: np.where(x > 0, x, leak * x),
            backward=backward,
            inputs=[x, leak],
            mistakes={
                "a mean was taken: what all examples say about one leak is added": lambda dy, x, leak: (
                    backward(dy, x, leak, np.mean)
                ),
                "the gradient of x was right before": lambda dy, x, leak: (
                    leak * dy,
                    backward(dy, x, leak)[1],
                ),
            },
        )
    return "What was broadcast on the way forward is summed on the way back, over the same axes."


def _solve_learned_leak():
    @tf.custom_gradient
    def learned_leak(x, leak):
        def grad(dy):
            each = dy * tf.minimum(x, 0.0)
            return tf.where(x > 0, dy, leak * dy), tf.reduce_sum(each, axis=list(range(x.shape.rank - 1)))

        return tf.where(x > 0, x, leak * x), grad

    return learned_leak


learned_leak = Exercise(
    "the optimizer refuses",
    _judge_learned_leak,
    (
        "`leak` has shape (features,). What shape does its gradient have, and who would have to say so?",
        "Every example says something about the leak of each feature: what they say is added.",
        "`tf.reduce_sum` over all axes of x but the last: `axis=list(range(x.shape.rank - 1))`.",
    ),
    _solve_learned_leak,
    minutes=6,
    difficulty=2,
)


# --- 3. A quantizer that does not quantize --------------------------------------------------------


def _judge_to_levels(op):
    judging.need_callable(op, "to_levels")
    x, dy = judging.random_array((5, 4), seed=5), judging.random_upstream((5, 4))
    inputs = tf.constant(x, tf.float32)
    for step in (0.25, 0.5):
        levels = step * np.round(x / step)
        where = f"the output for step = {step}"
        y, (dx,) = judging.run(lambda x, step=step: op(x, step), [inputs], dy)
        forward = {
            "x comes out as it went in: what is left when stop_gradient is read as `identity`?": x,
            "x was moved away from the level: the difference has the wrong sign": 2 * x - levels,
        }
        judging.compare(y, levels, where, forward)
        if dx is None:
            cause = "no x is left outside of stop_gradient, so there is no path for dy"
            raise WrongAnswer("the gradient", "dy", "None", cause)
        zeros = {"the two paths of x cancel: one of them must be stopped": 0 * dy}
        judging.compare(judging.need_tensor(dx, inputs, "the gradient"), dy, "the gradient", zeros)
    settle(check_gradient(op, inputs, surrogate=tf.identity))
    return "Forward read `stop_gradient` as the identity, backward as a constant: both must come out right."


def _solve_to_levels():
    def to_levels(x, step=0.25):
        levels = step * tf.round(x / step)
        return x + tf.stop_gradient(levels - x)

    return to_levels


to_levels = Exercise(
    "a quantizer that does not quantize",
    _judge_to_levels,
    (
        "On the way forward `stop_gradient` does nothing. Simplify the returned line with that in mind.",
        "The output must be `levels`, and x must stand once outside of `stop_gradient`.",
        "Return `x + tf.stop_gradient(levels - x)`.",
    ),
    _solve_to_levels,
    minutes=4,
    difficulty=1,
)


# --- 4. A codebook that stays where it is ---------------------------------------------------------


def _vq(z, codebook, target):
    """Give the loss, and by parts the gradients of z: (reconstruction, pull), and of the nearest codes."""
    chosen = np.argmin(((z[:, None] - codebook) ** 2).sum(-1), axis=-1)
    nearest = codebook[chosen]

    def scatter(rows):
        total = np.zeros_like(codebook)
        np.add.at(total, chosen, rows)
        return total

    loss = np.mean((nearest - target) ** 2) + 1.25 * np.mean((z - nearest) ** 2)
    return loss, 2 * (nearest - target) / z.size, 2 * (z - nearest) / z.size, scatter


def _judge_vq_loss(vq_loss):
    judging.need_callable(vq_loss, "vq_loss")
    z, target = judging.random_array((6, 2), seed=6), judging.random_array((6, 2), seed=7)
    codebook = judging.random_array((4, 2), seed=8)
    inputs = [tf.constant(a, tf.float32) for a in (z, codebook, target)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = judging.need_tensor(vq_loss(*inputs), tf.constant(0.0), "the loss")
    dz, dbook = tape.gradient(loss, inputs[:2])
    want, reconstruction, pull, scatter = _vq(z, codebook, target)
    judging.compare(
        loss, want, "the loss", cause="its value was right before: only where gradients stop is wrong"
    )
    where, right = "the gradient of z", reconstruction + 0.25 * pull
    codes = {
        "the codebook loss pushes z away from its code: which of its two sides is z in disguise?": (
            reconstruction - 0.75 * pull
        ),
        "the codebook loss pulls z too: there z is a constant, and the code moves": reconstruction
        + 1.25 * pull,
        "the reconstruction no longer reaches z: it needs the straight-through code": 0.25 * pull,
        "the commitment no longer reaches z: there z moves, and the code is a constant": reconstruction,
    }
    judging.compare(judging.need_tensor(dz, inputs[0], where), right, where, codes)
    where = "the gradient of the codebook"
    if dbook is None:
        cause = "everywhere the codebook stands inside stop_gradient: its own loss needs the raw lookup"
        raise WrongAnswer(where, "a gradient", "None", cause)
    books = {
        "the commitment pulls the codebook too: there the code is a constant": scatter(-1.25 * pull),
        "the reconstruction moves the codebook: it belongs to z, straight through": scatter(
            reconstruction - pull
        ),
    }
    judging.compare(judging.need_tensor(dbook, inputs[1], where), scatter(-pull), where, books)
    return "Three losses, and each asks which of its two sides shall move."


def _solve_vq_loss():
    def vq_loss(z, codebook, target):
        squares = tf.reduce_sum((z[:, None] - codebook) ** 2, axis=-1)
        nearest = tf.gather(codebook, tf.argmin(squares, axis=-1))
        code = z + tf.stop_gradient(nearest - z)
        reconstruction = tf.reduce_mean((code - target) ** 2)
        codebook_loss = tf.reduce_mean((tf.stop_gradient(z) - nearest) ** 2)
        commitment = tf.reduce_mean((z - tf.stop_gradient(nearest)) ** 2)
        return reconstruction + codebook_loss + 0.25 * commitment

    return vq_loss


vq_loss = Exercise(
    "a codebook that stays where it is",
    _judge_vq_loss,
    (
        "Follow the codebook through the function: where is it outside of `stop_gradient`?",
        "For the tape, `code` is z. So what does the codebook loss compare, and what does it move?",
        "In the codebook loss, compare with `nearest`, the raw lookup, instead of `code`.",
    ),
    _solve_vq_loss,
    minutes=7,
    difficulty=3,
)


# --- 5. Two points meet ---------------------------------------------------------------------------


def _unit(a, b):
    norm = np.linalg.norm(a - b, axis=-1, keepdims=True)
    return np.where(norm > 0, (a - b) / np.where(norm > 0, norm, 1), 0)


def _judge_distance(op):
    judging.need_callable(op, "distance")
    a, b = judging.random_array((4, 3), seed=9), judging.random_array((4, 3), seed=10)
    b[1], b[2] = a[1], a[2] + [0.01, -0.01, 0]  # equal rows, and rows that are close
    dy = judging.random_upstream((4,))
    inputs = [tf.constant(v, tf.float32) for v in (a, b)]
    y, gradients = judging.run(op, inputs, dy)
    moved = "the distances changed: equal rows are 0 apart, close rows a little"
    norm = np.linalg.norm(inputs[0] - inputs[1], axis=-1)
    judging.compare(y, norm, "the output", cause=moved)
    for name, gradient in zip("ab", gradients, strict=True):
        if gradient is None:
            raise WrongAnswer(f"the gradient of {name}", "a gradient", "None", "all paths of it are stopped")
        if not np.all(np.isfinite(gradient)):
            cause = "the slope of a root at 0 is infinite, and 0·inf is NaN: the root must not see a 0"
            raise WrongAnswer(f"the gradient of {name}, equal rows", 0, "NaN or infinity", cause)
    _judge_compiled(op, inputs, dy)
    same_sign = "b gets the gradient of a: moving b has the opposite effect"
    floor = "close rows get no gradient, or a wrong one: only equal rows are special"
    unit = dy[:, None] * _unit(*(v.numpy().astype(float) for v in inputs))
    for name, gradient, right in zip("ab", gradients, (unit, -unit), strict=True):
        where = f"the gradient of {name}"
        gradient = judging.need_tensor(gradient, inputs[0], where)
        judging.compare(gradient, right, where, {same_sign: -right}, floor)
    apart = [tf.constant(v[[0, 3]], tf.float64) for v in (a, b)]
    settle(check_gradient(op, *apart))
    return "A guard after the root does not reach the backward pass; a safe input to the root does."


def _judge_compiled(op, inputs, dy) -> None:
    """Look at equal rows under XLA, where no kernel hides 0·inf."""

    @tf.function(jit_compile=True, autograph=False)
    def compiled(a, b):
        return judging.run(op, [a, b], dy)[1]

    if not np.all(np.isfinite(compiled.get_concrete_function(*inputs)(*inputs)[0])):
        cause = "the root is taken of 0, and only then replaced: make what goes *into* the root safe"
        raise WrongAnswer("the gradient under XLA, equal rows", 0, "NaN or infinity", cause)


def _solve_distance():
    def distance(a, b):
        squares = tf.reduce_sum((a - b) ** 2, axis=-1)
        safe = tf.where(squares > 0, squares, tf.ones_like(squares))
        return tf.where(squares > 0, tf.sqrt(safe), tf.zeros_like(squares))

    return distance


distance = Exercise(
    "two points meet",
    _judge_distance,
    (
        "A norm is the root of a sum of squares. What is the slope of the root at 0?",
        "A guard after the root is too late: XLA still computes 0 times infinity. The root must see no 0.",
        "Two `tf.where`: one puts 1 for the square where it is 0, the other 0 for the root there.",
    ),
    _solve_distance,
    minutes=7,
    difficulty=2,
)
