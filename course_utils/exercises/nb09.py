"""Exercises of notebook 09: another surrogate spike, a draw with a gradient, a quantizer to mend."""

import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

# --- 1. A triangle as surrogate --------------------------------------------------------------------


def _judge_triangle(make_op):
    judging.need_callable(make_op, "make_triangle_spike")
    x = judging.random_array((6, 4), seed=1)
    for width in (0.5, 2.0):
        op = make_op(width)
        if op is None or tf.is_tensor(op) or not callable(op):
            cause = "a factory returns the decorated function itself, without calling it"
            raise WrongAnswer(f"make_triangle_spike({width})", "a function of v", f"{op!r:.60}", cause)
        _, (dx,) = judging.run(op, [tf.constant(x)], np.ones(x.shape))
        if dx is None:
            cause = "the step alone has no gradient: decorate the function and return grad beside it"
            raise WrongAnswer("the gradient", "a tensor", "None", cause)
        judging.judge_op(
            op,
            forward=lambda v: (v > 0) * 1.0,
            backward=lambda dy, v, width=width: dy * np.maximum(0, 1 - abs(v) / width),
            inputs=[x],
            mistakes=_triangle_mistakes(width),
            forward_mistakes={
                "a spike is 1 or 0, not 1 or -1": np.sign,
                "forward it stays a step: the surrogate is for the backward pass alone": lambda v, w=width: (
                    np.maximum(0, 1 - abs(v) / w)
                ),
            },
        )
    return "Beyond its width this surrogate passes exactly nothing: a dead zone by design."


def _triangle_mistakes(width):
    def triangle(v):
        return np.maximum(0, 1 - abs(v) / width)

    return {
        "beyond the width the line goes on below 0: cut it off there": lambda dy, v: (
            dy * (1 - abs(v) / width)
        ),
        "dy is missing: multiply the upstream gradient": lambda dy, v: triangle(v),
        "the height shall be 1: do not divide by the width": lambda dy, v: dy * triangle(v) / width,
        "width is a distance: divide by it, do not multiply": lambda dy, v: (
            dy * np.maximum(0, 1 - abs(v) * width)
        ),
        "one side is missing: the distance from the threshold is |v|": lambda dy, v: (
            dy * np.maximum(0, 1 - v / width)
        ),
        "this is a box: it shall fall in a straight line from 1 to 0": lambda dy, v: dy * (abs(v) < width),
        "the gradient passes everywhere: multiply dy by the triangle": lambda dy, v: dy,
    }


def _solve_triangle():
    def make_triangle_spike(width):
        @tf.custom_gradient
        def spike(v):
            def grad(dy):
                return dy * tf.nn.relu(1.0 - tf.abs(v) / width)  # pseudo-gradient

            return tf.cast(v > 0.0, v.dtype), grad

        return spike

    return make_triangle_spike


triangle_spike = Exercise(
    "another surrogate",
    _judge_triangle,
    (
        "The frame is `make_spike` from above: only the factor of `dy` changes.",
        "The line `1 - |v| / width` is right inside; beyond the width it is negative. What cuts it off at 0?",
        "`grad` returns `dy * tf.nn.relu(1.0 - tf.abs(v) / width)`.",
    ),
    _solve_triangle,
    minutes=6,
    difficulty=1,
)


# --- 2. A draw with a gradient ---------------------------------------------------------------------


def _softmax(z):
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _softmax_gradient(dy, z):
    s = _softmax(z)
    return s * (dy - (s * dy).sum(axis=-1, keepdims=True))


def _one_hot(z):
    return np.eye(z.shape[-1])[z.argmax(axis=-1)]


def _judge_draw(draw_category):
    judging.need_callable(draw_category, "draw_category")
    logits, noise = judging.random_array((8, 4), seed=2), judging.random_array((8, 4), seed=3)
    for temperature in (0.5, 2.0):

        def op(x, temperature=temperature):
            return draw_category(x, tf.constant(noise, x.dtype), temperature)

        y, (dx,) = judging.run(op, [tf.constant(logits)], np.ones(logits.shape))
        if dx is None and np.allclose(y, _one_hot(logits + noise)):
            cause = "tf.argmax has no gradient: add the soft vector for its gradient, without its value"
            raise WrongAnswer("the gradient", "a tensor", "None", cause)
        judging.judge_op(
            op,
            forward=lambda x: _one_hot(x + noise),
            backward=lambda dy, x, t=temperature: _softmax_gradient(dy, (x + noise) / t) / t,
            inputs=[logits],
            mistakes=_draw_mistakes(noise, temperature),
            forward_mistakes={
                "this is the soft vector: hard belongs into stop_gradient, soft stays outside": (
                    lambda x, t=temperature: _softmax((x + noise) / t)
                ),
                "the noise is missing, so nothing is drawn": _one_hot,
                "the noise must not depend on the temperature: divide the sum": lambda x, t=temperature: (
                    _one_hot(x / t + noise)
                ),
            },
        )
    return "The temperature changes the gradient and never the draw."


def _draw_mistakes(noise, t):
    return {
        "the softmax must see the noise too: it stands for this very draw": lambda dy, x: (
            _softmax_gradient(dy, x / t) / t
        ),
        "the temperature is missing in the softmax": lambda dy, x: _softmax_gradient(dy, x + noise),
        "a factor of 1 / temperature is missing: the chain rule of z / temperature": lambda dy, x: (
            _softmax_gradient(dy, (x + noise) / t)
        ),
        "logits were multiplied by the temperature: divide": lambda dy, x: (
            _softmax_gradient(dy, (x + noise) * t) * t
        ),
        "this passes dy straight through: the surrogate shall be the softmax": lambda dy, x: dy,
    }


