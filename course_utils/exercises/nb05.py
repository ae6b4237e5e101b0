"""Exercises of notebook 05: a clip for each row, a factor that is a weight, a reversal in the right place."""

import keras
import numpy as np
import tensorflow as tf

from course_utils import ops
from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

bce = keras.losses.BinaryCrossentropy(from_logits=True)

# --- 1. A norm for each example --------------------------------------------------------------------


def _judge_row_clip(make_op):
    judging.need_callable(make_op, "make_row_clip")
    x = judging.random_array((6, 3), seed=1)
    for bound in (0.75, 2.0):  # exact in every dtype
        op = make_op(bound)
        if op is None or tf.is_tensor(op) or not callable(op):
            cause = "a factory returns the decorated function itself, without calling it"
            raise WrongAnswer(f"make_row_clip({bound})", "a function of x", f"{op!r:.60}", cause)
        judging.judge_op(
            op,
            forward=lambda x: x,
            backward=lambda dy, x, bound=bound: _shorten(dy, bound, axis=1),
            inputs=[x],
            mistakes=_row_clip_mistakes(bound),
            forward_mistakes={
                "the forward pass must leave x alone": lambda x, bound=bound: _shorten(x, bound, axis=1)
            },
        )
    upstream = tf.constant([[0.0, 0.0, 0.0], [0.1, 0.2, 0.2]])
    _, (dx,) = judging.run(op, [tf.zeros((2, 3))], upstream)
    cause = "the norm of that row is 0, and 0 / 0 is NaN: tf.clip_by_norm guards against it"
    judging.compare(dx, upstream, "the gradient for a dy with a row of zeros", cause=cause)
    return "Each example keeps its own direction, and one wild example cannot silence the others."


def _shorten(dy, bound, axis=None):
    return dy * np.minimum(1, bound / np.linalg.norm(dy, axis=axis, keepdims=True))


def _row_clip_mistakes(bound):
    return {
        "each element was clipped by itself: shorten the row as a whole": lambda dy, x: np.clip(
            dy, -bound, bound
        ),
        "one norm was taken over the whole batch: give each row its own": lambda dy, x: _shorten(dy, bound),
        "the norm was taken over the columns: a row is an example, axis 1": lambda dy, x: _shorten(
            dy, bound, axis=0
        ),
        "short rows were made longer: leave a row alone whose norm is below the bound": lambda dy, x: (
            bound * dy / np.linalg.norm(dy, axis=1, keepdims=True)
        ),
        "the gradient is not clipped": lambda dy, x: dy,
        "x was clipped: the op must clip dy": lambda dy, x: _shorten(x, bound, axis=1),
    }


def _solve_row_clip():
    def make_row_clip(bound):
        @tf.custom_gradient
        def row_clip(x):
            def grad(dy):
                return tf.clip_by_norm(dy, bound, axes=[1])

            return tf.identity(x), grad

        return row_clip

    return make_row_clip


row_clip = Exercise(
    "a norm for each example",
    _judge_row_clip,
    (
        "The frame is the factory of notebook 02: the option outside, the tensor inside.",
        "Look up `tf.clip_by_norm`: what does its argument `axes` say?",
        "`grad` returns `tf.clip_by_norm(dy, bound, axes=[1])`.",
    ),
    _solve_row_clip,
    minutes=6,
    difficulty=1,
)


# --- 2. A factor that can be scheduled -------------------------------------------------------------


def _judge_scheduled_scale(layer_class):
    if not (isinstance(layer_class, type) and issubclass(layer_class, keras.layers.Layer)):
        raise WrongAnswer("your answer", "a class derived from keras.layers.Layer", f"{layer_class!r:.60}")
    layer, dy = layer_class(), judging.random_upstream((4, 3))
    x = tf.constant(judging.random_array((4, 3), seed=2), tf.float32)
    layer(x)
    if layer.trainable_variables:
        names = [v.name for v in layer.trainable_variables]
        raise WrongAnswer("the trainable weights", [], names, "an optimizer would change it: trainable=False")
    factor = getattr(layer, "factor", None)
    if not hasattr(factor, "assign"):
        cause = "a number is built into the graph when it is traced: make a weight with self.add_weight"
        raise WrongAnswer("layer.factor", "a weight", f"{factor!r:.60}", cause)
    if not any(factor is w for w in layer.weights):
        cause = "Keras saves only what self.add_weight makes, not a tf.Variable of your own"
        names = [w.name for w in layer.weights]
        raise WrongAnswer("the weights that are saved", "factor among them", names, cause)
    _judge_schedule(layer, factor, x, dy)
    return "The weight lives outside of the graph, so a schedule reaches a model that is traced already."


