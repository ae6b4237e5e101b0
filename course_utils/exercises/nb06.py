"""Exercises of notebook 06: the contract for variables, a layer with a learned clip, two faults to mend."""

import keras
import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

#: Words of TensorFlow's errors about the contract, and what to say about each.
CONTRACT = {
    "must accept keyword argument 'variables'": (
        "the op reads a variable that is no argument: give grad a parameter `variables=None`"
    ),
    "can only concatenate list": "the gradients of the variables stand in a tuple: return a list",
    "Must return gradient for each variable": "return one gradient for each variable, in a list",
    "has no len()": "the second thing that grad returns is None: return a list with a gradient",
    "expected 2, got 1": "with `variables`, grad returns two things: gradients of the arguments, and a list",
    "too many values to unpack": (
        "with `variables`, grad returns two things: gradients of the arguments, and a list"
    ),
    "Iterating over a symbolic": (
        "with `variables`, grad returns two things: gradients of the arguments, and a list"
    ),
}
NONE = "no gradient reaches the variable: was it read outside of the op, or is its gradient None?"
UNREDUCED = "the variable meets every example: sum its gradient over the batch, axis 0"
NO_DY = "the upstream gradient dy is missing in the gradient of the variable"


def _variable_gradients(op, x, variables, dy, graph: bool):
    """Give output, gradient of x and gradients of the variables, in eager mode or in a graph.

    Raises:
        WrongAnswer: The op breaks the contract for variables.
    """

    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = judging.need_tensor(op(x), x, "the output")
        return y, *tape.gradient(y, [x, *variables], output_gradients=tf.cast(dy, y.dtype))

    # A concrete function: TensorFlow warns of retracing where a tf.function is made for each answer.
    run = tf.function(both, autograph=False).get_concrete_function(x) if graph else None
    return (run or both)(x)


def _run(op, x, variables, dy, graph: bool):
    where = "a tf.function" if graph else "eager mode"
    try:
        return _variable_gradients(op, x, variables, dy, graph)
    except (TypeError, ValueError) as error:
        cause = next((cause for words, cause in CONTRACT.items() if words in str(error)), None)
        if cause is None:
            raise
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        raise WrongAnswer(where, "gradients", f"{text:.80}", cause) from None


def _compare_variable(got, want, where: str, mistakes=None):
    """Compare the gradient of one variable; its shape comes first, since no tape looks at it."""
    if got is None:
        raise WrongAnswer(where, "a gradient", "None", NONE)
    got = tf.convert_to_tensor(got)
    if got.shape != want.shape:
        raise WrongAnswer(f"the shape of {where}", want.shape, tuple(got.shape), UNREDUCED)
    judging.compare(got, want, where, mistakes)


def _as_op(op, what: str):
    if op is None or tf.is_tensor(op) or not callable(op):
        cause = "the factory returns the decorated function itself, without calling it"
        raise WrongAnswer(what, "a function of x", f"{op!r:.60}", cause)
    return op


# --- 1. The contract ------------------------------------------------------------------------------


def _judge_bias(make_bias):
    judging.need_callable(make_bias, "make_bias")
    x, dy = judging.random_array((6, 3), seed=1), judging.random_upstream((6, 3))
    for graph in (False, True):
        b = tf.Variable(judging.random_array((3,), seed=2), dtype=tf.float32)
        op = _as_op(make_bias(b), "make_bias(b)")
        y, dx, db = _run(op, tf.constant(x, tf.float32), [b], dy, graph)
        mode = " in a tf.function" if graph else ""
        judging.compare(y, x + b.numpy(), f"the output{mode}")
        _compare_variable(
            db,
            0.1 * dy.sum(axis=0),
            f"the gradient of b{mode}",
            {
                "this is the true gradient: it shall be scaled by 0.1": dy.sum(axis=0),
                "this is the mean over the batch: the gradient is a sum": 0.1 * dy.mean(axis=0),
                NO_DY: np.full(3, 0.1 * len(x)),
            },
        )
        dx = judging.need_tensor(dx, y, f"the gradient of x{mode}")
        slow_x = "only the variable learns slower: x gets dy"
        judging.compare(dx, dy, f"the gradient of x{mode}", {slow_x: 0.1 * dy})
    return "A list with one gradient for each variable, each with the shape of its variable."


