"""The checks, in the order in which they are made: a cause comes before its consequences.

A check is a function of the subject whose docstring is its line in the report. It returns what it found, or raises
`Problem`, `Note`, or whatever the layer raises. `@check` puts it into the list, with its standing cure.
"""

from __future__ import annotations

import dataclasses
import pathlib
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from course_utils.doctor.findings import Note, Problem, difference, explain
from course_utils.doctor.subject import GRADIENT, Subject, raw_variables
from course_utils.gradients import check_gradient

#: The checks by name, and those that are made only on request.
CHECKS: dict[str, Check] = {}
ALSO: dict[str, Check] = {}


@dataclasses.dataclass(frozen=True)
class Check:
    """A check; `needs` names those whose failure it would repeat, `fixed` leaves out layers that draw numbers."""

    run: Callable[[Subject], str | None]
    cure: str
    needs: tuple[str, ...]
    fixed: bool

    @property
    def title(self) -> str:
        """Its line in the report."""
        return self.run.__doc__.rstrip(".")

    def reason_to_leave_out(self, subject: Subject) -> str:
        """Say why the check would tell nothing new; "" when it may."""
        cause = next(
            (
                subject.failed[name]
                for name in (*self.needs, "runs", "deterministic")
                if name in subject.failed
            ),
            "",
        )
        if cause:
            subject.failed[self.run.__name__] = cause
            return f"left out, it would repeat: {cause}"
        return "left out, the layer draws random numbers" if self.fixed and subject.random else ""


def check(cure: str = "", needs: tuple[str, ...] = (), fixed: bool = False, registry: dict = CHECKS):
    """Put a function into the list of checks."""

    def register(run):
        registry[run.__name__] = Check(run, cure, needs, fixed)
        return run

    return register


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
    "draw random numbers from a keras.random.SeedGenerator made in __init__; keep no counter or cache in Python"
)
def deterministic(subject: Subject) -> None:
    """Gives the same result twice."""
    seeds = [(v, v.numpy()) for v in subject.layer.non_trainable_variables if v.dtype == "uint32"]
    subject.call(subject.layer, subject.leaves)
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
    "end grad with the shape and dtype of its input (tf.reduce_sum over broadcast axes, tf.reshape, tf.cast): "
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
    "match gradients of `variables` by identity (v is self.w.value), not by order; use no Python value of a tensor"
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
            f"not proportional to the upstream gradient, which mixed_float16 multiplies by its loss scale: at {scale:.0f}, "
            f"divided by it again, {found}",
            "use mixed_bfloat16, or clipnorm or clipvalue of the optimizer; the batch size changes the effect too",
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
        return keras.tree.flatten(subject.options["surrogate"](inputs, **kwargs))

    def op(*tensors):
        return subject.call(layer, with_tensors(tensors))

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


def _in_float64(subject: Subject):
    """Return a float64 clone, whose derivatives settle the truth, its leaves and outcome; or the layer itself."""
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
    theirs = [f"input {i}" for i in range(len(subject.floats))] + [v.name for v in variables]
    name = next(
        (mine for mine, their in zip(names, theirs, strict=True) if first.name.startswith(their)), first.name
    )
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    none = [
        k
        for k, g in zip(names, subject.reference[len(subject.reference) - len(names) :], strict=True)
        if g is None
    ]
    lost = "no gradient arrives: pass it to the op as a positional argument; a tensor that the op captures gets none"
    return Problem(f"{name}: {first.detail}{more}", lost if name in none else first.cure)


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
            matters, noticed = (not _agrees(subject, subject.outcome(layer)) for layer in (built, changed))
        except Exception:  # a number that decides shapes, or that has bounds  # noqa: S112
            continue
        if matters and not noticed:
            raise Problem(
                f"self.{name} = {new:g} changes nothing on a finished layer, {name}={new:g} in the constructor does"
            )
        read += [name] if matters else []
    if read:
        raise Note(
            f"a traced function, and so fit, keeps the {', '.join(read)} that it was traced with",
            "a number that changes during training is a weight: add_weight(trainable=False), then assign",
        )


def _agrees(subject: Subject, outcome) -> bool:
    try:
        subject.compare(subject.reference, outcome)
    except Problem:
        return False
    return True


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
    "no gradient gets through: give a rounding or a comparison a straight-through gradient, declared by surrogate=",
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
    """Return how far each trainable variable moved; two steps, since a gain of zero lets others move at the second."""
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
    if not _agrees(subject, outcome):
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
