"""What judges share: run an answer safely, compare it with what is right, and name a likely cause."""

from __future__ import annotations

import pathlib
import tempfile
import warnings
from collections.abc import Callable, Mapping

import keras
import numpy as np
import tensorflow as tf

from course_utils.exercises.exercise import WrongAnswer

#: Relative tolerance by dtype: what the last digits of an honest computation may differ by.
RTOL = {"float16": 1e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-8}

Mistakes = Mapping[str, Callable]


def random_array(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Give normally distributed numbers, the same for the same seed."""
    return np.random.default_rng([7, seed]).standard_normal(shape)


def random_upstream(shape: tuple[int, ...]) -> np.ndarray:
    """Give a random upstream gradient, from a stream of its own: where dy equals x, mistakes hide."""
    return np.random.default_rng([8, 0]).standard_normal(shape)


def reload(layer: keras.layers.Layer, features: int) -> keras.layers.Layer:
    """Save a model that consists of one layer, load it without `custom_objects`, and give its layer."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of a lambda: the verdict says more
        path = pathlib.Path(folder, "model.keras")
        keras.Sequential([keras.Input((features,)), layer]).save(path)
        return keras.saving.load_model(path).layers[-1]


def need_callable(answer, what: str = "op") -> None:
    """Refuse an answer that is not a function."""
    if not callable(answer):
        raise WrongAnswer(
            "your answer", f"a function ({what})", type(answer).__name__, "pass the function itself"
        )


def need_tensor(value, like: tf.Tensor | None, where: str) -> tf.Tensor:
    """Refuse a result that is no tensor, or has another shape or dtype than `like`."""
    if isinstance(value, tuple) and any(callable(part) for part in value):
        cause = "the function returned the pair (y, grad) itself: is @tf.custom_gradient above it?"
        raise WrongAnswer(where, "a tensor", "a pair with a function in it", cause)
    if isinstance(value, tf.IndexedSlices):
        value = tf.convert_to_tensor(value)
    if not isinstance(value, tf.Tensor | tf.Variable) or value.dtype == tf.string:
        cause = "there is no gradient, or a `return` is missing" if value is None else ""
        raise WrongAnswer(where, "a tensor", f"{value!r:.80}", cause)
    if like is not None and value.shape != like.shape:
        raise WrongAnswer(f"the shape of {where}", tuple(like.shape), tuple(value.shape))
    if like is not None and value.dtype != like.dtype:
        cause = "a constant or a cast fixes the dtype: use the dtype of the input"
        raise WrongAnswer(f"the dtype of {where}", like.dtype.name, value.dtype.name, cause)
    return value


def compare(got, want, where: str, mistakes: Mapping[str, np.ndarray] | None = None, cause: str = "") -> None:
    """Refuse `got` unless it equals `want` up to rounding; a value listed in `mistakes` names the cause.

    Args:
        got: A tensor.
        want: An array of the same shape.
        where: What is compared.
        mistakes: For each likely cause the values that it would give.
        cause: What to say when no mistake matches.

    Raises:
        WrongAnswer: They differ; it shows the shapes, or the element that differs most.
    """
    dtype = got.dtype.name
    got, want = np.asarray(tf.cast(got, tf.float64)), np.asarray(want, np.float64)
    if _close(got, want, dtype):
        return
    for named, values in (mistakes or {}).items():
        values = np.asarray(values, np.float64)
        if _close(got, np.broadcast_to(values, got.shape) if got.shape == want.shape else values, dtype):
            cause = named
            break
    if got.shape != want.shape:
        raise WrongAnswer(f"the shape of {where}", want.shape, got.shape, cause)
    at = np.unravel_index(np.nanargmax(np.where(np.isfinite(got), abs(got - want), np.inf)), got.shape)
    place = f"{where}, element {[int(i) for i in at]}" if at else where
    raise WrongAnswer(place, f"{want[at]:.6g}", f"{got[at]:.6g}", cause)


def run(op: Callable, inputs, dy) -> tuple[tf.Tensor, list]:
    """Call an op under a tape; give its output and its gradients for the upstream gradient `dy`."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = need_tensor(op(*inputs), None, "the output")
    if y.shape != dy.shape:
        raise WrongAnswer("the shape of the output", tuple(dy.shape), tuple(y.shape))
    return y, tape.gradient(y, inputs, output_gradients=tf.cast(dy, y.dtype))


def judge_op(
    op: Callable,
    forward: Callable,
    backward: Callable,
    inputs: list[np.ndarray],
    *,
    mistakes: Mistakes | None = None,
    forward_mistakes: Mistakes | None = None,
    dtypes: tuple[str, ...] = ("float32", "float64"),
) -> None:
    """Judge an op by its behavior: output, gradients for a random upstream gradient, dtypes, `tf.function`.

    Args:
        op: The answer.
        forward: `forward(*inputs)` in NumPy.
        backward: `backward(dy, *inputs)` in NumPy; gives one gradient, or a tuple with one for each input.
        inputs: float64 arrays.
        mistakes: For each likely cause a function like `backward` that gives what the mistake would give.
        forward_mistakes: The same for `forward`.
        dtypes: The dtypes in which it must work.

    Raises:
        WrongAnswer: It does something else.
    """
    need_callable(op)
    want = np.asarray(forward(*inputs))
    dy = random_upstream(want.shape)
    gradients = _as_tuple(backward(dy, *inputs))
    wrong = {cause: _as_tuple(f(dy, *inputs)) for cause, f in (mistakes or {}).items()}
    wrong_forward = {cause: f(*inputs) for cause, f in (forward_mistakes or {}).items()}
    for dtype in dtypes:
        tensors = [tf.constant(x, dtype) for x in inputs]
        for mode, runner in (("", run), (" in a tf.function", run_in_graph)):
            y, grads = runner(op, tensors, dy)
            where = f"{{}} for {dtype}{mode}"
            output = where.format("the output")
            compare(need_tensor(y, tf.cast(want, dtype), output), want, output, wrong_forward)
            for i, (x, grad, right) in enumerate(zip(tensors, grads, gradients, strict=True)):
                what = where.format("the gradient" if len(inputs) == 1 else f"the gradient of input {i}")
                compare(need_tensor(grad, x, what), right, what, {c: w[i] for c, w in wrong.items()})


def run_in_graph(op: Callable, inputs, dy) -> tuple[tf.Tensor, list]:
    """Do the same inside a `tf.function` that does not know the batch size, as `model.fit` does."""
    signature = [tf.TensorSpec([None, *x.shape[1:]] if x.shape.rank else [], x.dtype) for x in inputs]

    @tf.function(
        input_signature=signature, autograph=False
    )  # AutoGraph would wrap what a learner's code raises
    def graph(*args):
        with tf.GradientTape() as tape:
            tape.watch(args)
            y = need_tensor(op(*args), None, "the output in a tf.function")
        return y, tape.gradient(y, args, output_gradients=tf.cast(dy, y.dtype))

    # Called as a concrete function: TensorFlow warns of retracing where one is made for each answer.
    y, grads = graph.get_concrete_function()(*inputs)
    return y, list(grads)


def _as_tuple(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _close(got: np.ndarray, want: np.ndarray, dtype: str) -> bool:
    rtol = RTOL[dtype]
    scale = np.max(np.abs(want), initial=0.0, where=np.isfinite(want))
    return got.shape == want.shape and np.allclose(
        got, want, rtol=rtol, atol=rtol * scale * 1e-2, equal_nan=True
    )
