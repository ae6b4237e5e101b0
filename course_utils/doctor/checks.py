"""The checks of a layer, in the order in which they are made: a cause comes before its consequences.

A check is a function of the subject whose docstring is its line in the report. It returns what it found, or
raises `Problem`, `Note`, or whatever the layer raises. `@check` lists it, with its standing cure.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import keras
import numpy as np
import tensorflow as tf

from course_utils.doctor.registry import ALSO, Note, Problem, check
from course_utils.doctor.subject import GRADIENT, Subject, difference, raw_variables, restored
from course_utils.gradients import check_gradient, named_variables


@check("start with the op alone: print its output for these inputs")
def runs(subject: Subject) -> str:
    """Runs, with finite outputs."""
    if not subject.layer.built:  # at inference, so that the batch leaves no trace in moving averages
        inference = {"training": False} if "training" in subject.constants else {}
        subject.call(subject.layer, subject.half, **inference)
    for label, y in subject.outputs.items():
        if not np.all(np.isfinite(tf.cast(y, tf.float64))):
            raise Problem(f"{label} has NaN or infinity")
    shapes = [[str(tuple(t.shape)) for t in ts] for ts in (subject.leaves, subject.outputs.values())]
    taken, given = map(", ".join, shapes)
    return f"{taken} → {given}, {len(subject.layer.trainable_variables)} trainable weights"


@check("draw random numbers from a keras.random.SeedGenerator of the layer; keep no cache and no state")
def deterministic(subject: Subject) -> None:
    """Gives the same result twice."""
    states = subject.layer.non_trainable_variables
    seeds = [(v, v.numpy()) for v in states if v.path.endswith("seed_generator_state")]
    inputs, tensors = subject.pack(subject.leaves)
    subject.layer(inputs, **subject.constants, **tensors)
    subject.random = any(np.any(v.numpy() != value) for v, value in seeds)
    for v, value in seeds:
        v.assign(value)
    subject.compare(subject.reference, subject.outcome(subject.layer))


@check("create it with self.add_weight")
def tracked(subject: Subject) -> None:
    """Trains and saves every variable that it holds."""
    with tf.GradientTape() as tape:
        subject.call(subject.layer, subject.leaves)
    known = {id(v.value) for v in subject.layer.variables}
    held = [*tape.watched_variables(), *raw_variables(subject.layer)]
    raw = {id(v): f"{v.name} of shape {v.shape}" for v in held if id(v) not in known}
    if raw:
        raise Problem(f"{', '.join(raw.values())} is a tf.Variable, which Keras neither trains nor saves")


@check("return every constructor argument from get_config; what is set later is lost, unless it is a weight")
def config(subject: Subject) -> None:
    """Comes back from its config."""
    before, after = subject.layer.get_config(), subject.twin.get_config()
    changed = [k for k in before if k not in ("dtype", "name") and str(after.get(k)) != str(before[k])]
    if changed:
        raise Problem(f"changed on the way: {', '.join(changed)}")
    subject.compare(subject.reference, subject.outcome(subject.twin))


@check(
    "end grad with the shape and dtype of its input (tf.reduce_sum, tf.reshape, tf.cast): "
    "an optimizer would broadcast or cast it without complaint"
)
def shapes(subject: Subject) -> None:
    """Has finite gradients of the right shape and dtype."""
    for name, source in subject.sources.items():
        gradient = subject.reference[GRADIENT + name]
        if gradient is None:
            continue
        if gradient.shape != source.shape or gradient.dtype != source.dtype:
            found, right = (f"{tf.as_dtype(t.dtype).name}{tuple(t.shape)}" for t in (gradient, source))
            raise Problem(f"the gradient of {name} is {found}, not {right}")
        if not np.all(np.isfinite(gradient)):
            cure = "rewrite grad for large, small and zero inputs"
            raise Problem(f"the gradient of {name} has NaN or infinity", cure)


@check(
    "match gradients of `variables` by identity (v is self.w.value), not by order; take no value of a tensor"
)
def tf_function(subject: Subject) -> None:
    """Is the same in a tf.function of any batch size."""
    traced, eager = subject.traced(subject.leaves), subject.reference
    wrong = [label for label in eager if difference(eager[label], traced[label], subject.rtol)]
    for mine, other in ((a, b) for a in wrong for b in wrong if a != b and eager[a] is not None):
        if not difference(eager[mine], traced[other], subject.rtol):
            raise Problem(f"in a graph {other} is {mine}: the order of `variables` differs")
    subject.compare(eager, traced)


@check(needs=("shapes", "tf_function"))
def outer_tape(subject: Subject) -> None:
    """Is the same for a tape outside of a tf.function."""
    # Called as a concrete function: TensorFlow warns of retracing where several layers are checked.
    traced = tf.function(lambda leaves: subject.call(subject.layer, leaves))
    forward = traced.get_concrete_function(subject.leaves)
    subject.compare(subject.reference, subject.outcome(subject.layer, call=lambda _, leaves: forward(leaves)))


@check(needs=("shapes",))
def loss_scale(subject: Subject) -> None:
    """Survives loss scaling."""
    scale = 2.0**15  # what Keras starts with
    try:
        subject.compare(subject.reference, subject.outcome(subject.layer, scale=scale), 1e-3)
    except Problem as problem:
        found = problem.detail.removeprefix("the outputs agree, but ")
        raise Note(
            "not proportional to the upstream gradient, which mixed_float16 multiplies by its loss scale: "
            f"at {scale:.0f}, divided by it again, {found}",
            "use mixed_bfloat16, or the optimizer's clipnorm or clipvalue; the batch size matters too",
        ) from None


@check("if it differs from the derivative on purpose, declare it: surrogate= or backward=", needs=("shapes",))
def gradient(subject: Subject) -> str:
    """Has the right gradients."""
    if not subject.sources or not subject.upstream:
        raise Note("nothing to differentiate: no floating-point input and weight, or no such output")
    layer, leaves, outcome = _in_float64(subject)
    taken = subject.floats or range(len(leaves))

    def complete(tensors):
        given = dict(zip(taken, tensors, strict=True))
        if any(t.dtype != leaves[i].dtype for i, t in given.items()):  # Keras would cast it silently
            raise TypeError(f"the layer computes in {layer.compute_dtype} only")
        return [given.get(i, leaf) for i, leaf in enumerate(leaves)]

    def op(*tensors):
        return _alone(subject.call(layer, complete(tensors)))

    def surrogate(*tensors):
        inputs, kwargs = subject.pack(complete(tensors))
        return _alone(keras.tree.flatten(subject.options["surrogate"](inputs, **kwargs)))

    options = subject.options | ({"surrogate": surrogate} if subject.options.get("surrogate") else {})
    if "outer_tape" not in subject.failed:  # a graph gives the same, and is faster for recurrent layers
        op = tf.function(op)
    variables = [v.value for v in layer.trainable_variables]
    report = check_gradient(op, *(leaves[i] for i in taken), variables=variables, **options)
    if not report:
        raise _gradient_problem(subject, report.failures, variables)
    if outcome:  # float32 is held to float64
        told = f"in {subject.layer.compute_dtype}, unlike in float64, "
        subject.compare(outcome, subject.reference, max(subject.rtol, 1e-3), told, "mind overflow")
    return f"in {layer.compute_dtype}"


def _alone(outputs):
    """Return the one output as surrogates and `backward` expect it, several as a list."""
    return outputs if outputs[1:] else outputs[0]


def _in_float64(subject: Subject):
    """Return a float64 clone, which settles the truth, its leaves and outcome; or the layer itself."""
    itself = subject.layer, subject.leaves, None
    declared = subject.options.get("surrogate") or subject.options.get("backward")
    if declared or subject.random or "config" in subject.failed:
        return itself
    try:
        twin = subject.clone("float64")
        wide = [tf.cast(leaf, tf.float64) if leaf.dtype.is_floating else leaf for leaf in subject.leaves]
        outcome = subject.outcome(twin, wide)
    except Exception:  # it can't compute in float64: its own dtype must do
        return itself
    computed = {t.dtype for t in outcome.values() if t is not None and t.dtype.is_floating}
    return (twin, wide, outcome) if computed == {tf.float64} else itself


def _gradient_problem(subject: Subject, failures, variables) -> Problem:
    """Tell the first failure of `check_gradient` by the names that the layer's author knows."""
    first = failures[0]
    told = f"{first.name}: {first.detail}" + (f" (and {len(failures) - 1} more)" if failures[1:] else "")
    cure = first.cure
    theirs = [*(f"input {i}" for i in range(len(subject.floats))), *named_variables(variables)]
    mine = dict(zip(theirs, subject.sources, strict=True))
    longest_first = sorted(theirs, key=len, reverse=True)
    name = re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})\b")
    found = name.match(first.name)
    if found and subject.reference[GRADIENT + mine[found[0]]] is None:
        cure = "no gradient arrives: pass it to the op by position; a tensor that the op captures gets none"
    return Problem(name.sub(lambda found: mine[found[0]], told), cure)


