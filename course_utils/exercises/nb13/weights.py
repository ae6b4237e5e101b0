"""Cases of the clinic that concern the weights of a layer, and its file."""

import keras
import numpy as np
import tensorflow as tf

from course_utils import check_layer
from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer
from course_utils.exercises.nb06 import CONTRACT
from course_utils.exercises.nb13.shared import SLOW, named_errors, need_layer, reload, settle

# --- 10. An op that reads weights -----------------------------------------------------------------

WRAPPED = (
    "Keras's own weight was passed, and eager mode does not see TensorFlow's inside: tf.convert_to_tensor"
)
LOST = "no gradient reaches the weight: was it read outside of the op, or is its entry None?"
ORDER = "slope and offset are exchanged: TensorFlow promises no order of `variables`, and a graph has another"
NOT_SUMMED = "a weight serves every example of the batch: sum its gradient over axis 0"


def _affine_run(layer, x, dy, graph: bool):
    """Give output and gradients by name, in eager mode or in a graph."""

    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = judging.need_tensor(layer(x), None, "the output")
        return y, *tape.gradient(y, [x, layer.slope.value, layer.offset.value], output_gradients=dy)

    call = tf.function(run, autograph=False).get_concrete_function(x) if graph else run
    return dict(zip(("output", "x", "slope", "offset"), call(x), strict=True))


def _affine_try(layer, x, dy, graph: bool):
    where, unseen = "a tf.function" if graph else "eager mode", "must accept keyword argument 'variables'"
    try:
        with named_errors(where, CONTRACT):
            return _affine_run(layer, x, dy, graph)
    except WrongAnswer as wrong:
        if not graph and wrong.cause == CONTRACT[unseen]:
            try:
                _affine_run(layer, x, dy, graph=True)
            except Exception:
                raise wrong from None
            raise WrongAnswer(where, wrong.expected, wrong.got, WRAPPED) from None
        raise


def _judge_affine(layer_class):
    need_layer(layer_class, "Affine")
    x, dy = judging.random_array((4, 3), seed=15), judging.random_upstream((4, 3))
    inputs, upstream = tf.constant(x, tf.float32), tf.constant(dy, tf.float32)
    layer, slope, offset = layer_class(), np.array([2.0, -1.0, 0.5]), np.array([1.0, 0.0, -1.0])
    layer.build((None, 3))
    layer.slope.assign(slope)
    layer.offset.assign(offset)
    want = {"output": slope * x + offset, "x": dy, "slope": (dy * x).sum(0), "offset": dy.sum(0)}
    true = {"the true derivative was given: here dy itself shall reach the inputs": slope * dy}
    mistakes = {"x": true, "slope": {ORDER: want["offset"]}, "offset": {ORDER: want["slope"]}}
    for graph in (False, True):
        got = _affine_try(layer, inputs, upstream, graph)
        for name, right in want.items():
            where = f"the {'output' if name == 'output' else f'gradient of {name}'} in "
            where += "a tf.function" if graph else "eager mode"
            if got[name] is None:
                raise WrongAnswer(where, "a gradient", "None", LOST)
            tensor = tf.convert_to_tensor(got[name])
            if tensor.shape != right.shape:
                raise WrongAnswer(f"the shape of {where}", right.shape, tuple(tensor.shape), NOT_SUMMED)
            judging.compare(tensor, right, where, mistakes.get(name))

    def backward(dy, x):
        sums = {layer.slope.path: tf.reduce_sum(dy * x, 0), layer.offset.path: tf.reduce_sum(dy, 0)}
        return dy, *(sums[v.path] for v in layer.trainable_variables)

    settle(check_layer(layer, inputs, backward=backward, skip=SLOW))
    return "Weights as arguments need no `variables`, no list and no order: one gradient each, by position."


def _solve_affine():
    @tf.custom_gradient
    def affine(x, slope, offset):
        def grad(dy):
            # pseudo-gradient: dy reaches x as it is
            return dy, tf.reduce_sum(dy * x, axis=0), tf.reduce_sum(dy, axis=0)

        return slope * x + offset, grad

    class Affine(keras.layers.Layer):
        def build(self, shape):
            self.slope = self.add_weight(shape=shape[-1:], initializer="ones", name="slope")
            self.offset = self.add_weight(shape=shape[-1:], initializer="zeros", name="offset")

        def call(self, x):
            return affine(x, tf.convert_to_tensor(self.slope), tf.convert_to_tensor(self.offset))

    return Affine


