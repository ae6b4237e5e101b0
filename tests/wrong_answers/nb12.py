"""Wrong answers to the exercises of notebook 12."""

import keras
import numpy as np
import tensorflow as tf
from keras import ops


def sign(y=None, backward=None, signature="portable", returns=lambda pair: pair):
    """Make a rule of the sign; the defaults are right."""

    def rule(x):
        def of(dy):
            return backward(dy, x) if backward else ops.where(ops.abs(x) <= 1, dy, ops.zeros_like(dy))

        grads = {
            "portable": lambda *args, upstream=None: of(args[0] if upstream is None else upstream),
            "TensorFlow": of,
            "PyTorch": lambda *args, upstream: of(upstream),
            "first argument": lambda *args, upstream=None: of(args[0]),
        }
        forward = y(x) if y else ops.where(x >= 0, ops.ones_like(x), -ops.ones_like(x))
        return returns((forward, grads[signature]))

    return rule


def scale(dx=None, dfactor=None, signature="portable", pack=tuple):
    """Make a rule of the scale; the defaults are right."""

    def shorten(dx):
        return dx / ops.maximum(ops.sqrt(ops.sum(dx * dx, axis=-1, keepdims=True)), 1.0)

    def rule(x, factor):
        def grad(*args, upstream=None):
            dy = args[0] if upstream is None else upstream
            first = dx(dy, factor, shorten) if dx else shorten(dy * factor)
            return pack([first, dfactor(dy, x) if dfactor else ops.sum(dy * x, axis=0)])

        return x * factor, grad if signature == "portable" else (lambda dy: grad(dy))

    return rule


def norm(dx, **options):
    return ops.sqrt(ops.sum(dx * dx, keepdims=True, **options))


def cut_layer(way=lambda weight: weight.value, rule=None):
    """Make a layer; the defaults are right."""

    def right(x, cut):
        def grad(*args, upstream=None):
            dy = args[0] if upstream is None else upstream
            nothing = ops.zeros_like(dy)
            dcut = -ops.sum(ops.where(x > cut, dy, nothing))
            return ops.where(x > cut - 1.0, dy, nothing), dcut

        return ops.where(x > cut, x, ops.zeros_like(x)), grad

    class LearnedCut(keras.layers.Layer):
        def build(self, shape):
            self.cut = self.add_weight(shape=(), initializer=keras.initializers.Constant(0.5), name="cut")

        def call(self, x):
            return ops.custom_gradient(self.rule)(x, way(self.cut))

    LearnedCut.rule = staticmethod(rule(right) if rule else right)
    return LearnedCut


def change(of_gradients):
    """Make a rule whose gradients are changed by a function of (gradients, dy)."""

    def make(right):
        def rule(x, cut):
            y, grad = right(x, cut)

            def changed(*args, upstream=None):
                dy = args[0] if upstream is None else upstream
                return of_gradients(grad(dy), dy)

            return y, changed

        return rule

    return make


def with_margin(right):
    return lambda x, cut, margin: right(x, cut)


def without_margin(right):
    def rule(x, cut):
        y, grad = right(x, cut)

        def changed(*args, upstream=None):
            dy = args[0] if upstream is None else upstream
            return ops.where(x > cut, dy, ops.zeros_like(dy)), grad(dy)[1]

        return y, changed

    return rule


def only_dy(right):
    def rule(x, cut):
        y, grad = right(x, cut)
        return y, lambda dy: grad(dy)

    return rule


