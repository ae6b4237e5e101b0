"""Wrong answers to the exercises of notebook 06."""

import keras
import tensorflow as tf


def bias(answer):
    """Make a factory whose grad returns `answer(dy, x)`."""

    def make_bias(b):
        @tf.custom_gradient
        def op(x):
            return x + b, lambda dy, variables=None: answer(dy, x)

        return op

    return make_bias


def bias_without_variables(b):
    return tf.custom_gradient(lambda x: (x + b, lambda dy: dy))


def bias_read_outside(b):
    value = tf.convert_to_tensor(b)
    return tf.custom_gradient(lambda x: (x + value, lambda dy: dy))


def total(dy):
    return tf.reduce_sum(dy, axis=0)


def pact(dalpha, dx=None, variables=False):
    """Make the op of PACT with another gradient `dalpha(dy, x, alpha)` or `dx(dy, x, alpha)`."""

    @tf.custom_gradient
    def op(x, alpha):
        def parts(dy):
            inside = (x > 0) & (x < alpha)
            return (dx or (lambda dy, x, a: tf.where(inside, dy, 0.0)))(dy, x, alpha), dalpha(dy, x, alpha)

        def with_variables(dy, variables=None):
            got = parts(dy)
            return got if variables is None else (got, [got[1] for _ in variables])

        step = alpha / 15.0
        y = step * tf.round(tf.clip_by_value(x, 0.0, alpha) / step)
        return y, with_variables if variables else parts

    return op


def above(dy, x, alpha):
    return tf.reduce_sum(tf.where(x >= alpha, dy, 0.0))


class PACT(keras.layers.Layer):
    op = staticmethod(pact(above))
    start = 2.0
    trains = True

    def build(self, input_shape):
        start = keras.initializers.Constant(self.start)
        self.alpha = self.add_weight(shape=(), initializer=start, trainable=self.trains)

    def call(self, inputs):
        return self.op(inputs, self.alpha.value)


def pact_layer(**attributes):
    """Make the right layer with something exchanged."""
    return type("PACTLayer", (PACT,), attributes)


class PassesTheKerasWeight(PACT):
    def call(self, inputs):
        return self.op(inputs, self.alpha)


class ReadsOutside(PACT):
    def call(self, inputs):
        alpha = tf.convert_to_tensor(self.alpha)
        return tf.custom_gradient(lambda x: (self.op(x, alpha), lambda dy: dy))(inputs)


class Autodiff(PACT):
    rounding = staticmethod(tf.grad_pass_through(tf.round))

    def call(self, inputs):
        step = self.alpha.value / 15.0
        return step * self.rounding(tf.clip_by_value(inputs, 0.0, self.alpha.value) / step)


def affine(answer):
    """Make a factory whose grad returns `answer(variables, gain, shift, dy, x)` for the variables."""

    def make_affine(gain, shift):
        @tf.custom_gradient
        def op(x):
            def grad(dy, variables=None):
                return dy * gain, answer(variables, gain, shift, dy, x)

            return x * gain + shift, grad

        return op

    return make_affine


def by_ref(dshift):
    """Match by identity, with another gradient for shift."""

    def answer(variables, gain, shift, dy, x):
        found = {gain.ref(): total(dy * x), shift.ref(): dshift(dy)}
        return [found[v.ref()] for v in variables]

    return answer


WRONG = {
    "slow_bias": {
        "no parameter variables": (bias_without_variables, "give grad a parameter `variables=None`"),
        "only dx": (bias(lambda dy, x: dy), "grad returns two things"),
        "a tuple": (bias(lambda dy, x: (dy, (0.1 * total(dy),))), "return a list"),
        "an empty list": (bias(lambda dy, x: (dy, [])), "one gradient for each variable"),
        "None for the list": (bias(lambda dy, x: (dy, None)), "is None: return a list"),
        "None in the list": (bias(lambda dy, x: (dy, [None])), "no gradient reaches the variable"),
        "read outside": (bias_read_outside, "was it read outside of the op"),
        "not summed": (bias(lambda dy, x: (dy, [0.1 * dy])), "sum its gradient over the batch"),
        "mean": (bias(lambda dy, x: (dy, [0.1 * tf.reduce_mean(dy, axis=0)])), "the mean over the batch"),
        "not scaled": (bias(lambda dy, x: (dy, [total(dy)])), "scaled by 0.1"),
        "ignores dy": (bias(lambda dy, x: (dy, [0.1 * total(tf.ones_like(dy))])), "dy is missing"),
        "x learns slower too": (bias(lambda dy, x: (0.1 * dy, [0.1 * total(dy)])), "x gets dy"),
        "calls the op": (lambda b: bias(lambda dy, x: (dy, [dy]))(b)(tf.ones((1, 3))), "without calling it"),
    },
    "pact_layer": {
        "passes the Keras weight": (PassesTheKerasWeight, "pass self.alpha.value"),
        "Keras weight and variables": (
            pact_layer(op=staticmethod(pact(above, variables=True)), call=PassesTheKerasWeight.call),
            "counts twice",
        ),
        "read outside": (ReadsOutside, "was it read outside of the op"),
        "autodiff": (Autodiff, "what autodiff gives around the rounding"),
        "plain round": (pact_layer(rounding=staticmethod(tf.round), call=Autodiff.call), "a plain tf.round"),
        "not summed": (
            pact_layer(op=staticmethod(pact(lambda dy, x, a: tf.where(x >= a, dy, 0.0)))),
            "sum its gradient over all elements",
        ),
        "ignores dy": (
            pact_layer(op=staticmethod(pact(lambda dy, x, a: above(tf.ones_like(dy), x, a)))),
            "dy is missing",
        ),
        "dx everywhere": (
            pact_layer(op=staticmethod(pact(above, lambda dy, x, a: dy))),
            "passed on everywhere",
        ),
        "not rounded": (
            pact_layer(call=lambda self, x: tf.clip_by_value(x, 0.0, self.alpha.value)),
            "not rounded",
        ),
        "frozen": (pact_layer(trains=False), "self.add_weight"),
        "starts at 1": (pact_layer(start=1.0), "give add_weight an initializer"),
    },
    "mend_affine": {
        "as it was": (affine(lambda v, gain, shift, dy, x: [total(dy * x), dy]), "over the batch"),
        "summed, in order of reading": (
            affine(lambda v, gain, shift, dy, x: [total(dy * x), total(dy)]),
            "look each one up by ref()",
        ),
        "summed, turned around": (
            affine(lambda v, gain, shift, dy, x: [total(dy), total(dy * x)]),
            "look each one up by ref()",
        ),
        "by ref, not summed": (affine(by_ref(lambda dy: dy)), "over the batch"),
        "by ref, mean": (affine(by_ref(lambda dy: tf.reduce_mean(dy, axis=0))), "this is the mean"),
        "None for shift": (affine(by_ref(lambda dy: None)), "no gradient reaches the variable"),
    },
}
