"""The layer under test: its inputs by name, its outcome (outputs and gradients), its clones and its model."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from course_utils.doctor.registry import Problem

#: How far two computations of the same thing in one dtype may be apart, relative to the largest value.
SAME = {"float64": 1e-9, "float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}

#: How the label of a gradient begins, unlike that of an output.
GRADIENT = "the gradient of "


class Subject:
    """A layer with the batch that it is called on.

    `leaves` are the tensors of inputs and keyword arguments, one after the other; `floats` are the positions
    of those that have gradients. An *outcome* holds outputs, gradients of the floats and gradients of the
    trainable weights by label, such as "the output" and "the gradient of inputs".
    """

    def __init__(self, layer, inputs, call_kwargs, options) -> None:
        self.layer, self.options = layer, options
        self.upstream: dict[int, tf.Tensor] = {}  # of each output that has gradients
        self.failed: dict[str, str] = {}  # by failed check or one left out: the failure behind it
        tensors = {name: value for name, value in call_kwargs.items() if holds_tensors(value)}
        self.constants = {name: value for name, value in call_kwargs.items() if name not in tensors}
        self.structure = keras.tree.map_structure(self._as_leaf, (inputs, tensors))
        self.leaves = keras.tree.flatten(self.structure)
        self.half = [leaf / 2 if leaf.dtype.is_floating else leaf for leaf in self.leaves]
        self.floats = [i for i, leaf in enumerate(self.leaves) if leaf.dtype.is_floating]
        self.rtol = SAME.get(layer.compute_dtype, SAME["float32"])
        self.random = False  # whether a call draws from a seed generator: `deterministic` finds out

    def _as_leaf(self, value):
        tensor = tf.convert_to_tensor(value)
        return tf.cast(tensor, self.layer.variable_dtype) if tensor.dtype.is_floating else tensor

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Put back the variables of the layer, the dtype policy and the random state of Python and NumPy."""
        states = random.getstate(), np.random.get_state()  # noqa: NPY002 - theirs is put back
        policy = keras.config.dtype_policy()
        try:
            with restored([*(v.value for v in self.layer.variables), *raw_variables(self.layer)]):
                yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
            keras.config.set_dtype_policy(policy)

    def pack(self, leaves) -> Any:
        """Return the inputs and the tensors among the keyword arguments, from `leaves`."""
        return keras.tree.pack_sequence_as(self.structure, list(leaves))

    def call(self, layer, leaves, **changes) -> list:
        """Call `layer` as the caller would, or a model; return the outputs and put back the state."""
        with restored([v.value for v in layer.non_trainable_variables]):
            if isinstance(layer, keras.Model):
                outputs = layer(list(leaves))
            else:
                inputs, tensors = self.pack(leaves)
                outputs = layer(inputs, **{**self.constants, **tensors, **changes})
        return [output for output in keras.tree.flatten(outputs) if output is not None]

    def outcome(self, layer, leaves=None, call=None, scale=1.0) -> dict:
        """Return the outcome for a fixed random upstream gradient, which is scaled on its way."""
        leaves = list(self.leaves if leaves is None else leaves)
        watched = [leaves[i] for i in self.floats]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            outputs = (call or self.call)(layer, leaves)
            refused = [y for y in outputs if not isinstance(y, tf.Tensor) or y.dtype == tf.string]
            if refused or not outputs:
                found = type(refused[0]).__name__ if refused else "nothing"
                raise Problem(f"call returns {found}", "return dense tensors of numbers from call")
            losses = [scale * self._loss(i, y) for i, y in enumerate(outputs) if y.dtype.is_floating]
        gradients = tape.gradient(losses, [*watched, *(v.value for v in layer.trainable_variables)])
        gradients = [None if g is None else tf.convert_to_tensor(g) / scale for g in gradients]
        labels = [f"output {i}" for i in range(len(outputs))] if outputs[1:] else ["the output"]
        labels += [GRADIENT + source for source in self.sources]
        return dict(zip(labels, [*outputs, *gradients], strict=True))

    def _loss(self, i, y):
        """Sum output `i` with random weights, its upstream gradient; a graph may not know its shape."""
        if i not in self.upstream:
            self.upstream[i] = np.random.default_rng([2024, i]).standard_normal(y.shape)
        dy = self.upstream[i][: y.shape[0]] if y.shape.rank else self.upstream[i]
        return tf.reduce_sum(tf.cast(y, tf.float64) * dy)

    @functools.cached_property
    def reference(self) -> dict:
        """The eager outcome of the layer itself."""
        return self.outcome(self.layer)

    @functools.cached_property
    def outputs(self) -> dict:
        """The outputs in the reference."""
        return {label: y for label, y in self.reference.items() if not label.startswith(GRADIENT)}

    @functools.cached_property
    def traced(self) -> tf.types.experimental.ConcreteFunction:
        """The outcome as a traced function that does not know the batch size, as in `fit`."""
        signature = [tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype) for leaf in self.leaves]
        return tf.function(lambda leaves: self.outcome(self.layer, leaves)).get_concrete_function(signature)

    @functools.cached_property
    def sources(self) -> dict:
        """What gradients belong to, by name: floating-point leaves, then trainable weights."""
        paths, named = [path for path, _ in keras.tree.flatten_with_path(self.structure)], {}
        for i in self.floats:
            head, *keys = paths[i][1:] if paths[i][0] else ("inputs", *paths[i][1:])
            named[head + "".join(f"[{key!r}]" for key in keys)] = self.leaves[i]
        weights = self.layer.trainable_variables
        return named | {v.path.removeprefix(f"{self.layer.path}/"): v.value for v in weights}

    def batches(self, outcome) -> dict:
        """The items of an outcome that are batches: all but the gradients of weights."""
        weights = list(self.sources)[len(self.floats) :]
        return {label: t for label, t in outcome.items() if label.removeprefix(GRADIENT) not in weights}

    def compare(self, before, after, rtol=None, told="", cure="") -> None:
        """Raise `Problem` with the first difference between two outcomes, or the same part of them."""
        if len(before) != len(after):
            raise Problem(f"{told}{len(after)} outputs and gradients, not {len(before)}", cure)
        rtol = self.rtol if rtol is None else rtol
        gradients = [t for label, t in before.items() if label.startswith(GRADIENT) and t is not None]
        sizes = [float(tf.reduce_max(abs(t))) for t in gradients]
        for label, tensor in before.items():
            is_gradient = label.startswith(GRADIENT)
            floor = 0.1 * rtol * max(sizes, default=0.0) if is_gradient else 0.0  # rounding of sums
            found = difference(tensor, after[label], rtol, floor)
            if found:
                raise Problem(f"{told}{'the outputs agree, but ' * is_gradient}{label} {found}", cure)

    def agrees(self, outcome) -> bool:
        """Whether an outcome is that of the layer."""
        with contextlib.suppress(Problem):
            self.compare(self.reference, outcome)
            return True
        return False

    def clone(self, policy=None, **changes) -> keras.layers.Layer:
        """Return a new layer of the same config and weights, under another policy or with `changes`."""
        before, config = keras.config.dtype_policy(), {**self.layer.get_config(), **changes}
        try:
            if policy:  # the global one is for sublayers that are made in `__init__`
                keras.config.set_dtype_policy(policy)
                config = _recast(config, policy)
            twin = type(self.layer).from_config(config)
            self.call(twin, self.half)
        finally:
            keras.config.set_dtype_policy(before)
        for mine, theirs in zip(self.layer.variables, twin.variables, strict=True):
            theirs.assign(mine.value)
        return twin

    @functools.cached_property
    def twin(self) -> keras.layers.Layer:
        """A clone with the layer's own policy."""
        return self.clone()

    def model(self, before=lambda tensor: tensor) -> keras.Model:
        """Return a functional model of the twin, list in and list out; `before` is applied to each input."""
        inputs = []
        for i, x in enumerate(self.leaves):
            inputs.append(keras.Input(x.shape[1:], dtype=x.dtype.name, name=f"check_layer_{i}"))
        return keras.Model(inputs, self.call(self.twin, map(before, inputs)), name="check_layer_model")