WRONG = {
    "portable_sign": {
        "grad(dy)": (sign(signature="TensorFlow"), "takes both forms"),
        "grad(*args, upstream)": (sign(signature="PyTorch"), "takes both forms"),
        "takes the first argument always": (sign(signature="first argument"), "that is x, not dy"),
        "plain estimator": (sign(backward=lambda dy, x: dy), "dy passes everywhere"),
        "stops at 1": (
            sign(backward=lambda dy, x: dy * ops.cast(ops.abs(x) < 1, dy.dtype)),
            "at |x| = 1 itself",
        ),
        "ops.sign": (sign(y=ops.sign), "ops.sign gives 0"),
        "a list": (sign(backward=lambda dy, x: [dy * ops.cast(ops.abs(x) <= 1, dy.dtype)]), "takes no list"),
        "TensorFlow's where": (
            sign(backward=lambda dy, x: tf.where(tf.abs(x) <= 1, dy, tf.zeros_like(dy))),
            "take the one of keras.ops",
        ),
        "NumPy's where": (
            sign(y=lambda x: ops.cast(np.where(np.asarray(x) >= 0, 1.0, -1.0), x.dtype)),
            "take the one of keras.ops",
        ),
        "decorated": (ops.custom_gradient(sign()), "leave the decorator off"),
        "no grad": (sign(returns=lambda pair: pair[0]), "return y and grad"),
    },
    "portable_scale": {
        "a list, as it was": (scale(pack=list), "takes no list"),
        "grad(dy), as it was": (scale(signature="TensorFlow"), "takes both forms"),
        "clip_by_norm, as it was": (
            scale(dx=lambda dy, factor, _: tf.clip_by_norm(dy * factor, 1.0, axes=[-1])),
            "take the one of keras.ops",
        ),
        "not clipped": (scale(dx=lambda dy, factor, _: dy * factor), "is not clipped"),
        "by value": (
            scale(dx=lambda dy, factor, _: ops.clip(dy * factor, -1.0, 1.0)),
            "each element is clipped by itself",
        ),
        "one norm for the batch": (
            scale(dx=lambda dy, factor, _: dy * factor / ops.maximum(norm(dy * factor), 1.0)),
            "over the whole batch",
        ),
        "lengthens short rows": (
            scale(dx=lambda dy, factor, _: dy * factor / norm(dy * factor, axis=-1)),
            "were made longer",
        ),
        "clips before the factor": (
            scale(dx=lambda dy, factor, shorten: shorten(dy) * factor),
            "clipped before the factor",
        ),
        "NaN for a row of zeros": (
            scale(
                dx=lambda dy, factor, _: (
                    dy * factor * ops.minimum(norm(dy * factor, axis=-1), 1.0) / norm(dy * factor, axis=-1)
                )
            ),
            "0 / 0 is NaN",
        ),
        "not summed": (scale(dfactor=lambda dy, x: dy * x), "sum over it"),
        "mean": (scale(dfactor=lambda dy, x: ops.mean(dy * x, axis=0)), "that is the mean"),
        "one gradient": (scale(pack=lambda pair: (pair[0],)), "one gradient for each input"),
    },
    "mend_layer": {
        "margin still an argument": (cut_layer(rule=with_margin), "belongs into the rule's body"),
        "grad(dy) still": (cut_layer(rule=only_dy), "takes both forms"),
        "a list still": (cut_layer(rule=change(lambda pair, dy: list(pair))), "takes no list"),
        "None for the margin still": (
            cut_layer(rule=change(lambda pair, dy: (*pair, None))),
            "one gradient for each input",
        ),
        "the weight itself still": (cut_layer(way=lambda weight: weight), "self.cut.value"),
        "the weight's number": (
            cut_layer(way=lambda weight: ops.array(weight.numpy())),
            "copied out of the tape",
        ),
        "gradient of the cut not summed": (
            cut_layer(rule=change(lambda pair, dy: (pair[0], -dy))),
            "sum over it",
        ),
        "sign of the cut's gradient": (
            cut_layer(rule=change(lambda pair, dy: (pair[0], -pair[1]))),
            "the cut moves the wrong way",
        ),
        "margin left out": (cut_layer(rule=without_margin), "the margin is gone"),
        "class made": (cut_layer()(), "a class derived from"),
    },
}