def _solve_bias():
    def make_bias(b):
        @tf.custom_gradient
        def op(x):
            def grad(dy, variables=None):
                return dy, [0.1 * tf.reduce_sum(dy, axis=0)]  # pseudo-gradient

            return x + b, grad

        return op

    return make_bias


slow_bias = Exercise(
    "the contract",
    _judge_bias,
    (
        "Take `scale_by` from above: what does its `grad` return, and which shape has each part?",
        "`b` meets every example, so its gradient is the sum of `dy` over axis 0, times 0.1.",
        "`grad(dy, variables=None)` returns `dy, [0.1 * tf.reduce_sum(dy, axis=0)]`.",
    ),
    _solve_bias,
    minutes=6,
    difficulty=1,
)


# --- 2. A layer with a learned clip ---------------------------------------------------------------

TWICE = (
    "the gradient counts twice: alpha is an argument, and grad accepts variables too: do without the latter"
)
BARE = "the op got the Keras weight itself: pass self.alpha.value, which works in eager mode too"


def _pact_weight(layer):
    weights = layer.trainable_variables
    if len(weights) != 1 or tuple(weights[0].shape) != ():
        shapes = [tuple(w.shape) for w in weights]
        cause = (
            "make it in build() with self.add_weight(shape=(), ...); a frozen or raw variable never trains"
        )
        raise WrongAnswer("the trainable weights", "[()]", shapes, cause)
    if not np.isclose(weights[0].numpy(), 2.0):
        raise WrongAnswer(
            "alpha at the start", 2.0, float(weights[0].numpy()), "give add_weight an initializer"
        )
    return weights[0]


def _judge_pact(layer_class):
    if not (isinstance(layer_class, type) and issubclass(layer_class, keras.layers.Layer)):
        raise WrongAnswer("your answer", "a class derived from keras.layers.Layer", f"{layer_class!r:.60}")
    layer = layer_class()
    layer.build((None, 4))
    weight = _pact_weight(layer)
    weight.assign(1.2)
    x, dy = judging.random_array((9, 4), seed=3), judging.random_upstream((9, 4))
    step, inside = 1.2 / 15, (x > 0) & (x < 1.2)
    level = np.round(np.clip(x, 0, 1.2) / step)
    dalpha = (dy * (x >= 1.2)).sum()
    through = dalpha + (dy * np.where(inside, level - x / step, 0)).sum() / 15
    for graph in (False, True):
        try:
            y, dx, got = _run(layer, tf.constant(x, tf.float32), [weight.value], dy, graph)
        except WrongAnswer as wrong:
            if "'variables'" in str(wrong.got) or "no argument" in wrong.cause:
                wrong.cause = BARE
            raise
        mode = " in a tf.function" if graph else ""
        judging.compare(
            y, step * level, f"the output{mode}", {"it is clipped, but not rounded": np.clip(x, 0, 1.2)}
        )
        if got is None:
            raise WrongAnswer(f"the gradient of alpha{mode}", "a gradient", "None", NONE)
        if tuple(got.shape) != ():
            cause = "alpha is one number: sum its gradient over all elements"
            raise WrongAnswer(f"the shape of the gradient of alpha{mode}", (), tuple(got.shape), cause)
        mistakes = {
            TWICE: 2 * dalpha,
            "this is what autodiff gives around the rounding: PACT sums where x >= alpha alone": through,
            "this is what autodiff gives with a plain tf.round": (dy * level).sum() / 15,
            NO_DY: (x >= 1.2).sum(),
        }
        judging.compare(got, dalpha, f"the gradient of alpha{mode}", mistakes)
        dx = judging.need_tensor(dx, y, f"the gradient of x{mode}")
        unclipped = "dy is passed on everywhere: it is 0 outside of 0 < x < alpha"
        judging.compare(dx, dy * inside, f"the gradient of x{mode}", {unclipped: dy})
    return "The weight is an argument of the op, so its gradient has a fixed place in every mode."


