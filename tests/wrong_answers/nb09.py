"""Wrong answers to the exercises of notebook 09."""

import tensorflow as tf

stop = tf.stop_gradient


def step(v):
    return tf.cast(v > 0, v.dtype)


def spike(factor, forward=step):
    """Make a factory of ops whose gradient is `factor(dy, v, width)`."""

    def make(width):
        @tf.custom_gradient
        def op(v):
            return forward(v), lambda dy: factor(dy, v, tf.cast(width, v.dtype))

        return op

    return make


def triangle(dy, v, width):
    return dy * tf.nn.relu(1 - tf.abs(v) / width)


def triangle_forward(width):
    @tf.custom_gradient
    def op(v):
        return tf.nn.relu(1 - tf.abs(v) / width), lambda dy: dy * tf.nn.relu(1 - tf.abs(v) / width)

    return op


def hard_of(z):
    return tf.one_hot(tf.argmax(z, axis=-1), z.shape[-1], dtype=z.dtype)


def draw(hard_input=None, soft=None, combine=None):
    """Make a draw from its parts; the defaults are the right ones."""
    hard_input = hard_input or (lambda x, g, t: x + g)
    soft = soft or (lambda x, g, t: tf.nn.softmax((x + g) / t))
    combine = combine or (lambda hard, soft: (soft - stop(soft)) + stop(hard))

    def draw_category(logits, noise, temperature):
        hard = hard_of(hard_input(logits, noise, temperature))
        return combine(hard, soft(logits, noise, temperature))

    return draw_category


def quantizer(codebook_loss=None, commitment_loss=None, quantized=None, total=None):
    """Make a quantizer from its parts; the defaults are the right ones."""
    codebook_loss = codebook_loss or (lambda z, code, quantized: stop(z) - code)
    commitment_loss = commitment_loss or (lambda z, code: z - stop(code))
    quantized = quantized or (lambda z, code: z + stop(code - z))
    total = total or (lambda codes, inputs, commitment: codes + commitment * inputs)

    def quantize_with_losses(z, codebook, commitment):
        nearest = tf.argmin(tf.reduce_sum((z[:, None] - codebook) ** 2, axis=-1), axis=-1)
        code = tf.gather(codebook, nearest)
        outputs = quantized(z, code)
        codes = tf.reduce_mean(codebook_loss(z, code, outputs) ** 2)
        return outputs, total(codes, tf.reduce_mean(commitment_loss(z, code) ** 2), commitment)

    return quantize_with_losses


def on_outputs(z, code, quantized):
    return stop(z) - quantized


WRONG = {
    "triangle_spike": {
        "not cut off": (spike(lambda dy, v, w: dy * (1 - tf.abs(v) / w)), "cut it off there"),
        "ignores dy": (spike(lambda dy, v, w: triangle(tf.ones_like(v), v, w)), "dy is missing"),
        "area 1": (spike(lambda dy, v, w: triangle(dy, v, w) / w), "do not divide by the width"),
        "width as slope": (spike(lambda dy, v, w: triangle(dy, v, 1 / w)), "divide by it, do not multiply"),
        "one side": (spike(lambda dy, v, w: dy * tf.nn.relu(1 - v / w)), "one side is missing"),
        "a box": (spike(lambda dy, v, w: tf.where(tf.abs(v) < w, dy, 0)), "this is a box"),
        "plain straight-through": (spike(lambda dy, v, w: dy), "the gradient passes everywhere"),
        "sign forward": (spike(triangle, forward=tf.sign), "a spike is 1 or 0"),
        "triangle forward": (triangle_forward, "forward it stays a step"),
        "no custom gradient": (lambda width: step, "the step alone has no gradient"),
        "calls the op": (lambda width: spike(triangle)(width)(tf.ones(2)), "without calling it"),
    },
    "draw_category": {
        "argmax alone": (draw(combine=lambda hard, soft: hard), "tf.argmax has no gradient"),
        "wrong side of stop_gradient": (
            draw(combine=lambda hard, soft: hard + stop(soft - hard)),
            "hard belongs into stop_gradient",
        ),
        "soft vector": (draw(combine=lambda hard, soft: soft), "this is the soft vector"),
        "noise missing forward": (draw(hard_input=lambda x, g, t: x), "the noise is missing"),
        "noise not divided": (
            draw(hard_input=lambda x, g, t: x / t + g, soft=lambda x, g, t: tf.nn.softmax(x / t + g)),
            "divide the sum",
        ),
        "noise missing backward": (
            draw(soft=lambda x, g, t: tf.nn.softmax(x / t)),
            "the softmax must see the noise",
        ),
        "no temperature": (draw(soft=lambda x, g, t: tf.nn.softmax(x + g)), "the temperature is missing"),
        "factor missing": (
            draw(soft=lambda x, g, t: t * tf.nn.softmax((x + g) / t)),
            "a factor of 1 / temperature",
        ),
        "multiplies by the temperature": (
            draw(soft=lambda x, g, t: tf.nn.softmax((x + g) * t)),
            "were multiplied by the temperature",
        ),
        "identity": (draw(soft=lambda x, g, t: x), "passes dy straight through"),
    },
    "mend_quantizer": {
        "as it was": (
            quantizer(on_outputs, lambda z, code: z - code),
            "ask of each loss what it moves",
        ),
        "codebook loss on the outputs": (quantizer(on_outputs), "on the code that was looked up"),
        "commitment moves codes": (
            quantizer(commitment_loss=lambda z, code: z - code),
            "the commitment loss moves the codes too",
        ),
        "commitment stops z": (
            quantizer(commitment_loss=lambda z, code: stop(z) - code),
            "the commitment loss moves the codes too",
        ),
        "commitment stops both": (
            quantizer(commitment_loss=lambda z, code: stop(z - code)),
            "the commitment loss must move z",
        ),
        "codebook loss moves z": (
            quantizer(codebook_loss=lambda z, code, quantized: z - code),
            "the codebook loss moves z too",
        ),
        "weight forgotten": (
            quantizer(total=lambda codes, inputs, commitment: codes + inputs),
            "the commitment weight is missing",
        ),
        "raw code as output": (
            quantizer(quantized=lambda z, code: code),
            "must pass straight through to z",
        ),
        "decoder moves the codes": (
            quantizer(quantized=lambda z, code: (z - stop(z)) + code),
            "the codes shall learn from their own loss only",
        ),
        "a wrong value": (
            quantizer(total=lambda codes, inputs, c: codes + stop(codes) + c * inputs),
            "both means over all elements",
        ),
    },
}