def _judge_schedule(layer, factor, x, dy):
    @tf.function(autograph=False)
    def traced(x):
        return judging.run(layer, [x], dy)

    for value in (None, 0.25, -2.0):
        if value is not None:
            factor.assign(value)
        value = 1.0 if value is None else value
        y, (dx,) = traced(x)
        where = f"factor {value} in a traced function"
        mistakes = {
            "a change of the factor has no effect: read the weight in call, and hand it to the op": dy,
        }
        forward = {"the forward pass was scaled too: give the inputs back": value * x.numpy()}
        judging.compare(y, x.numpy(), f"the output for {where}", forward)
        dx = judging.need_tensor(dx, x, f"the gradient for {where}")
        judging.compare(dx, value * dy, f"the gradient for {where}", mistakes)


def _solve_scheduled_scale():
    class ScheduledScale(keras.layers.Layer):
        def build(self, input_shape):
            self.factor = self.add_weight(shape=(), initializer="ones", trainable=False, name="factor")

        def call(self, inputs):
            return ops.scale_gradient(inputs, tf.convert_to_tensor(self.factor))

    return ScheduledScale


scheduled_scale = Exercise(
    "a factor that can be scheduled",
    _judge_scheduled_scale,
    (
        "`ops.scale_gradient` takes a tensor for its factor. What can be changed, and is saved?",
        "In build: `self.factor = self.add_weight(shape=(), initializer='ones', trainable=False)`.",
        "In call: return `ops.scale_gradient(inputs, tf.convert_to_tensor(self.factor))`.",
    ),
    _solve_scheduled_scale,
    minutes=8,
    difficulty=2,
)


# --- 3. Find and mend: a reversal in the wrong place -----------------------------------------------


def _judge_adversarial(loss_function):
    judging.need_callable(loss_function, "adversarial_loss")
    x, strength = judging.random_array((8, 3), seed=3), 0.5
    targets = {
        "label": (judging.random_array((8, 1), 4) > 0) * 1.0,
        "domain": np.tile([[0.0], [1.0]], (4, 1)),
    }
    heads = {name: keras.layers.Dense(1) for name in targets}
    features = tf.constant(x, tf.float32)
    dfeatures, losses = {}, 0.0
    want = {}
    for seed, (name, head) in enumerate(heads.items(), start=5):
        head.build((None, 3))
        kernel = judging.random_array((3, 1), seed)
        head.kernel.assign(kernel)
        logits = x @ kernel
        error = (1 / (1 + np.exp(-logits)) - targets[name]) / len(x)
        dfeatures[name], want[name] = error @ kernel.T, x.T @ error
        losses += np.mean(np.logaddexp(0, logits) - targets[name] * logits)
    kernels = [head.kernel.value for head in heads.values()]
    with tf.GradientTape() as tape:
        tape.watch(features)
        y, d = (tf.constant(t, tf.float32) for t in targets.values())
        loss = loss_function(features, y, d, *heads.values(), strength)
    loss = judging.need_tensor(loss, tf.constant(0.0), "the loss")
    gradients = tape.gradient(loss, [features, *kernels])
    _judge_heads(dict(zip(heads, gradients[1:], strict=True)), want, strength)
    _judge_features(
        judging.need_tensor(gradients[0], features, "the features' gradient"), dfeatures, strength
    )
    judging.compare(
        loss, losses, "the loss", cause="it is the sum of both losses: backward alone is reversed"
    )
    return "A reversal acts on all that stands before it: it belongs between the body and the head."


def _judge_heads(got, want, strength):
    for name, right in want.items():
        where = f"the gradient of the {name} head"
        mistakes = {
            f"the {name} head climbs on its own loss: reverse what goes into the head, not what comes out": (
                -strength * right
            ),
            f"the {name} loss was subtracted, so its head climbs: add it, and reverse the features": -right,
            f"the {name} loss carries the strength, so its head learns less: it belongs to the reversal": (
                strength * right
            ),
        }
        judging.compare(judging.need_tensor(got[name], None, where), right, where, mistakes)


def _judge_features(got, parts, strength):
    label, domain = parts["label"], parts["domain"]
    mistakes = {
        "the label loss arrives reversed: give the label head the features as they are": -strength
        * (label + domain),
        "the domain loss arrives as it is: reverse the features for the domain head": label + domain,
        "the domain loss arrives reversed, but not at the given strength": label - domain,
        "nothing of the domain loss arrives: stop_gradient cuts, it does not reverse": label,
        "the two heads are exchanged: the domain head needs the reversal": domain - strength * label,
    }
    judging.compare(got, label - strength * domain, "the gradient of the features", mistakes)


def _solve_adversarial():
    def adversarial_loss(features, y, d, label_head, domain_head, strength):
        label_loss = bce(y, label_head(features))
        domain_loss = bce(d, domain_head(ops.reverse_gradient(features, strength)))
        return label_loss + domain_loss

    return adversarial_loss


mend_adversarial = Exercise(
    "find and mend: a reversal in the wrong place",
    _judge_adversarial,
    (
        "A reversal changes the sign for *all* that stands before it. Who stands before each of the two?",
        "The domain head must learn downhill, so it must not stand before a reversal.",
        "Use `domain_head(ops.reverse_gradient(features, strength))`, and `label_head(features)`.",
    ),
    _solve_adversarial,
    minutes=8,
    difficulty=3,
)
