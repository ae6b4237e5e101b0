"""Wrong answers to the exercises of notebook 05."""

import keras
import tensorflow as tf

from course_utils import ops

bce = keras.losses.BinaryCrossentropy(from_logits=True)


def identity(backward):
    """Make an identity with a backward pass `backward(dy, x)`."""

    @tf.custom_gradient
    def op(x):
        return tf.identity(x), lambda dy: backward(dy, x)

    return op


def clips_x(bound):
    @tf.custom_gradient
    def op(x):
        return tf.clip_by_norm(x, bound, axes=[1]), lambda dy: tf.clip_by_norm(dy, bound, axes=[1])

    return op


def row_norm(dy):
    return tf.norm(dy, axis=1, keepdims=True)


class Scale(keras.layers.Layer):
    """The layer as it should be; the mistakes change one part of it."""

    trainable_factor = False

    def build(self, input_shape):
        self.factor = self.add_weight(shape=(), initializer="ones", trainable=self.trainable_factor)

    def call(self, inputs):
        return ops.scale_gradient(inputs, tf.convert_to_tensor(self.factor))


class Trained(Scale):
    trainable_factor = True


class PythonNumber(Scale):
    def build(self, input_shape):
        self.factor = 1.0

    def call(self, inputs):
        return ops.scale_gradient(inputs, self.factor)


class RawVariable(Scale):
    def build(self, input_shape):
        self.factor = tf.Variable(1.0, trainable=False)


class ReadInBuild(Scale):
    def build(self, input_shape):
        super().build(input_shape)
        self.number = float(self.factor)

    def call(self, inputs):
        return ops.scale_gradient(inputs, self.number)


class ScalesForward(Scale):
    def call(self, inputs):
        return inputs * self.factor


def adversarial(label_from=None, domain_from=None, after_head=None, label_weight=1.0, domain_weight=1.0):
    """Make a loss from what each head is given; the defaults are the right ones."""

    def adversarial_loss(features, y, d, label_head, domain_head, strength):
        reversed_features = ops.reverse_gradient(features, strength)
        label_logits = label_head(label_from(features, strength) if label_from else features)
        domain_logits = domain_head(domain_from(features, strength) if domain_from else reversed_features)
        if after_head:
            domain_logits = ops.reverse_gradient(domain_logits, strength)
        return label_weight * bce(y, label_logits) + domain_weight * bce(d, domain_logits)

    return adversarial_loss


def plain(features, strength):
    return features


WRONG = {
    "row_clip": {
        "by value": (
            lambda bound: identity(lambda dy, x: tf.clip_by_value(dy, -bound, bound)),
            "each element was clipped by itself",
        ),
        "one norm for the batch": (
            lambda bound: identity(lambda dy, x: tf.clip_by_norm(dy, bound)),
            "over the whole batch",
        ),
        "norm of columns": (
            lambda bound: identity(lambda dy, x: tf.clip_by_norm(dy, bound, axes=[0])),
            "over the columns",
        ),
        "lengthens short rows": (
            lambda bound: identity(lambda dy, x: bound * dy / row_norm(dy)),
            "short rows were made longer",
        ),
        "does not clip": (lambda bound: identity(lambda dy, x: dy), "the gradient is not clipped"),
        "gradient is the clipped x": (
            lambda bound: identity(lambda dy, x: tf.clip_by_norm(x, bound, axes=[1])),
            "the op must clip dy",
        ),
        "clips x": (clips_x, "leave x alone"),
        "NaN for a row of zeros": (
            lambda bound: identity(lambda dy, x: dy / row_norm(dy) * tf.minimum(row_norm(dy), bound)),
            "0 / 0 is NaN",
        ),
        "calls the op": (lambda bound: identity(lambda dy, x: dy)(tf.ones((2, 3))), "without calling it"),
    },
    "scheduled_scale": {
        "trained": (Trained, "trainable=False"),
        "Python number": (PythonNumber, "built into the graph"),
        "raw tf.Variable": (RawVariable, "Keras saves only what self.add_weight makes"),
        "read in build": (ReadInBuild, "read the weight in call"),
        "scales the forward pass": (ScalesForward, "the forward pass was scaled too"),
    },
    "mend_adversarial": {
        "as it was": (
            adversarial(label_from=ops.reverse_gradient, domain_from=plain, after_head=True),
            "the domain head climbs",
        ),
        "reversal still after the head": (
            adversarial(domain_from=plain, after_head=True),
            "the domain head climbs",
        ),
        "label head still reversed": (
            adversarial(label_from=ops.reverse_gradient),
            "give the label head the features as they are",
        ),
        "no reversal": (adversarial(domain_from=plain), "the domain loss arrives as it is"),
        "strength left out": (
            adversarial(domain_from=lambda features, strength: ops.reverse_gradient(features)),
            "not at the given strength",
        ),
        "subtracts the domain loss": (
            adversarial(domain_from=plain, domain_weight=-1.0),
            "the domain loss was subtracted",
        ),
        "strength on the loss": (
            adversarial(domain_from=lambda f, strength: ops.reverse_gradient(f), domain_weight=0.5),
            "so its head learns less",
        ),
        "stop_gradient": (
            adversarial(domain_from=lambda f, strength: tf.stop_gradient(f)),
            "it does not reverse",
        ),
        "heads exchanged": (
            adversarial(label_from=ops.reverse_gradient, domain_from=plain),
            "the two heads are exchanged",
        ),
    },
}