@contextlib.contextmanager
def restored(variables) -> Iterator[None]:
    """Put back the values of `tf.Variable` objects at the end."""
    before = [tf.identity(variable) for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)


def difference(before, after, rtol: float, floor: float = 0.0) -> str:
    """Return how the tensor `after` differs from `before`, relative to the largest value; "" if not."""
    if before is None or after is None:
        return "" if before is after else "is lost (None)" if after is None else "appeared (was None)"
    a, b = (np.asarray(tf.cast(tensor, tf.float64)) for tensor in (before, after))
    if a.shape != b.shape:
        return f"has shape {b.shape}, not {a.shape}"
    error = np.where(np.isfinite(b) | ~np.isfinite(a), np.nan_to_num(abs(a - b)), np.inf)
    if error.max(initial=0) <= rtol * abs(a[np.isfinite(a)]).max(initial=0) + max(floor, 1e-30):
        return ""
    at = tuple(int(i) for i in np.unravel_index(np.argmax(error), error.shape))
    return f"is {b[at]:.6g}, not {a[at]:.6g}, at {list(at)}"


def holds_tensors(value) -> bool:
    """Whether a keyword argument of a call is a tensor, an array, or a structure of them."""
    leaves = keras.tree.flatten(value)
    return bool(leaves) and all(isinstance(leaf, tf.Tensor | np.ndarray) for leaf in leaves)


def raw_variables(layer, seen=None) -> list[tf.Variable]:
    """Return each `tf.Variable` that is an attribute of a layer or its sublayers, or in a list or dict."""
    seen, found = {id(layer)} if seen is None else seen, []
    for value in keras.tree.flatten(list(vars(layer).values())):
        if isinstance(value, tf.Variable | keras.layers.Layer) and id(value) not in seen:
            seen.add(id(value))
            found += [value] if isinstance(value, tf.Variable) else raw_variables(value, seen)
    return found


def _recast(config, policy):
    """Replace every nested "dtype" of a config: wrappers carry those of the layers they wrap."""
    if isinstance(config, dict):
        return {key: policy if key == "dtype" else _recast(value, policy) for key, value in config.items()}
    return [_recast(value, policy) for value in config] if isinstance(config, list) else config