affine = Exercise(
    "an op that reads weights",
    _judge_affine,
    (
        "The op reads two weights that are no arguments of it, so `grad` owes them gradients.",
        "The clean way: an op of three tensors, `affine(x, slope, offset)`, whose grad returns three.",
        "Call it with `tf.convert_to_tensor(self.slope)`; the weights' gradients are sums over axis 0.",
    ),
    _solve_affine,
    minutes=8,
    difficulty=2,
)


# --- 11. A number that never learns ---------------------------------------------------------------

OWN_WEIGHT = "make it a weight of the layer: self.add_weight, in build"


def _judge_temperature(layer_class):
    need_layer(layer_class, "Temperature")
    layer = layer_class()
    x, dy = judging.random_array((4, 3), seed=16), judging.random_upstream((4, 3))
    inputs = tf.constant(x, tf.float32)
    y, (dx,) = judging.run(layer, [inputs], dy)
    start = "t starts at 0, so that at first the layer changes nothing: initializer='zeros'"
    judging.compare(y, x, "the output at first", cause=start)
    judging.compare(judging.need_tensor(dx, inputs, "the gradient"), dy, "the gradient at first")
    if not hasattr(getattr(layer, "t", None), "assign"):
        raise WrongAnswer("layer.t", "a variable", f"{getattr(layer, 't', None)!r:.60}", "keep its name, t")
    moved = _moves(layer, inputs)
    layer.t.assign(0.5)
    _judge_cooler(layer, inputs, dy)
    loaded = reload(layer, 3, {"Could not locate": "the class is no longer registered"})
    saved = np.allclose(loaded(inputs), np.exp(-0.5) * x, rtol=1e-4)
    if not (moved and saved):
        known = any(layer.t is weight for weight in layer.weights)
        raise WrongAnswer(
            "t in `fit`, and in a file", "trained, saved", *_temperature_cause(moved, saved, known)
        )
    return "Keras trains and saves what is in layer.weights, and a tf.Variable of your own is not."


def _judge_cooler(layer, inputs, dy) -> None:
    """Look at t = 0.5: where t is 0, a lost factor exp(-t) does not show."""
    t = layer.t.value if isinstance(layer.t, keras.Variable) else layer.t
    with tf.GradientTape() as tape:
        tape.watch([inputs, t])
        y = judging.need_tensor(layer(inputs), inputs, "the output for t = 0.5")
    dx, dt = tape.gradient(y, [inputs, t], output_gradients=tf.constant(dy, tf.float32))
    right = np.exp(-0.5) * inputs.numpy()
    cause = "the op was right: leave it as it is"
    judging.compare(y, right, "the output for t = 0.5", cause=cause)
    for name, gradient, want in (("x", dx, dy * np.exp(-0.5)), ("t", dt, -np.sum(dy * right))):
        where = f"the gradient of {name} for t = 0.5"
        judging.compare(judging.need_tensor(gradient, None, where), want, where, cause=cause)


def _moves(layer, inputs) -> bool:
    """Tell whether one step of training changes what the layer gives."""
    head = keras.layers.Dense(1, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((3,)), layer, head])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    before = layer(inputs).numpy()
    model.train_on_batch(inputs, tf.ones((4, 1)))
    return not np.allclose(layer(inputs), before)


def _temperature_cause(moved: bool, saved: bool, known: bool) -> tuple[str, str]:
    got = f"{'trained' if moved else 'not trained'}, {'saved' if saved else 'not saved'}"
    if saved and known:
        return got, "it is a weight of the layer now, but not one that is trained: trainable=True"
    if saved:
        return got, f"it is written into the file, but no optimizer knows it: {OWN_WEIGHT}"
    return got, f"Keras does not know this variable, so it is not in layer.weights: {OWN_WEIGHT}"


