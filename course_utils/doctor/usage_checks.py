"""Checks of the layer in use, made after `checks`: compiled, batched, in low precision, saved, trained."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf

from course_utils.doctor.findings import Note, Problem, explain
from course_utils.doctor.registry import ALSO, check
from course_utils.doctor.subject import GRADIENT, Subject


@check("use ops that XLA can compile", ("shapes", "tf_function"), fixed=True)
def xla(subject: Subject) -> None:
    """Is the same under XLA (jit_compile=True)."""
    compiled = tf.function(lambda: subject.outcome(subject.layer), jit_compile=True)
    subject.compare(subject.reference, compiled(), max(10 * subject.rtol, 1e-4))


@check("use tf.shape(x)[0] for the batch size, or -1 in a reshape", ("config", "shapes", "tf_function"))
def any_batch_size(subject: Subject) -> None:
    """Takes any batch size."""
    model = subject.model()
    fixed = [y.shape for y in model.outputs if y.shape[:1] != (None,)]
    if fixed:
        raise Problem(f"a symbolic output has a fixed batch size: {fixed[0]}")
    one = subject.outcome(model, [leaf[:1] for leaf in subject.leaves])
    for label, part in zip(subject.labels, subject.per_example(one), strict=False):
        if part is not None and part.shape[:1] != (1,):
            raise Problem(f"for one example {label} has shape {tuple(part.shape)}")


@check(
    'where one example is meant to depend on others: skip=("independent_examples",)',
    ("any_batch_size",),
    fixed=True,
)
def independent_examples(subject: Subject) -> None:
    """Treats each example by itself."""
    if subject.constants.get("training"):
        raise Note("left out with training=True, where batch statistics are usual")
    first = [None if t is None else t[:1] for t in subject.per_example(subject.reference)]
    alone = subject.per_example(subject.outcome(subject.layer, [leaf[:1] for leaf in subject.leaves]))
    try:
        subject.compare(first, alone, max(subject.rtol, 1e-4))
    except Problem as problem:
        raise Problem(f"for the first example alone {problem.detail}") from None


@check(
    "build constants with dtype=x.dtype; sum large products in float32",
    ("tracked", "config", "outer_tape"),
    fixed=True,
)
def mixed_float16(subject: Subject) -> None:
    """Works in mixed_float16."""
    _mixed(subject, "mixed_float16", 2e-2)


@check("build constants with dtype=x.dtype", ("tracked", "config", "outer_tape", "mixed_float16"), fixed=True)
def mixed_bfloat16(subject: Subject) -> None:
    """Works in mixed_bfloat16."""
    _mixed(subject, "mixed_bfloat16", 1e-1)


def _mixed(subject: Subject, policy: str, rtol: float) -> None:
    try:
        twin = subject.clone(policy)
        outcome = subject.outcome(twin)
    except tf.errors.NotFoundError:  # no fault of the layer: GPUs have kernels that processors lack
        raise Note("left out, this device has no kernel for an op in this dtype") from None
    for label, y in zip(subject.labels, outcome, strict=True):
        if not label.startswith(GRADIENT) and y.dtype.is_floating and y.dtype != twin.compute_dtype:
            raise Problem(f"{label} is {y.dtype.name}, not {twin.compute_dtype}")
    subject.compare(subject.reference, outcome, rtol)


@check(
    "let get_config and from_config carry all that the layer needs", ("config", "any_batch_size"), fixed=True
)
def saved(subject: Subject) -> None:
    """Comes back from a .keras file with the same outputs and gradients."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        subject.model().save(path)
        again = keras.saving.load_model(path)
    subject.compare(subject.reference, subject.outcome(again))


@check(
    "no gradient gets through: give a rounding a straight-through gradient, and declare it by surrogate=",
    ("config", "outer_tape", "gradient", "any_batch_size"),
)
def trains(subject: Subject) -> None:
    """Learns in fit, compiled and run_eagerly, and lets the layer before it learn."""

    def before(x):
        dense = keras.layers.Dense(x.shape[-1], kernel_initializer="identity", name=f"before_{x.name}")
        return dense(x) if len(x.shape) > 1 and tf.as_dtype(x.dtype).is_floating else x

    model = subject.model(before)
    if not all(tf.as_dtype(y.dtype).is_floating for y in model.outputs) or not model.trainable_variables:
        raise Note("left out, there is nothing to train")
    start, moves = [v.numpy() for v in model.variables], []
    for run_eagerly in (False, True):
        moves.append(_two_steps(model, subject, run_eagerly))
        for variable, value in zip(model.variables, start, strict=False):
            variable.assign(value)
    rounding = 1e-5 * max(abs(move).max() for move in moves[0])
    for variable, compiled, eager in zip(model.trainable_variables, *moves, strict=True):
        if not np.all(np.isfinite(compiled)):
            raise Problem(
                f"{variable.path} is not finite after two steps", "make grad finite for larger inputs too"
            )
        if not np.any(compiled):
            raise Problem(f"{variable.path} did not move")
        if abs(compiled - eager).max() > 1e-2 * abs(compiled).max() + rounding:
            raise Problem(
                f"{variable.path} moves otherwise with run_eagerly=True",
                "keep state in weights, not in Python",
            )