@check(
    "read the number in call; an op made in __init__ or build keeps the old one",
    ("config", "shapes"),
    fixed=True,
)
def numbers(subject: Subject) -> None:
    """Notices when a Python number changes."""
    read = []
    for name, value in subject.layer.get_config().items():
        held = getattr(subject.layer, name, None)
        if not isinstance(held, int | float) or isinstance(held, bool) or held != value or name == "seed":
            continue
        new = value * 0.01 if value and isinstance(value, float) else value + 1
        try:
            built, changed = subject.clone(**{name: new}), subject.clone()
            setattr(changed, name, new)
            matters, noticed = (not subject.agrees(subject.outcome(layer)) for layer in (built, changed))
        except Exception:  # a number that decides shapes, or that has bounds  # noqa: S112
            continue
        if matters and not noticed:
            raise Problem(f"self.{name} = {new:g} changes nothing, {name}={new:g} in the constructor does")
        read += [name] if matters else []
    if read:
        raise Note(
            f"a traced function, and so fit, keeps the {', '.join(read)} that it was traced with",
            "a number that changes during training is a weight: add_weight(trainable=False), then assign",
        )


@check("use ops that XLA can compile", ("shapes", "tf_function"), fixed=True)
def xla(subject: Subject) -> None:
    """Is the same under XLA (jit_compile=True)."""
    compiled = tf.function(lambda: subject.outcome(subject.layer), jit_compile=True).get_concrete_function()
    subject.compare(subject.reference, compiled(), max(10 * subject.rtol, 1e-4))


