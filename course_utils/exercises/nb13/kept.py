"""Cases of the clinic that concern what is kept or made again: a trace, a recomputation, a derivative."""

import keras
import numpy as np
import tensorflow as tf

from course_utils import check_gradient
from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer
from course_utils.exercises.nb13.shared import named_errors, settle
from course_utils.gradients import vjp

# --- 13. The explanation that is the same for both ------------------------------------------------


def _two_layers(seed: int) -> keras.Model:
    relu = [keras.layers.Dense(4, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input((3,)), *relu])
    _set_weights(model, seed)
    return model


def _set_weights(model, seed: int) -> None:
    model.set_weights([judging.random_array(w.shape, seed + i) for i, w in enumerate(model.weights)])


def _saliency(model, x, guided: bool) -> np.ndarray:
    """Give the gradient of the sum of the outputs in NumPy."""
    kernels, biases = model.get_weights()[::2], model.get_weights()[1::2]
    outputs = [x]
    for kernel, bias in zip(kernels, biases, strict=True):
        outputs.append(np.maximum(outputs[-1] @ kernel + bias, 0))
    dy = np.ones_like(outputs[-1])
    for kernel, output in zip(kernels[::-1], outputs[:0:-1], strict=True):
        dy = (np.maximum(dy, 0) if guided else dy) * (output > 0) @ kernel.T
    return dy


def _judge_saliency(make_saliency):
    judging.need_callable(make_saliency, "make_saliency")
    x = judging.random_array((5, 3), seed=20)
    inputs, model = tf.constant(x, tf.float32), _two_layers(seed=43)
    right = {guided: _saliency(model, x, guided) for guided in (False, True)}
    for order in ((False, True, False), (True, False, True)):
        functions = make_saliency(model)
        if not (isinstance(functions, tuple | list) and [callable(f) for f in functions] == [True, True]):
            raise WrongAnswer("make_saliency(model)", "two functions: plain, guided", f"{functions!r:.60}")
        for guided in order:
            name = "guided" if guided else "plain"
            cause = "this is the other one: a traced function keeps the ReLUs that it was traced with"
            got = judging.need_tensor(functions[guided](inputs), inputs, f"{name}(x)")
            judging.compare(got, right[guided], f"{name}(x)", {cause: right[not guided]})
        after = vjp(model, [inputs], tf.ones((5, 4)))[0]
        left = {"the model keeps the guided ReLUs after the call: put the old ones back": right[True]}
        judging.compare(after, right[False], "the gradient of the model itself, afterwards", left)
    _judge_later(functions, model, x)
    return "A trace keeps what it saw. Each rule needs a trace of its own, made while that rule is in place."


def _judge_later(functions, model, x):
    """Look at other weights, and at another batch size, which makes TensorFlow trace again."""
    _set_weights(model, seed=57)
    for guided in (True, False):
        where = f"{'guided' if guided else 'plain'}(x), other weights, another batch size"
        got = judging.need_tensor(functions[guided](tf.constant(x[:3], tf.float32)), None, where)
        other = "traced again for the new batch size, while the other ReLUs were in place"
        cause = "the model has other weights by now: a copy of it does not see them"
        mistakes = {other: _saliency(model, x[:3], not guided)}
        judging.compare(got, _saliency(model, x[:3], guided), where, mistakes, cause)


def _solve_saliency():
    @tf.custom_gradient
    def guided_relu(x):
        y = tf.nn.relu(x)
        return y, lambda dy: tf.nn.relu(dy) * tf.cast(x > 0, x.dtype)  # pseudo-gradient

    def make_saliency(model):
        plain = tf.function(lambda x: tf.gradients(model(x), x)[0])
        traced_guided = tf.function(lambda x: tf.gradients(model(x), x)[0])

        def guided(x):
            for layer in model.layers:
                layer.activation = guided_relu
            result = traced_guided(x)
            for layer in model.layers:
                layer.activation = keras.activations.relu
            return result

        return plain, guided

    return make_saliency


make_saliency = Exercise(
    "the explanation that is the same for both",
    _judge_saliency,
    (
        "`traced` is one function. When does it look at the activations of the layers?",
        "Only while it is traced: at its first call, and for a new batch size. So two rules need two.",
        "Make a second `tf.function` of the same kind, and call it in `guided`, between the two loops.",
    ),
    _solve_saliency,
    minutes=7,
    difficulty=2,
)


# --- 14. Two steps at once ------------------------------------------------------------------------


def _block_parts():
    body = keras.layers.Dense(3)
    norm = keras.layers.BatchNormalization(momentum=0.5)
    body.build((None, 2))
    norm.build((None, 3))
    body.kernel.assign(judging.random_array((2, 3), seed=41))
    body.bias.assign([1.0, 2.0, 3.0])
    return body, norm


def _one_step(block, graph: bool) -> tuple[dict, int]:
    """Run a step of training; give what it computed, and how often the body ran."""
    body, norm = _block_parts()
    x = tf.constant(judging.random_array((16, 2), seed=42), tf.float32)
    dy, runs = tf.constant(judging.random_upstream((16, 3)), tf.float32), []

    def counted(inputs):
        runs.append(1)
        return body(inputs)

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = judging.need_tensor(block(x, counted, norm), None, "the output")
        return y, *tape.gradient(y, [x, body.kernel.value], output_gradients=dy)

    y, dx, dkernel = (tf.function(step, autograph=False).get_concrete_function(x) if graph else step)(x)
    found = {"the output": y, "the gradient of x": dx, "the gradient of the kernel": dkernel}
    return found | {"the moving mean": norm.moving_mean.value}, len(runs)


