"""Half-repairs of cases 1 to 5."""

import tensorflow as tf


def smooth_abs(gradient):
    """Make the op with the backward pass `gradient(dy, slope)`."""

    @tf.custom_gradient
    def op(x):
        root = tf.sqrt(x * x + 1.0)
        return root - 1.0, lambda dy: gradient(dy, x / root)

    return op


def learned_leak(reduce, dx=None):
    """Make the op with another `reduce(each, x)` for the leak, or another `dx(dy, leak)`."""

    @tf.custom_gradient
    def op(x, leak):
        def grad(dy):
            each = dy * tf.minimum(x, 0.0)
            return dx(dy, leak) if dx else tf.where(x > 0, dy, leak * dy), reduce(each, x)

        return tf.where(x > 0, x, leak * x), grad

    return op


def over_all_but_last(each, x, reduce=tf.reduce_sum):
    return reduce(each, axis=list(range(x.shape.rank - 1)))


def to_levels(combine):
    """Make a quantizer that returns `combine(x, levels)`."""
    return lambda x, step=0.25: combine(x, step * tf.round(x / step))


stop = tf.stop_gradient


def vq_loss(codebook_side=None, z_side=stop, commitment=None, reconstruction=None):
    """Make the loss with other sides in its terms."""

    def loss(z, codebook, target):
        squares = tf.reduce_sum((z[:, None] - codebook) ** 2, axis=-1)
        nearest = tf.gather(codebook, tf.argmin(squares, axis=-1))
        code = z + stop(nearest - z)
        side = codebook_side(nearest, code) if codebook_side else nearest
        held = commitment(z, nearest) if commitment else z - stop(nearest)
        decoded = reconstruction(z, nearest) if reconstruction else code
        parts = (decoded - target, z_side(z) - side, 0.5 * held)
        return sum(tf.reduce_mean(part**2) for part in parts)

    return loss


def squares(a, b):
    return tf.reduce_sum((a - b) ** 2, axis=-1)


def guarded_afterwards(a, b):
    norm = tf.norm(a - b, axis=-1)
    return tf.where(norm > 0, norm, 0.0)


@tf.custom_gradient
def same_sign(a, b):
    norm = tf.norm(a - b, axis=-1)

    def grad(dy):
        unit = dy[:, None] * tf.math.divide_no_nan(a - b, norm[:, None])
        return unit, unit

    return norm, grad


WRONG = {
    "smooth_abs": {
        "as it was": (smooth_abs(lambda dy, slope: slope), "what does grad do with it?"),
        "added": (smooth_abs(lambda dy, slope: dy + slope), "the chain rule multiplies"),
        "dy alone": (smooth_abs(lambda dy, slope: dy), "the slope of the op is missing"),
        "sign of dy": (smooth_abs(lambda dy, slope: tf.sign(dy) * slope), "only the sign of dy"),
        "sum of dy": (smooth_abs(lambda dy, slope: tf.reduce_sum(dy) * slope), "a dy of its own"),
    },
    "learned_leak": {
        "as it was": (learned_leak(lambda each, x: each), "a sum over *all* axes but the last"),
        "axis 0 only": (
            learned_leak(lambda each, x: tf.reduce_sum(each, axis=0)),
            "a sum over *all* axes but the last",
        ),
        "everything": (learned_leak(lambda each, x: tf.reduce_sum(each)), "each has its own leak"),
        "last axis": (learned_leak(lambda each, x: tf.reduce_sum(each, axis=-1)), "the wrong axis"),
        "mean": (
            learned_leak(lambda each, x: over_all_but_last(each, x, tf.reduce_mean)),
            "a mean was taken",
        ),
        "mended the right one": (
            learned_leak(over_all_but_last, dx=lambda dy, leak: leak * dy),
            "was right before",
        ),
    },
    "to_levels": {
        "as it was": (to_levels(lambda x, q: q + stop(x - q)), "x comes out as it went in"),
        "wrong sign": (to_levels(lambda x, q: x + stop(x - q)), "the difference has the wrong sign"),
        "all stopped": (to_levels(lambda x, q: stop(x + q - x)), "no x is left outside"),
        "nothing stopped": (to_levels(lambda x, q: x + (q - x)), "the two paths of x cancel"),
    },
    "vq_loss": {
        "as it was": (vq_loss(lambda nearest, code: code), "which of its two sides is z in disguise?"),
        "z not stopped": (vq_loss(z_side=tf.identity), "the codebook loss pulls z too"),
        "both stopped": (vq_loss(lambda nearest, code: stop(nearest)), "its own loss needs the raw lookup"),
        "commitment not stopped": (
            vq_loss(commitment=lambda z, nearest: z - nearest),
            "the commitment pulls the codebook too",
        ),
        "no commitment": (
            vq_loss(commitment=lambda z, nearest: stop(z - nearest)),
            "the commitment no longer reaches z",
        ),
        "not straight through": (
            vq_loss(reconstruction=lambda z, nearest: nearest),
            "the reconstruction no longer reaches z",
        ),
    },
    "distance": {
        "as it was": (lambda a, b: tf.norm(a - b, axis=-1), "the root must not see a 0"),
        "guarded afterwards": (guarded_afterwards, "make what goes *into* the root safe"),
        "epsilon outside": (lambda a, b: tf.norm(a - b, axis=-1) + 1e-3, "the distances changed"),
        "tiny epsilon outside": (lambda a, b: tf.norm(a - b, axis=-1) + 1e-9, "the root must not see a 0"),
        "epsilon inside": (lambda a, b: tf.sqrt(squares(a, b) + 1e-3), "the distances changed"),
        "stopped": (lambda a, b: stop(tf.norm(a - b, axis=-1)), "all paths of it are stopped"),
        "same sign": (same_sign, "moving b has the opposite effect"),
    },
}
