"""Checks of the layer itself, in the order in which they are made: a cause comes before its consequences.

A check is a function of the subject whose docstring is its line in the report. It returns what it found, or
raises `Problem`, `Note`, or whatever the layer raises. `@check` lists it, with its standing cure.
"""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

from course_utils.doctor.findings import Note, Problem, difference
from course_utils.doctor.registry import check
from course_utils.doctor.subject import Subject, raw_variables
from course_utils.gradients import check_gradient


@check("start with the op alone: print its output for these inputs")
def runs(subject: Subject) -> str:
    """Runs, with finite outputs."""
    if not subject.layer.built:  # at inference, so that the batch leaves no trace in moving averages
        subject.call(
            subject.layer, subject.half, **({"training": False} if "training" in subject.constants else {})
        )
    outputs = subject.reference[: len(subject.reference) - len(subject.sources)]
    for label, y in zip(subject.labels, outputs, strict=False):
        if not np.all(np.isfinite(tf.cast(y, tf.float64))):
            raise Problem(f"{label} has NaN or infinity")
    shapes = [", ".join(str(tuple(t.shape)) for t in tensors) for tensors in (subject.leaves, outputs)]
    return f"{shapes[0]} → {shapes[1]}, {len(subject.layer.trainable_variables)} trainable weights"


@check(
    "draw random numbers from a keras.random.SeedGenerator of the layer; keep no counter or cache in Python"
)
def deterministic(subject: Subject) -> None:
    """Gives the same result twice."""
    seeds = [
        (v, v.numpy())
        for v in subject.layer.non_trainable_variables
        if v.path.endswith("seed_generator_state")
    ]
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


@check("return every argument of the constructor from get_config")
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
    gradients = subject.reference[len(subject.reference) - len(subject.sources) :]
    for (name, source), gradient in zip(subject.sources.items(), gradients, strict=True):
        if gradient is None:
            continue
        if gradient.shape != source.shape or gradient.dtype != source.dtype:
            found, right = (f"{tf.as_dtype(t.dtype).name}{tuple(t.shape)}" for t in (gradient, source))
            raise Problem(f"the gradient of {name} is {found}, not {right}")
        if not np.all(np.isfinite(gradient)):
            raise Problem(
                f"the gradient of {name} has NaN or infinity", "rewrite grad for large, small and zero inputs"
            )


@check(
    "match gradients of `variables` by identity (v is self.w.value), not by order; take no value of a tensor"
)
def tf_function(subject: Subject) -> None:
    """Is the same in a tf.function of any batch size."""
    traced, eager = subject.traced(subject.leaves), subject.reference
    try:
        subject.compare(eager, traced)
    except Problem:
        labels = subject.labels
        wrong = [i for i, label in enumerate(labels) if difference(eager[i], traced[i], subject.rtol)]
        for i, j in ((i, j) for i in wrong for j in wrong if i != j and eager[i] is not None):
            if not difference(eager[i], traced[j], subject.rtol):
                raise Problem(
                    f"in a graph {labels[j]} is {labels[i]}: the order of `variables` differs"
                ) from None
        raise


@check(needs=("shapes", "tf_function"))
def outer_tape(subject: Subject) -> None:
    """Is the same for a tape outside of a tf.function."""
    forward = tf.function(lambda leaves: subject.call(subject.layer, leaves))
    subject.compare(subject.reference, subject.outcome(subject.layer, call=lambda _, leaves: forward(leaves)))


@check(needs=("shapes",))
def loss_scale(subject: Subject) -> None:
    """Survives loss scaling."""
    scale = 2.0**15  # what Keras starts with
    n = len(subject.sources)
    scaled = subject.outcome(subject.layer, scale=scale)
    scaled[-n:] = [None if g is None else g / scale for g in scaled[-n:]] if n else []
    try:
        subject.compare(subject.reference, scaled, 1e-3)
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
    taken, options = subject.floats or range(len(leaves)), dict(subject.options)

    def with_tensors(tensors):
        if any(t.dtype != leaves[i].dtype for i, t in zip(taken, tensors, strict=True)):
            raise TypeError(
                f"the layer computes in {layer.compute_dtype} only"
            )  # it would cast without a word
        given = dict(zip(taken, tensors, strict=True))
        return [given.get(i, leaf) for i, leaf in enumerate(leaves)]

    def surrogate(*tensors):
        inputs, kwargs = subject.pack(with_tensors(tensors))
        return _alone(keras.tree.flatten(subject.options["surrogate"](inputs, **kwargs)))

    def op(*tensors):
        return _alone(subject.call(layer, with_tensors(tensors)))

    options |= {"surrogate": surrogate} if options.get("surrogate") else {}
    variables = [v.value for v in layer.trainable_variables]
    if "outer_tape" not in subject.failed:  # a graph gives the same, and is faster for recurrent layers
        op = tf.function(op)
    report = check_gradient(op, *(leaves[i] for i in taken), variables=variables, **options)
    if not report:
        raise _gradient_problem(subject, report.failures, variables)
    if outcome:  # float32 is held to float64
        try:
            subject.compare(outcome, subject.reference, max(subject.rtol, 1e-3))
        except Problem as problem:
            raise Problem(
                f"in {subject.layer.compute_dtype}, unlike in float64, {problem.detail}", "mind overflow"
            ) from None
    return f"in {layer.compute_dtype}"


def _alone(outputs):
    """Return the one output as surrogates and `backward` expect it, several as a list."""
    return outputs[0] if len(outputs) == 1 else outputs


def _in_float64(subject: Subject):
    """Return a float64 clone, which settles the truth, its leaves and outcome; or the layer itself."""
    itself = subject.layer, subject.leaves, None
    if (
        any(subject.options.get(name) for name in ("surrogate", "backward"))
        or subject.random
        or "config" in subject.failed
    ):
        return itself
    try:
        twin = subject.clone("float64")
        wide = [tf.cast(leaf, tf.float64) if leaf.dtype.is_floating else leaf for leaf in subject.leaves]
        outcome = subject.outcome(twin, wide)
    except Exception:  # it can't compute in float64: its own dtype must do
        return itself
    computed = [t.dtype for t in outcome if t is not None and t.dtype.is_floating]
    return (twin, wide, outcome) if set(computed) == {tf.float64} else itself


def _gradient_problem(subject: Subject, failures, variables) -> Problem:
    """Tell the first failure of `check_gradient` by the names that the layer's author knows."""
    first, names = failures[0], list(subject.sources)
    theirs = [f"input {i}" for i in range(len(subject.floats))] + [v.name.split(":")[0] for v in variables]
    gradients = subject.reference[len(subject.reference) - len(names) :]
    lost = [first.name.startswith(t) and g is None for t, g in zip(theirs, gradients, strict=True)]
    told = f"{first.name}: {first.detail}" + (f" (and {len(failures) - 1} more)" if failures[1:] else "")
    for mine, their in zip(names, theirs, strict=True):
        told = told.replace(their, mine)
    cure = "no gradient arrives: pass it to the op by position; a tensor that the op captures gets none"
    return Problem(told, cure if any(lost) else first.cure)


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