def _solve_draw():
    def draw_category(logits, noise, temperature):
        z = logits + noise
        soft = tf.nn.softmax(z / temperature)
        hard = tf.one_hot(tf.argmax(z, axis=-1), z.shape[-1], dtype=z.dtype)
        return (soft - tf.stop_gradient(soft)) + tf.stop_gradient(hard)  # pseudo-gradient

    return draw_category


draw_category = Exercise(
    "a draw with a gradient",
    _judge_draw,
    (
        "Two vectors of the noisy logits: a hard one for the value, a soft one for the gradient.",
        "Which of them goes into `tf.stop_gradient`? `soft - tf.stop_gradient(soft)` is 0, with a gradient.",
        "Return `(soft - tf.stop_gradient(soft)) + tf.stop_gradient(hard)`, both in the dtype of the logits.",
    ),
    _solve_draw,
    minutes=8,
    difficulty=2,
)


# --- 3. Find and mend: a quantizer -----------------------------------------------------------------


def _judge_quantizer(quantize_with_losses):
    judging.need_callable(quantize_with_losses, "quantize_with_losses")
    z, book, commitment = judging.random_array((8, 3), seed=4), judging.random_array((4, 3), seed=5), 0.25
    nearest = np.linalg.norm(z[:, None] - book, axis=-1).argmin(axis=-1)
    pull = 2 * (z - book[nearest]) / z.size  # of the mean square, on z; the code feels the opposite
    inputs = [tf.constant(z, tf.float32), tf.constant(book, tf.float32)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(inputs)
        answer = quantize_with_losses(*inputs, commitment)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise WrongAnswer("what it returns", "(quantized, loss)", f"{answer!r:.60}")
    quantized = judging.need_tensor(answer[0], inputs[0], "the quantized vectors")
    loss = judging.need_tensor(answer[1], tf.constant(0.0), "the loss")
    judging.compare(quantized, book[nearest], "the quantized vectors", cause="give the nearest codes")
    dy = judging.random_upstream(z.shape)
    _judge_decoder(tape.gradient(quantized, inputs, output_gradients=tf.constant(dy, tf.float32)), dy)
    dz, dbook = tape.gradient(loss, inputs)
    _judge_codes(dbook, -(np.eye(4)[nearest].T @ pull), commitment)
    _judge_commitment(dz, pull, commitment)
    want = (1 + commitment) * np.mean((z - book[nearest]) ** 2)
    cause = "it is codebook_loss + commitment · commitment_loss, both means over all elements"
    judging.compare(loss, want, "the loss", cause=cause)
    return "Each loss moves one side, because its stop_gradient holds the other."


def _judge_decoder(gradients, dy):
    dz, dbook = gradients
    if dz is None:
        cause = "the decoder's gradient must pass straight through to z: keep quantized as it was"
        raise WrongAnswer("the gradient of z from the decoder", "dy", "None", cause)
    judging.compare(dz, dy, "the gradient of z from the decoder", cause="it passes straight through: dz = dy")
    if dbook is not None and np.any(tf.convert_to_tensor(dbook)):
        cause = "the codes shall learn from their own loss only: stop the looked-up code in quantized"
        raise WrongAnswer("the gradient of the codebook from the decoder", "None", "a gradient", cause)


def _judge_codes(got, right, commitment):
    where = "the gradient of the codebook from the loss"
    if got is None:
        cause = "quantized gives its gradient to z: compute the codebook loss on the code that was looked up"
        raise WrongAnswer(where, "a tensor", "None", cause)
    mistakes = {
        "only the commitment loss reaches the codes, at its small weight: ask of each loss what it moves": (
            commitment * right
        ),
        "the commitment loss moves the codes too: stop the code in it": (1 + commitment) * right,
        "the commitment weight is on the codebook loss as well": (commitment + commitment**2) * right,
    }
    judging.compare(judging.need_tensor(got, None, where), right, where, mistakes)


def _judge_commitment(got, pull, commitment):
    where = "the gradient of z from the loss"
    if got is None or not np.any(got):
        cause = "the commitment loss must move z: stop the code in it, not z"
        raise WrongAnswer(where, "a tensor, not zero", "None" if got is None else "zeros", cause)
    mistakes = {
        "the codebook loss moves z too: stop z in it": (1 + commitment) * pull,
        "the codebook loss pushes z away from its code: compute it on the looked-up code": (commitment - 1)
        * pull,
        "the commitment weight is missing": pull,
    }
    judging.compare(judging.need_tensor(got, None, where), commitment * pull, where, mistakes)


def _solve_quantizer():
    def quantize_with_losses(z, codebook, commitment):
        nearest = tf.argmin(tf.reduce_sum((z[:, None] - codebook) ** 2, axis=-1), axis=-1)
        code = tf.gather(codebook, nearest)
        quantized = z + tf.stop_gradient(code - z)  # pseudo-gradient
        codebook_loss = tf.reduce_mean((tf.stop_gradient(z) - code) ** 2)
        commitment_loss = tf.reduce_mean((z - tf.stop_gradient(code)) ** 2)
        return quantized, codebook_loss + commitment * commitment_loss

    return quantize_with_losses


mend_quantizer = Exercise(
    "find and mend: a quantizer",
    _judge_quantizer,
    (
        "For each of the two losses: which tensor shall it move, and which must be held?",
        "`quantized` has no gradient towards the codebook. Which tensor has one?",
        "Codebook loss: `tf.stop_gradient(z) - code`. Commitment loss: `z - tf.stop_gradient(code)`.",
    ),
    _solve_quantizer,
    minutes=10,
    difficulty=3,
)