@check("use tf.shape(x)[0] for the batch size, or -1 in a reshape", ("config", "shapes", "tf_function"))
def any_batch_size(subject: Subject) -> None:
    """Takes any batch size."""
    model = subject.model()
    fixed = [y.shape for y in model.outputs if y.shape[:1] != (None,)]
    if fixed:
        raise Problem(f"a symbolic output has a fixed batch size: {fixed[0]}")
    one = subject.outcome(model, [leaf[:1] for leaf in subject.leaves])
    for label, part in subject.batches(one).items():
        if part is not None and part.shape[:1] != (1,):
            raise Problem(f"for one example {label} has shape {tuple(part.shape)}")


@check(
    'where examples are meant to interact: skip=("independent_examples",)', ("any_batch_size",), fixed=True
)
def independent_examples(subject: Subject) -> None:
    """Treats each example by itself."""
    if subject.constants.get("training"):
        raise Note("left out with training=True, where batch statistics are usual")
    first = {label: t if t is None else t[:1] for label, t in subject.batches(subject.reference).items()}
    alone = subject.batches(subject.outcome(subject.layer, [leaf[:1] for leaf in subject.leaves]))
    subject.compare(first, alone, max(subject.rtol, 1e-4), "for the first example alone ")


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
    for label in subject.outputs:
        if outcome[label].dtype.is_floating and outcome[label].dtype != twin.compute_dtype:
            raise Problem(f"{label} is {outcome[label].dtype.name}, not {twin.compute_dtype}")
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
    """Learns in two training steps, compiled and run_eagerly, and lets the layer before it learn."""

    def before(x):
        dense = keras.layers.Dense(x.shape[-1], kernel_initializer="identity", name=f"before_{x.name}")
        return dense(x) if len(x.shape) > 1 and tf.as_dtype(x.dtype).is_floating else x

    model = subject.model(before)
    if not all(tf.as_dtype(y.dtype).is_floating for y in model.outputs) or not model.trainable_variables:
        raise Note("left out, there is nothing to train")
    compiled, eager = (_train(model, subject, run_eagerly) for run_eagerly in (False, True))
    rounding = 1e-5 * max(abs(move).max() for move in compiled)
    for variable, move, other in zip(model.trainable_variables, compiled, eager, strict=True):
        if not np.all(np.isfinite(move)):
            raise Problem(f"{variable.path} becomes NaN or infinite", "make grad finite everywhere")
        if not np.any(move):
            raise Problem(f"{variable.path} did not move")
        if abs(move - other).max() > 1e-2 * abs(move).max() + rounding:
            raise Problem(f"{variable.path} moves otherwise with run_eagerly=True", "keep state in weights")