def _solve_temperature():
    @tf.custom_gradient
    def sharpen(x, t):
        y = x * tf.exp(-t)
        return y, lambda dy: (dy * tf.exp(-t), -tf.reduce_sum(dy * y))

    @keras.saving.register_keras_serializable(package="clinic")
    class Temperature(keras.layers.Layer):
        def build(self, input_shape):
            self.t = self.add_weight(shape=(), initializer="zeros", name="t")

        def call(self, inputs):
            return sharpen(inputs, tf.convert_to_tensor(self.t))

    return Temperature


temperature = Exercise(
    "a number that never learns",
    _judge_temperature,
    (
        "Print `layer.weights`: what Keras does not list, it neither trains nor saves.",
        "The op and its gradient are right. Only how the variable is made is not.",
        "`self.t = self.add_weight(shape=(), initializer='zeros', name='t')`.",
    ),
    _solve_temperature,
    minutes=4,
    difficulty=1,
)


# --- 12. Saved, and not to be loaded --------------------------------------------------------------

FILE_CAUSES = {
    "'Bind'": "the file names TensorFlow's class Bind, which is what tf.custom_gradient returns",
    "function whose": "a lambda is refused in a file: its code would run at loading",
    "Python lambda": "a lambda is refused in a file: its code would run at loading",
    "Could not interpret activation": "a lambda, or a function made inside of another, is not found again",
    "Could not locate": "Keras knows nothing of that name: @keras.saving.register_keras_serializable",
    "positional argument": "the constructor cannot be called with what get_config returns",
    "unexpected keyword": "the constructor must pass **kwargs on: Keras adds name, dtype and trainable",
}


def _step_gradient(slope):
    def backward(dy, x):
        s = 1 / (1 + np.exp(-slope * x))
        return slope * dy * s * (1 - s)

    return backward


def _judge_soft_step(make_layer):
    judging.need_callable(make_layer, "make_layer")
    x, dy = judging.random_array((5, 3), seed=17), judging.random_upstream((5, 3))
    inputs = tf.constant(x, tf.float32)
    for slope in (2.0, 5.0):
        layer, right = make_layer(slope), _step_gradient(slope)(dy, x)
        if not isinstance(layer, keras.layers.Layer):
            raise WrongAnswer(f"make_layer({slope})", "a Keras layer", f"{layer!r:.60}", "return a layer")
        for where, run in (
            (f"slope {slope}, before saving", judging.run),
            (f"slope {slope}, loaded again", judging.run_in_graph),
        ):
            y, (dx,) = run(layer, [inputs], dy)
            judging.compare(y, x > 0, f"the output, {where}", cause="the forward pass is a step: 0 or 1")
            where = f"the gradient, {where}"
            if dx is None:
                cause = "the step came back without its pseudo-gradient: the op itself must be called"
                raise WrongAnswer(where, "a gradient", "None", cause)
            cause = "the slope is another than was asked for: the layer's config must carry it"
            judging.compare(judging.need_tensor(dx, inputs, where), right, where, cause=cause)
            layer = reload(layer, 3, FILE_CAUSES)
    return "An op with options becomes a registered layer, whose config holds the options."


def _solve_soft_step():
    def make_soft_step(slope):
        @tf.custom_gradient
        def soft_step(x):
            s = tf.sigmoid(slope * x)
            return tf.cast(x > 0, x.dtype), lambda dy: slope * dy * s * (1.0 - s)  # pseudo-gradient

        return soft_step

    @keras.saving.register_keras_serializable(package="clinic")
    class SoftStep(keras.layers.Layer):
        def __init__(self, slope=1.0, **kwargs):
            super().__init__(**kwargs)
            self.slope = slope

        def call(self, inputs):
            return make_soft_step(self.slope)(inputs)

        def get_config(self):
            return {**super().get_config(), "slope": self.slope}

    def make_layer(slope):
        return SoftStep(slope)

    return make_layer


make_layer = Exercise(
    "saved, and not to be loaded",
    _judge_soft_step,
    (
        "What does the file hold of the activation? A name, and that name is not yours.",
        "A registered function has no place for the slope. What can have options, and save them?",
        "A registered layer: slope in `__init__` and `get_config`, `make_soft_step(self.slope)` in `call`.",
    ),
    _solve_soft_step,
    minutes=8,
    difficulty=3,
)
