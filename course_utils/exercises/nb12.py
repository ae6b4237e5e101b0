"""Exercises of notebook 12: rules of a custom gradient that hold on every backend of Keras.

Each answer holds a *rule*: the function `f(*inputs) -> (y, grad)` without a decorator. A judge calls `grad`
in the form of each backend, so it sees what PyTorch would say where PyTorch is not installed.
"""

import inspect

import keras
import numpy as np
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer

#: How a backend calls `grad`: positional arguments and keyword arguments, from the inputs and dy.
CALLS = {
    "TensorFlow and JAX, grad(dy)": lambda inputs, dy: ((dy,), {}),
    "PyTorch, grad(*inputs, upstream=dy)": lambda inputs, dy: (tuple(inputs), {"upstream": dy}),
}


def _judge_rule(rule, inputs, forward, backward, mistakes=None, forward_mistakes=None):
    """Judge a rule: values in both forms of call, a tuple of gradients, and nothing but `keras.ops`."""
    judging.need_callable(rule, "the rule, without a decorator")
    for dtype in ("float32", "float64"):
        tensors = [tf.constant(x, dtype) for x in inputs]
        y, grad = _pair(rule, tensors)
        want = np.asarray(forward(*inputs))
        output = f"the output for {dtype}"
        wrong = {cause: f(*inputs) for cause, f in (forward_mistakes or {}).items()}
        judging.compare(judging.need_tensor(y, tf.cast(want, dtype), output), want, output, wrong)
        dy = judging.random_upstream(want.shape)
        right = backward(dy, *inputs)
        for backend, call in CALLS.items():
            gradients = _gradients(grad, call(tensors, tf.constant(dy, dtype)), len(inputs), backend)
            for i, (got, x, gradient) in enumerate(zip(gradients, tensors, right, strict=True)):
                where = f"gradient {i + 1} of {len(inputs)} for {dtype}, called as by {backend}"
                wrong = {cause: f(dy, *inputs)[i] for cause, f in (mistakes or {}).items()}
                wrong = {cause: w for cause, w in wrong.items() if np.broadcast(w, gradient).shape == x.shape}
                judging.compare(_need_gradient(got, x, where), gradient, where, wrong)
    _need_keras_alone(rule, tensors, dy.shape)


def _pair(rule, inputs):
    """Call a rule; refuse what is not a pair of an output and a function."""
    pair = rule(*inputs)
    if isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1]):
        return pair
    cause = "return y and grad, and leave the decorator off: the check does its work"
    raise WrongAnswer("what the rule returns", "a pair (y, grad)", type(pair).__name__, cause)


def _gradients(grad, call, count: int, backend: str):
    args, kwargs = call
    try:
        inspect.signature(grad).bind(*args, **kwargs)
    except TypeError as error:
        cause = "only `def grad(*args, upstream=None)` takes both forms: (dy) and (*inputs, upstream=dy)"
        raise WrongAnswer(f"the call by {backend}", "grad takes it", str(error), cause) from None
    gradients = grad(*args, **kwargs)
    if isinstance(gradients, list):
        cause = "PyTorch takes no list, it counts it as one gradient: return a tuple"
        raise WrongAnswer("what grad returns", "a tensor or a tuple", "a list", cause)
    gradients = gradients if isinstance(gradients, tuple) else (gradients,)
    if len(gradients) != count:
        cause = "one gradient for each input of the rule, in their order"
        raise WrongAnswer("the number of gradients", count, len(gradients), cause)
    return gradients


def _need_gradient(got, x, where: str):
    if tf.is_tensor(got) and got.shape != x.shape:
        cause = "the input is shared by the batch: sum over it (TensorFlow would accept this silently)"
        raise WrongAnswer(f"the shape of {where}", tuple(x.shape), tuple(got.shape), cause)
    return judging.need_tensor(got, x, where)


def _need_keras_alone(rule, inputs, shape):
    """Run a rule on Keras's symbolic tensors: they know no operation but those of `keras.ops`."""
    symbols = [keras.KerasTensor(tuple(x.shape), "float32") for x in inputs]
    try:
        _, grad = rule(*symbols)
        grad(keras.KerasTensor(shape, "float32"))
    except (ValueError, TypeError, AttributeError) as error:
        if "KerasTensor" not in str(error):
            raise
        cause = "an operation of TensorFlow or NumPy is in it: take the one of keras.ops"
        got = f"{type(error).__name__}: {str(error).split('. ')[0][:90]}"
        raise WrongAnswer("the rule on symbolic tensors of Keras", "it runs", got, cause) from None