def _two_steps(model, subject: Subject, run_eagerly: bool) -> list[np.ndarray]:
    """Return how far each trainable variable moved. A gain of zero lets others move at the second step."""
    start = [v.numpy() for v in model.trainable_variables]
    targets = [subject.upstream[i].astype("float32") for i in range(len(model.outputs))]
    model.compile("sgd", ["mse"] * len(targets), run_eagerly=run_eagerly)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Gradients do not exist for ...": the check tells it
        for _ in range(2):
            model.train_on_batch(list(subject.leaves), targets)
    return [v.numpy() - value for v, value in zip(model.trainable_variables, start, strict=True)]


def _ask_for_custom_gradient(subject: Subject) -> None:
    operations = subject.traced.get_concrete_function().graph.get_operations()
    kinds = [op.get_attr("_gradient_op_type") for op in operations if "_gradient_op_type" in op.node_def.attr]
    if not any(kind.startswith(b"CustomGradient") for kind in kinds):
        raise Note("left out, no custom gradient")


@check(needs=("outer_tape", "gradient"), fixed=True)
def forward_mode(subject: Subject) -> None:
    """Has the same gradient in forward mode."""
    _ask_for_custom_gradient(subject)
    primals = [subject.leaves[i] for i in subject.floats]
    rng = np.random.default_rng([2024, len(subject.upstream)])
    tangents = [tf.cast(rng.standard_normal(x.shape), x.dtype) for x in primals]
    try:
        with tf.autodiff.ForwardAccumulator(primals, tangents) as accumulator:
            outputs = subject.call(subject.layer, subject.leaves)
        jvps = [accumulator.jvp(y, tf.UnconnectedGradients.ZERO) for y in outputs if y.dtype.is_floating]
    except Exception as error:
        raise Note(f"not available for this layer: {type(error).__name__}") from None
    forward = sum(
        np.vdot(tf.cast(j, tf.float64), dy) for j, dy in zip(jvps, subject.upstream.values(), strict=True)
    )
    gradients = subject.per_example(subject.reference)[len(outputs) :]
    products = [np.vdot(g, t) for g, t in zip(gradients, tangents, strict=True) if g is not None]
    if abs(forward - sum(products)) > 1e-3 * max([abs(forward), *map(abs, products)]):
        raise Note(
            "tf.autodiff.ForwardAccumulator ignores the custom gradient in eager mode",
            "call the layer in a tf.function",
        )


@check(needs=("outer_tape", "gradient", "independent_examples"), fixed=True)
def vectorized_map(subject: Subject) -> None:
    """Has the same gradient through vectorized_map."""
    _ask_for_custom_gradient(subject)

    def one_example(leaves):
        return [y[0] for y in subject.call(subject.layer, [leaf[None] for leaf in leaves])]

    def mapped(_, leaves):
        return tf.vectorized_map(one_example, leaves, fallback_to_while_loop=False)

    try:
        outcome = subject.outcome(subject.layer, call=mapped)
    except Exception as error:
        raise Note(f"not available for this layer: {type(error).__name__}") from None
    if not subject.agrees(outcome):
        raise Note(
            "a tape around tf.vectorized_map ignores the custom gradient",
            "put the tape into the mapped function, or use tape.jacobian or tf.map_fn",
        )


@check("use the default SaveOptions, and TensorFlow ops in grad", needs=("saved",), fixed=True, registry=ALSO)
def saved_model(subject: Subject) -> None:
    """Keeps its gradient in a SavedModel, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = pathlib.Path(folder, "given.npz"), pathlib.Path(folder, "found.npz")
        subject.model().export(pathlib.Path(folder, "model"), verbose=False)
        np.savez(given, **{f"leaf{i}": leaf for i, leaf in enumerate(subject.leaves)},
                 **{f"dy{i}": dy for i, dy in subject.upstream.items()})  # fmt: skip
        script = pathlib.Path(__file__).with_name("reload.py")
        process = subprocess.run(
            [sys.executable, script, folder], capture_output=True, text=True, check=False
        )
        if process.returncode:
            raise explain(RuntimeError(process.stderr))
        arrays = np.load(found)
        outputs = [
            arrays[f"output{i}"] for i in range(len(arrays.files) - sum("g" in n for n in arrays.files))
        ]
        subject.compare(
            subject.per_example(subject.reference),
            [*outputs, *(arrays.get(f"gradient{i}") for i in subject.floats)],
        )
