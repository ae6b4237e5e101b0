"""The checks, in the order in which they are made: a cause comes before its consequences.

A check is a function of the subject. It returns what it found, or raises `Problem`, `Note`, or whatever the layer
raises. `@check` puts it into the list with its line in the report and its standing cure.
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
from course_utils.doctor.subject import Subject, raw_variables
from course_utils.gradients import check_gradient

#: The checks by name, and those that are made only on request.
CHECKS: dict[str, Check] = {}
ALSO: dict[str, Check] = {}


@dataclasses.dataclass(frozen=True)
class Check:
    """A check; `needs` names those whose failure it would only repeat, `fixed` leaves out layers that draw numbers."""

    run: Callable[[Subject], str | None]
    title: str
    cure: str
    needs: tuple[str, ...]
    fixed: bool

    @property
    def name(self) -> str:
        """What `skip` and `also` call it."""
        return self.run.__name__

    def reason_to_leave_out(self, subject: Subject, failed: list[str]) -> str:
        """Say why the check would tell nothing new; "" when it may."""
        cause = next((name for name in (*self.needs, "runs", "deterministic") if name in failed), "")
        if cause:
            return f"not checked, since it would fail for the same reason: {CHECKS[cause].title}"
        return "not compared: the layer draws random numbers" if self.fixed and subject.random else ""


def check(title: str, cure: str = "", needs: tuple[str, ...] = (), fixed: bool = False, registry: dict = CHECKS):
    """Put a function into the list of checks."""

    def register(run):
        registry[run.__name__] = Check(run, title, cure, needs, fixed)
        return run

    return register


@check("runs, with finite outputs", "start with the op alone: print its outputs for these inputs")
def runs(subject: Subject) -> str:
    subject.build()
    outputs = subject.reference[: len(subject.reference) - len(subject.sources)]
    for label, y in zip(subject.labels, outputs, strict=False):
        if not np.all(np.isfinite(tf.cast(y, tf.float64))):
            raise Problem(f"{label} has NaN or infinity")
    shapes = [", ".join(str(tuple(t.shape)) for t in tensors) for tensors in (subject.leaves, outputs)]
    return f"{shapes[0]} → {shapes[1]}, {len(subject.layer.trainable_variables)} trainable weights"


@check(
    "gives the same result twice",
    "draw random numbers from a keras.random.SeedGenerator made in __init__, keep no counter or cache in Python",
)
def deterministic(subject: Subject) -> None:
    state = [(v, v.numpy()) for v in subject.layer.non_trainable_variables if v.dtype == "uint32"]
    subject.call(subject.layer, subject.leaves)
    subject.random = any(np.any(v.numpy() != value) for v, value in state)
    subject.outcome(subject.layer, [leaf / 2 if leaf.dtype.is_floating else leaf for leaf in subject.leaves])
    subject.compare(subject.reference, subject.outcome(subject.layer))


@check("trains and saves every variable that it holds", "create it with self.add_weight")
def tracked(subject: Subject) -> None:
    with tf.GradientTape() as tape:
        subject.call(subject.layer, subject.leaves)
    known = {id(v.value) for v in subject.layer.variables}
    raw = {id(v): v.name for v in (*tape.watched_variables(), *raw_variables(subject.layer)) if id(v) not in known}
    if raw:
        raise Problem(f"{', '.join(raw.values())}: a tf.Variable, which Keras neither trains nor saves")


@check("comes back from its config", "return every argument of the constructor from get_config")
def config(subject: Subject) -> None:
    before, after = subject.layer.get_config(), subject.twin.get_config()
    changed = [k for k in before if k not in ("dtype", "name") and str(after.get(k)) != str(before[k])]
    if changed:
        raise Problem(f"changed on the way: {', '.join(changed)}")
    subject.compare(subject.reference, subject.outcome(subject.twin))


@check(
    "has gradients of the right shape and dtype",
    "end grad with the shape and dtype of its input (tf.reduce_sum over axes that were broadcast, tf.reshape, tf.cast): "
    "an optimizer would broadcast it without complaint",
)
def shapes(subject: Subject) -> None:
    gradients = subject.reference[-len(subject.sources) :] if subject.sources else []
    for label, source, gradient in zip(subject.labels[::-1], subject.sources[::-1], gradients[::-1], strict=False):
        if gradient is None:
            continue
        if gradient.shape != source.shape or gradient.dtype != source.dtype:
            found, right = (f"{tf.as_dtype(t.dtype).name}{tuple(t.shape)}" for t in (gradient, source))
            raise Problem(f"{label} is {found}, not {right}")
        if not np.all(np.isfinite(gradient)):
            raise Problem(f"{label} has NaN or infinity", "guard the backward pass where the forward is not smooth")


@check(
    "is the same in a tf.function",
    "match gradients of `variables` by identity (v is self.w.value), not by order; use no Python value of a tensor",
)
def tf_function(subject: Subject) -> None:
    _compare_order(subject, subject.traced(subject.leaves))


def _compare_order(subject: Subject, traced: list) -> None:
    """Compare eager and graph; say so when the gradients are right, but of another weight."""
    try:
        subject.compare(subject.reference, traced)
    except Problem as problem:
        for i, label in enumerate(subject.labels):
            if "gradient" in label and difference(subject.reference[i], traced[i], subject.rtol):
                for other, value in zip(subject.labels, subject.reference, strict=True):
                    if other != label and value is not None and not difference(value, traced[i], subject.rtol):
                        raise Problem(f"in a graph {label} is {other}: the order of `variables` differs") from None
        raise problem


@check("is the same for a tape outside of a tf.function", needs=("tf_function",))
def outer_tape(subject: Subject) -> None:
    forward = tf.function(lambda leaves: subject.call(subject.layer, leaves))
    subject.compare(subject.reference, subject.outcome(subject.layer, call=lambda _, leaves: forward(leaves)))


@check("has the right gradients")
def gradient(subject: Subject) -> str:
    if not subject.sources:
        raise Note("nothing to differentiate: no floating-point input, no trainable weight")
    layer, leaves, options = _layer_to_differentiate(subject)
    taken = subject.floats or range(len(leaves))

    def op(*tensors):
        values = dict(zip(taken, tensors, strict=True))
        return subject.call(layer, [values.get(i, leaf) for i, leaf in enumerate(leaves)])

    op.__name__ = subject.layer.name
    variables = [v.value for v in layer.trainable_variables]
    report = check_gradient(op, *(leaves[i] for i in taken), variables=variables, **options)
    if not report:
        first = report.failures[0]
        more = f" (and {len(report.failures) - 1} more)" if len(report.failures) > 1 else ""
        raise Problem(f"{first.name}: {first.detail}{more}", first.cure or _cure_for_none(subject))
    return f"in {layer.compute_dtype}"


def _layer_to_differentiate(subject: Subject):
    """Return a float64 clone, whose derivatives settle the truth, with its leaves; or the layer itself."""
    layer, leaves, options = subject.layer, subject.leaves, dict(subject.options)
    if options.get("surrogate"):
        surrogate = options["surrogate"]
        options["surrogate"] = lambda *tensors: _pack(subject, surrogate, tensors)
    if options.get("surrogate") or options.get("backward") or subject.random:
        return layer, leaves, options
    try:
        twin = subject.clone("float64")
        wide = [tf.cast(leaf, tf.float64) if leaf.dtype.is_floating else leaf for leaf in leaves]
        outcome = subject.outcome(twin, wide)
        assert all(t is None or not t.dtype.is_floating or t.dtype == tf.float64 for t in outcome)
    except Exception:
        return layer, leaves, options  # it can't compute in float64: its own dtype must do
    try:
        subject.compare(outcome, subject.reference, max(subject.rtol, 1e-3))
    except Problem as problem:
        raise Problem(f"in {layer.compute_dtype}, unlike in float64, {problem.detail}", "mind overflow") from None
    return twin, wide, options


def _pack(subject: Subject, surrogate, tensors):
    values = iter(tensors)
    leaves = [next(values) if i in (subject.floats or range(len(subject.leaves))) else leaf
              for i, leaf in enumerate(subject.leaves)]
    inputs, kwargs = keras.tree.pack_sequence_as(subject.structure, leaves)
    return surrogate(inputs, **kwargs)


def _cure_for_none(subject: Subject) -> str:
    names = [label.removeprefix("the gradient of ") for label, value in zip(subject.labels, subject.reference, strict=True) if value is None]
    if not names:
        return ""
    return (
        f"no gradient arrives at {', '.join(names)}: a tensor that is captured from outside of the op gets none, "
        "so pass it to the op as a positional argument"
    )


@check(
    "notices when a Python number changes",
    "read the number in call, not in __init__ or build, when the op is made",
    needs=("config",),
    fixed=True,
)
def numbers(subject: Subject) -> str:
    traced_in = []
    for name, value in subject.layer.get_config().items():
        if type(value) not in (int, float) or getattr(subject.layer, name, None) != value or name == "seed":
            continue
        try:
            fresh = subject.clone(**{name: value * 0.01 if value and type(value) is float else value + 1})
            changed = subject.clone()
            setattr(changed, name, getattr(fresh, name))
            results = [subject.outcome(layer) for layer in (fresh, changed)]
        except Exception:
            continue  # a number that decides shapes, or that has bounds
        matters, noticed = (not _agree(subject, result) for result in results)
        if matters and not noticed:
            raise Problem(f"self.{name} = {getattr(fresh, name)} on a finished layer changes nothing, unlike {name}= in the constructor")
        traced_in += [name] * matters
    if traced_in:
        raise Note(
            f"{', '.join(traced_in)}: a traced function, and so fit, keeps the value that it was traced with",
            "to change it during training, make it self.add_weight(trainable=False) and assign to it",
        )


def _agree(subject: Subject, outcome) -> bool:
    try:
        subject.compare(subject.reference, outcome)
    except Problem:
        return False
    return True


@check("is the same under XLA (jit_compile=True)", "use ops that XLA has", needs=("tf_function",), fixed=True)
def xla(subject: Subject) -> None:
    compiled = tf.function(lambda: subject.traced(subject.leaves), jit_compile=True)
    subject.compare(subject.reference, compiled(), max(10 * subject.rtol, 1e-4))


@check("takes any batch size", "use tf.shape(x)[0] for the batch size, or -1 in a reshape", needs=("config",))
def any_batch_size(subject: Subject) -> None:
    model = subject.model()
    fixed = [y.shape for y in model.outputs if y.shape[0] is not None]
    if fixed:
        raise Problem(f"a symbolic output has a fixed batch size: {fixed[0]}")
    one = subject.outcome(model, [leaf[:1] for leaf in subject.leaves], _flat_call)
    for label, part in zip(subject.labels[: subject.batched], one, strict=False):
        if part is not None and part.shape[:1] != (1,):
            raise Problem(f"for one example {label} has shape {tuple(part.shape)}")


@check(
    "treats each example by itself",
    'at inference an output may not depend on the other examples; where it is meant to, skip=("independent_examples",)',
    needs=("any_batch_size",),
    fixed=True,
)
def independent_examples(subject: Subject) -> None:
    if subject.constants.get("training"):
        raise Note("not asked for with training=True, where batch statistics are usual")
    one = subject.outcome(subject.layer, [leaf[:1] for leaf in subject.leaves])
    for label, whole, part in zip(subject.labels[: subject.batched], subject.reference, one, strict=False):
        found = difference(None if whole is None else whole[:1], part, max(subject.rtol, 1e-4))
        if found:
            raise Problem(f"for the first example alone {label} {found}")


def _flat_call(model, leaves) -> list:
    return keras.tree.flatten(model(leaves))


@check("works in mixed_float16", "build constants with dtype=x.dtype; sum large products in float32", ("config",), True)
def mixed_float16(subject: Subject) -> None:
    _mixed(subject, "mixed_float16", 2e-2)


@check("works in mixed_bfloat16", "build constants with dtype=x.dtype", ("config", "mixed_float16"), True)
def mixed_bfloat16(subject: Subject) -> None:
    _mixed(subject, "mixed_bfloat16", 1e-1)


def _mixed(subject: Subject, policy: str, rtol: float) -> None:
    twin = subject.clone(policy)
    outcome = subject.outcome(twin)
    for label, y in zip(subject.labels, outcome[: subject.batched - len(subject.floats)], strict=False):
        if y.dtype.is_floating and y.dtype != twin.compute_dtype:
            raise Problem(f"{label} is {y.dtype.name}, not {twin.compute_dtype}")
    subject.compare(subject.reference, outcome, rtol)


@check("survives loss scaling", needs=("gradient",))
def loss_scale(subject: Subject) -> None:
    scale = 2.0**15  # what Keras starts with
    outcome = subject.outcome(subject.layer, scale=scale)
    scaled = [value if "output" in label or value is None else value / scale for label, value in zip(subject.labels, outcome, strict=True)]
    try:
        subject.compare(subject.reference, scaled, 1e-3)
    except Problem as problem:
        raise Note(
            f"mixed_float16 multiplies the upstream gradient by a loss scale, {scale:.0f} at first, to which this backward "
            f"pass is not proportional (scaled back, {problem.detail.removeprefix('the outputs agree, but ')})",
            "use mixed_bfloat16, or clipnorm/clipvalue of the optimizer, which act after unscaling; the batch size matters too",
        ) from None


@check(
    "comes back from a .keras file with the same outputs and gradients",
    "register the layer and its functions: @keras.saving.register_keras_serializable(package=...)",
    needs=("config", "any_batch_size"),
    fixed=True,
)
def saved(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.keras")
        subject.model().save(path)
        again = keras.saving.load_model(path)
    subject.compare(subject.reference, subject.outcome(again, call=_flat_call))


@check(
    "learns in fit, compiled and run_eagerly, and lets the layer before it learn",
    "no gradient gets through: give a rounding or a comparison a straight-through gradient, and declare it with surrogate=",
    needs=("config", "tf_function", "gradient", "any_batch_size"),
)
def trains(subject: Subject) -> None:
    def before(x):
        identity = keras.layers.Dense(x.shape[-1], kernel_initializer="identity", name="before")
        return identity(x) if len(x.shape) > 1 and tf.as_dtype(x.dtype).is_floating else x

    model = subject.model(before)
    if not all(tf.as_dtype(y.dtype).is_floating for y in model.outputs) or not model.trainable_variables:
        raise Note("not asked for: there is nothing to train")
    start, moves = [v.numpy() for v in model.variables], []
    for run_eagerly in (False, True):
        for variable, value in zip(model.variables, start, strict=True):
            variable.assign(value)
        moves.append(_two_steps(model, subject, run_eagerly))
    for variable, compiled, eager in zip(model.trainable_variables, *moves, strict=True):
        if not np.all(np.isfinite(compiled)):
            raise Problem(f"{variable.path} is not finite after two steps", "start from the gradient of this loss")
        if not np.any(compiled):
            raise Problem(f"{variable.path} did not move")
        if abs(compiled - eager).max() > 1e-2 * abs(compiled).max() + 1e-6 * abs(variable.numpy()).max():
            raise Problem(f"{variable.path} moves otherwise with run_eagerly=True", "use no state outside of the layer's weights")


def _two_steps(model, subject: Subject, run_eagerly: bool) -> list[np.ndarray]:
    """Return how far each trainable variable moved."""
    start = [v.numpy() for v in model.trainable_variables]
    targets = [subject.upstream[i].astype("float32") for i in range(len(model.outputs))]
    model.compile("sgd", ["mse"] * len(targets), run_eagerly=run_eagerly)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "Gradients do not exist for ...": told by "did not move"
        for _ in range(2):  # a gain that starts at zero lets others move only at the second step
            model.train_on_batch(list(subject.leaves), targets)
    return [v.numpy() - value for v, value in zip(model.trainable_variables, start, strict=True)]


@check("forward mode uses the same gradient", needs=("gradient",), fixed=True)
def forward_mode(subject: Subject) -> None:
    primals = [subject.leaves[i] for i in subject.floats]
    tangents = [tf.cast(np.random.default_rng([2024, 7]).standard_normal(x.shape), x.dtype) for x in primals]
    try:
        with tf.autodiff.ForwardAccumulator(primals, tangents) as accumulator:
            outputs = subject.call(subject.layer, subject.leaves)
        jvps = [0.0 if jvp is None else jvp for jvp in map(accumulator.jvp, outputs)]
    except Exception as error:
        raise Note(f"not available here: {type(error).__name__}") from None
    forward = sum(float(tf.reduce_sum(tf.cast(jvp, tf.float64) * dy)) for jvp, dy in zip(jvps, subject.upstream.values(), strict=True))
    gradients = subject.reference[subject.batched - len(primals) : subject.batched]
    products = [np.vdot(g, t) for g, t in zip(gradients, tangents, strict=True) if g is not None]
    if abs(forward - sum(products)) > 1e-3 * max([abs(forward), *map(abs, products)]):
        raise Note(
            "tf.autodiff.ForwardAccumulator ignores the custom gradient in eager mode",
            "call the layer through a tf.function there, or use the tape",
        )


@check("vectorized_map uses the same gradient", needs=("gradient", "independent_examples"), fixed=True)
def vectorized_map(subject: Subject) -> None:
    def one_example(leaves):
        return [y[0] for y in subject.call(subject.layer, [leaf[None] for leaf in leaves])]

    def mapped(_, leaves):
        return tf.vectorized_map(one_example, leaves, fallback_to_while_loop=False)

    try:
        outcome = subject.outcome(subject.layer, call=mapped)
    except Exception as error:
        raise Note(f"not available here: {type(error).__name__}") from None
    if not _agree(subject, outcome):
        raise Note(
            "a tape around tf.vectorized_map ignores the custom gradient",
            "put the tape inside of the mapped function, or use tape.jacobian, tape.batch_jacobian or tf.map_fn",
        )


@check("keeps its gradient in a SavedModel, in a fresh process", needs=("saved",), fixed=True, registry=ALSO)
def saved_model(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        subject.model().export(pathlib.Path(folder, "model"), verbose=False)
        arrays = {f"leaf{i}": leaf.numpy() for i, leaf in enumerate(subject.leaves)}
        np.savez(pathlib.Path(folder, "given.npz"), **arrays, **{f"dy{i}": dy for i, dy in subject.upstream.items()})
        script = pathlib.Path(__file__).with_name("reload.py")
        process = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, check=False)
        if process.returncode:
            raise explain(RuntimeError(process.stderr.strip().splitlines()[-1]))
        found = np.load(pathlib.Path(folder, "found.npz"))
        k = subject.batched - len(subject.floats)
        outcome = [found[f"output{i}"] for i in range(k)] + [found.get(f"gradient{i}") for i in subject.floats]
    subject.compare(subject.reference[: subject.batched], outcome)