# --- 1. A signature for all backends ---------------------------------------------------------------


def _judge_sign(rule):
    x = judging.random_array((5, 4), seed=1) * 1.5
    x[0, :3] = 0.0, 1.0, -1.0
    _judge_rule(
        rule,
        [x],
        lambda x: np.where(x >= 0, 1.0, -1.0),
        lambda dy, x: (dy * (abs(x) <= 1),),
        {
            "dy passes everywhere: stop it where |x| > 1": lambda dy, x: (dy,),
            "dy is stopped at |x| = 1 itself: use <=": lambda dy, x: (dy * (abs(x) < 1),),
            "that is x, not dy: PyTorch hands the inputs over first, and dy as `upstream`": lambda dy, x: (
                x * (abs(x) <= 1),
            ),
        },
        {"the sign of 0 is 1 here, ops.sign gives 0": np.sign},
    )
    return "One grad serves three libraries: dy is the only argument, or it comes as `upstream`."


def _solve_sign():
    def portable_sign(x):
        def grad(*args, upstream=None):
            dy = args[0] if upstream is None else upstream
            return keras.ops.where(keras.ops.abs(x) <= 1, dy, keras.ops.zeros_like(dy))

        one = keras.ops.ones_like(x)
        return keras.ops.where(x >= 0, one, -one), grad

    return portable_sign


portable_sign = Exercise(
    "a signature for all backends",
    _judge_sign,
    (
        "Write the rule for TensorFlow first, with operations of `keras.ops`. What does PyTorch call `dy`?",
        "`def grad(*args, upstream=None)`: where `upstream` is None, `dy` is `args[0]`.",
        "Return `ops.where(ops.abs(x) <= 1, dy, ops.zeros_like(dy))`.",
    ),
    _solve_sign,
    minutes=5,
    difficulty=1,
)


# --- 2. Translate from TensorFlow ------------------------------------------------------------------


def _shorten(dx, axis=-1):
    norm = np.linalg.norm(dx, axis=axis, keepdims=True)
    return dx / np.maximum(norm, 1.0)


def _judge_scale(rule):
    x, factor = judging.random_array((6, 3), seed=2), judging.random_array((3,), seed=3)
    _judge_rule(
        rule,
        [x, factor],
        lambda x, factor: x * factor,
        lambda dy, x, factor: (_shorten(dy * factor), (dy * x).sum(0)),
        {
            "the gradient of x is not clipped": lambda dy, x, f: (dy * f, (dy * x).sum(0)),
            "each element is clipped by itself: shorten the row as a whole": lambda dy, x, f: (
                np.clip(dy * f, -1, 1),
                (dy * x).sum(0),
            ),
            "one norm was taken over the whole batch": lambda dy, x, f: (
                _shorten(dy * f, axis=None),
                (dy * x).sum(0),
            ),
            "rows below the bound were made longer: leave them alone": lambda dy, x, f: (
                dy * f / np.linalg.norm(dy * f, axis=-1, keepdims=True),
                (dy * x).sum(0),
            ),
            "dy was clipped before the factor: the original clips dy * factor": lambda dy, x, f: (
                _shorten(dy) * f,
                (dy * x).sum(0),
            ),
            "that is the mean over the batch, not the sum": lambda dy, x, f: (
                _shorten(dy * f),
                (dy * x).mean(0),
            ),
        },
    )
    _, grad = rule(tf.ones((2, 3)), tf.ones(3))
    dy = tf.constant([[0.0, 0.0, 0.0], [0.1, 0.2, 0.2]])
    cause = "the norm of that row is 0, and 0 / 0 is NaN: divide by the larger of norm and bound"
    judging.compare(grad(dy)[0], dy, "the gradient of x for a dy with a row of zeros", cause=cause)
    return "What keras.ops lacks is built from what it has, and the built-in's guards are yours to keep."


def _solve_scale():
    def portable_scale(x, factor):
        def grad(*args, upstream=None):
            dy = args[0] if upstream is None else upstream
            dx = dy * factor
            norm = keras.ops.sqrt(keras.ops.sum(dx * dx, axis=-1, keepdims=True))
            return dx / keras.ops.maximum(norm, 1.0), keras.ops.sum(dy * x, axis=0)

        return x * factor, grad

    return portable_scale