def _judge_block(block):
    judging.need_callable(block, "block")
    want, _ = _one_step(lambda x, body, norm: tf.nn.relu(norm(body(x), training=True)), graph=False)
    plain, _ = _one_step(lambda x, body, norm: norm(body(x), training=True), graph=False)
    mistakes = {"the output": {"the ReLU is missing now": plain["the output"]}}
    for graph in (False, True):
        got, runs = _one_step(block, graph)
        mode = " in a tf.function" if graph else ""
        for name, right in want.items():
            cause = "in training a batch is normalized by its own mean, not by the moving one: training=True"
            if name == "the moving mean":
                cause = "it moved twice in one step: what is computed again updates its statistics again"
            elif name != "the output":
                cause = "a path of the gradient is cut"
            tensor = judging.need_tensor(got[name], right, name + mode)
            judging.compare(tensor, right.numpy(), name + mode, mistakes.get(name), cause)
        if runs < 2:
            cause = "nothing is computed again, so all of it is kept: the body belongs into recompute_grad"
            raise WrongAnswer("how often the body runs in a step" + mode, 2, runs, cause)
    return "What changes a state stays outside of a recomputation, or it changes the state once more."


def _solve_block():
    def block(x, body, norm):
        inner = tf.recompute_grad(lambda x: body(x))
        return tf.nn.relu(norm(inner(x), training=True))

    return block


block = Exercise(
    "two steps at once",
    _judge_block,
    (
        "Print `norm.moving_mean` after the forward and after the backward pass.",
        "The backward pass runs all of `part` again. Which line of it does more than compute?",
        "Recompute the body alone, and call `norm` outside, on its result.",
    ),
    _solve_block,
    minutes=6,
    difficulty=2,
)


# --- 15. Half of the curvature ------------------------------------------------------------------

SECOND_CAUSES = {
    "expected to return 2 gradients, but returned 1": "two arguments of the inner op, so two gradients of it",
    "expected to return 1 gradients, but returned 2": "two gradients for an inner op of one argument: pass x",
}


def _second(op, x, dy, upstream) -> tuple:
    """Give the gradient of op for dy, and the gradients of that by x and by dy."""
    with tf.GradientTape() as outer:
        outer.watch([x, dy])
        gradient = vjp(op, [x], dy)[0]
    return gradient, *outer.gradient(gradient, [x, dy], output_gradients=upstream)


def _judge_softplus(op):
    judging.need_callable(op, "softplus")
    x, dy, up = (judging.random_array((4, 3), seed) for seed in (51, 52, 53))
    s = 1 / (1 + np.exp(-x))
    judging.judge_op(op, lambda x: np.logaddexp(0, x), lambda dy, x: dy * s, [x])
    tensors = [tf.constant(a) for a in (x, dy, up)]
    with named_errors("the second derivative", SECOND_CAUSES):
        _, by_x, by_dy = _second(op, *tensors)
    where, curved = "the second derivative", up * dy * s * (1 - s)
    if by_x is None:
        cause = "x is captured by the inner op, no argument of it, so it gets no gradient"
        raise WrongAnswer(where, "a gradient", "None", cause)
    mistakes = {
        "dy is missing in it: the inner op gives dy·σ(x), so its slope in x is dy·σ′(x)": up * s * (1 - s),
        "the slope of the sigmoid is σ·(1 - σ)": up * dy * s,
        "the two gradients of the inner op are exchanged: give them in the order of its arguments": up * s,
        "the inner op passes a zero to x": 0 * dy,
    }
    judging.compare(judging.need_tensor(by_x, tensors[0], where), curved, where, mistakes)
    where = "the gradient by dy"
    if by_dy is None:
        cause = "the gradient is linear in dy: its slope in dy is σ(x)"
        raise WrongAnswer(where, "a gradient", "None", cause)
    judging.compare(judging.need_tensor(by_dy, tensors[1], where), up * s, where)
    settle(check_gradient(op, x, order=2))
    return "The rule of a rule sees its arguments only: what is captured is a constant to it."


def _solve_softplus():
    @tf.custom_gradient
    def softplus(x):
        @tf.custom_gradient
        def slope(dy, x):
            s = tf.sigmoid(x)
            return dy * s, lambda up: (up * s, up * dy * s * (1.0 - s))

        return tf.math.softplus(x), lambda dy: slope(dy, x)

    return softplus


softplus = Exercise(
    "half of the curvature",
    _judge_softplus,
    (
        "The inner op is `slope(dy)`. By what can anyone differentiate it?",
        "Make x an argument too, `slope(dy, x)`, and let its rule return two gradients.",
        "By dy it is `up * s`, by x it is `up * dy * s * (1 - s)`; the outer grad is `slope(dy, x)`.",
    ),
    _solve_softplus,
    minutes=8,
    difficulty=3,
)