def _train(model, subject: Subject, run_eagerly: bool) -> list[np.ndarray]:
    """Return how far each trainable variable moves. A gain of zero lets others move at the second step."""
    start = [v.numpy() for v in model.trainable_variables]
    targets = [subject.upstream[i].astype("float32") for i in range(len(model.outputs))]
    # Without XLA, which has a check of its own. Of a missing gradient this check tells, not a warning.
    model.compile("sgd", ["mse"] * len(targets), run_eagerly=run_eagerly, jit_compile=False)
    with restored([v.value for v in model.variables]), warnings.catch_warnings(action="ignore"):
        for step in range(16):  # two, if a dropout does not drop all of a small batch
            model.train_on_batch(list(subject.leaves), targets)
            moves = [v.numpy() - value for v, value in zip(model.trainable_variables, start, strict=True)]
            if step and all(np.any(move) for move in moves):
                break
        return moves


def _ask_for_custom_gradient(subject: Subject) -> None:
    operations = subject.traced.graph.get_operations()
    kinds = [op.get_attr("_gradient_op_type") for op in operations if "_gradient_op_type" in op.node_def.attr]
    if not any(kind.startswith(b"CustomGradient") for kind in kinds):
        raise Note("left out, no custom gradient")


@check(needs=("outer_tape", "gradient"), fixed=True)
def forward_mode(subject: Subject) -> None:
    """Has the same gradient in forward mode."""
    _ask_for_custom_gradient(subject)
    primals, rng = [subject.leaves[i] for i in subject.floats], np.random.default_rng([2024, 2])
    tangents = [tf.cast(rng.standard_normal(x.shape), x.dtype) for x in primals]
    try:
        with tf.autodiff.ForwardAccumulator(primals, tangents) as accumulator:
            outputs = subject.call(subject.layer, subject.leaves)
        jvps = [accumulator.jvp(y, tf.UnconnectedGradients.ZERO) for y in outputs if y.dtype.is_floating]
    except Exception as error:
        raise Note(f"not available for this layer: {type(error).__name__}") from None
    pairs = zip(jvps, subject.upstream.values(), strict=True)
    forward = sum(np.vdot(tf.cast(jvp, tf.float64), dy) for jvp, dy in pairs)
    gradients = list(subject.batches(subject.reference).values())[len(outputs) :]
    products = [np.vdot(g, t) for g, t in zip(gradients, tangents, strict=True) if g is not None]
    if abs(forward - sum(products)) > 1e-3 * max([abs(forward), *map(abs, products)]):
        cure = "call the layer in a tf.function, with the accumulator outside of it"
        raise Note("tf.autodiff.ForwardAccumulator ignores the custom gradient in eager mode", cure)


@check(needs=("outer_tape", "gradient", "independent_examples"), fixed=True)
def vectorized_map(subject: Subject) -> None:
    """Has the same gradient through vectorized_map."""
    _ask_for_custom_gradient(subject)

    def one(leaves):
        return [y[0] for y in subject.call(subject.layer, [leaf[None] for leaf in leaves])]

    try:
        outcome = subject.outcome(subject.layer, call=lambda _, leaves: tf.vectorized_map(one, leaves, False))
    except Exception as error:
        raise Note(f"not available for this layer: {type(error).__name__}") from None
    if not subject.agrees(outcome):
        cure = "put the tape into the mapped function, or use tape.jacobian or tf.map_fn"
        raise Note("a tape around tf.vectorized_map ignores the custom gradient", cure)


@check("use the default SaveOptions, and TensorFlow ops in grad", needs=("saved",), fixed=True, registry=ALSO)
def saved_model(subject: Subject) -> None:
    """Keeps its gradient in a SavedModel, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        subject.model().export(pathlib.Path(folder, "model"), verbose=False)
        upstream = {f"dy{i}": dy for i, dy in subject.upstream.items()}
        np.savez(pathlib.Path(folder, "given.npz"), *subject.leaves, **upstream)
        command = [sys.executable, str(pathlib.Path(__file__).with_name("reload.py")), folder]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        if process.returncode:
            raise RuntimeError(process.stderr)
        found = dict(np.load(pathlib.Path(folder, "found.npz")))
    expected = subject.batches(subject.reference)
    subject.compare(expected, {label: found.get(f"arr_{i}") for i, label in enumerate(expected)})