portable_scale = Exercise(
    "translate from TensorFlow",
    _judge_scale,
    (
        "Three things must change: the operations, the signature, and the type of what grad returns.",
        "`dx / ops.maximum(norm, 1.0)` shortens long rows, and leaves short ones and zeros alone.",
        "The norm: `ops.sqrt(ops.sum(dx * dx, axis=-1, keepdims=True))`. The sum: `ops.sum(dy * x, axis=0)`.",
    ),
    _solve_scale,
    minutes=8,
    difficulty=2,
)


# --- 3. Find and mend: a layer that trains in one place only ---------------------------------------


def _judge_layer(layer_class):
    if not (isinstance(layer_class, type) and issubclass(layer_class, keras.layers.Layer)):
        raise WrongAnswer("your answer", "a class derived from keras.layers.Layer", f"{layer_class!r:.60}")
    rule = getattr(layer_class, "rule", None)
    if rule is None:
        raise WrongAnswer("the class", "a static method rule(x, cut)", "none", "keep the name `rule`")
    if "cut" not in inspect.signature(rule).parameters or len(inspect.signature(rule).parameters) != 2:
        found = tuple(inspect.signature(rule).parameters)
        cause = "PyTorch takes tensors only: what is a plain number belongs into the rule's body"
        raise WrongAnswer("the arguments of rule", ("x", "cut"), found, cause)
    x, cut = judging.random_array((6, 3), seed=4), np.array(0.5)
    _judge_rule(
        rule,
        [x, cut],
        lambda x, cut: np.where(x > cut, x, 0.0),
        lambda dy, x, cut: (dy * (x > cut - 1.0), -np.sum(dy * (x > cut))),
        {
            "the cut moves the wrong way: a higher cut lets less through": lambda dy, x, cut: (
                dy * (x > cut - 1.0),
                np.sum(dy * (x > cut)),
            ),
            "the margin is gone: dy passes where x > cut - 1": lambda dy, x, cut: (
                dy * (x > cut),
                -np.sum(dy * (x > cut)),
            ),
        },
    )
    _judge_in_eager(layer_class())
    return "Tensors in, a tuple out, the weight's value as an argument: the layer is at home on all three."


def _judge_in_eager(layer):
    x = tf.constant(judging.random_array((6, 3), seed=5), tf.float32)
    layer.build(x.shape)
    try:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = judging.need_tensor(layer(x), x, "the output of the layer")
    except TypeError as error:
        if "variables" not in str(error):
            raise
        cause = "the weight itself was passed: hand its value to the op, self.cut.value"
        raise WrongAnswer("a call outside of a graph", "it runs", "TypeError: … variables", cause) from None
    gradient = tape.gradient(y, layer.trainable_variables[0].value)
    if gradient is None:
        cause = "the weight is not an argument of the op any more, or its value was copied out of the tape"
        raise WrongAnswer("the gradient of the weight", "a number", None, cause)
    want = -np.sum(np.ones(x.shape) * (x.numpy() > 0.5))
    judging.compare(gradient, want, "the gradient of the weight for dy = 1")


def _solve_layer():
    class LearnedCut(keras.layers.Layer):
        def build(self, shape):
            self.cut = self.add_weight(shape=(), initializer=keras.initializers.Constant(0.5), name="cut")

        @staticmethod
        def rule(x, cut):
            def grad(*args, upstream=None):
                dy = args[0] if upstream is None else upstream
                nothing = keras.ops.zeros_like(dy)
                dcut = -keras.ops.sum(keras.ops.where(x > cut, dy, nothing))
                return keras.ops.where(x > cut - 1.0, dy, nothing), dcut

            return keras.ops.where(x > cut, x, keras.ops.zeros_like(x)), grad

        def call(self, x):
            return keras.ops.custom_gradient(self.rule)(x, self.cut.value)

    return LearnedCut


mend_layer = Exercise(
    "find and mend: a layer that trains in one place only",
    _judge_layer,
    (
        "Go through the table of the last section line by line: four of its lines are broken here.",
        "`margin` is a plain number and must not be an argument; `self.cut` is a weight, and its value must.",
        "grad takes `(*args, upstream=None)` and returns a tuple; the second gradient is one number, a sum.",
    ),
    _solve_layer,
    minutes=10,
    difficulty=3,
)