def _solve_pact():
    @tf.custom_gradient
    def pact(x, alpha):
        step = alpha / 15.0

        def grad(dy):  # pseudo-gradients
            dx = tf.where((x > 0) & (x < alpha), dy, tf.zeros_like(dy))
            return dx, tf.reduce_sum(tf.where(x >= alpha, dy, tf.zeros_like(dy)))

        return step * tf.round(tf.clip_by_value(x, 0.0, alpha) / step), grad

    class PACTLayer(keras.layers.Layer):
        def build(self, input_shape):
            start = keras.initializers.Constant(2.0)
            self.alpha = self.add_weight(shape=(), initializer=start, name="alpha")

        def call(self, inputs):
            return pact(inputs, self.alpha.value)

    return PACTLayer


pact_layer = Exercise(
    "PACT, a learned clip",
    _judge_pact,
    (
        "Write an op `pact(x, alpha)` with two inputs first; its `grad` returns two gradients.",
        "`tf.where(x >= alpha, dy, 0.0)`, summed over all elements, is the gradient of alpha.",
        "`call` returns `pact(inputs, self.alpha.value)`; `build` makes `alpha` by add_weight, shape `()`.",
    ),
    _solve_pact,
    minutes=15,
    difficulty=2,
)


# --- 3. Find and mend ----------------------------------------------------------------------------

ORDER = "the variables changed places: look each one up by ref(), a graph lists them by name"


def _judge_affine(make_affine):
    judging.need_callable(make_affine, "make_affine")
    x, dy = judging.random_array((6, 3), seed=4), judging.random_upstream((6, 3))
    dgain, dshift = (dy * x).sum(axis=0), dy.sum(axis=0)
    # Each name comes first once: an answer that trusts the order is right in one of the two at most.
    for graph, names in ((True, "ab"), (True, "ba"), (False, "ab")):
        values = judging.random_array((2, 3), seed=5)
        gain, shift = (tf.Variable(v, dtype=tf.float32, name=n) for v, n in zip(values, names, strict=True))
        op = _as_op(make_affine(gain, shift), "make_affine(gain, shift)")
        y, dx, *got = _run(op, tf.constant(x, tf.float32), [gain, shift], dy, graph)
        mode = " in a tf.function" if graph else ""
        judging.compare(y, x * values[0] + values[1], f"the output{mode}")
        shapes = [None if g is None else tuple(g.shape) for g in got]
        if (6, 3) in shapes:
            raise WrongAnswer(f"the shapes of the two gradients{mode}", [(3,), (3,)], shapes, UNREDUCED)
        _compare_variable(got[0], dgain, f"the gradient of gain{mode}", {ORDER: dshift})
        mean = {"this is the mean over the batch: the gradient is a sum": dy.mean(axis=0), ORDER: dgain}
        _compare_variable(got[1], dshift, f"the gradient of shift{mode}", mean)
        dx = judging.need_tensor(dx, y, f"the gradient of x{mode}")
        judging.compare(dx, dy * values[0], f"the gradient of x{mode}", {NO_DY: values[0] + 0 * dy})
    return "Two silent faults: no shape tells that equal ones changed places, and no tape looks at a shape."


def _solve_affine():
    def make_affine(gain, shift):
        @tf.custom_gradient
        def op(x):
            def grad(dy, variables=None):
                found = {gain.ref(): tf.reduce_sum(dy * x, axis=0), shift.ref(): tf.reduce_sum(dy, axis=0)}
                return dy * gain, [found[v.ref()] for v in variables]

            return x * gain + shift, grad

        return op

    return make_affine


mend_affine = Exercise(
    "find and mend: gain and shift",
    _judge_affine,
    (
        "Compare shape and value of each gradient with autodiff of `x * gain + shift`, in a tf.function.",
        "Which shape does `dshift` have? And in which order does a graph list `gain` and `shift`?",
        "`dshift` is `tf.reduce_sum(dy, axis=0)`; return `[found[v.ref()] for v in variables]`.",
    ),
    _solve_affine,
    minutes=10,
    difficulty=3,
)
