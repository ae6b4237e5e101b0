"""The layer under test: its inputs by name, its outcome (outputs and gradients), its clones and its model."""

from __future__ import annotations

import contextlib
import functools
import random

import keras
import numpy as np
import tensorflow as tf

from course_utils.doctor.findings import Problem, difference

#: How far two computations of the same thing in one dtype may be apart, relative to the largest value.
SAME = {"float64": 1e-9, "float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}


class Subject:
    """A layer with the batch that it is called on.

    `leaves` are the tensors of the inputs and of the keyword arguments, one after the other, with their `names`.
    An *outcome* is a list: the outputs, the gradients of the floating-point leaves, those of the trainable weights.
    """

    def __init__(self, layer, inputs, call_kwargs, options):
        self.layer, self.options = layer, options
        tensors = {name: value for name, value in call_kwargs.items() if holds_tensors(value)}
        self.constants = {name: value for name, value in call_kwargs.items() if name not in tensors}
        self.structure = keras.tree.map_structure(self._as_leaf, (inputs, tensors))
        pairs = keras.tree.flatten_with_path(self.structure)
        self.leaves, self.names = [leaf for _, leaf in pairs], [_name(path) for path, _ in pairs]
        self.floats = [i for i, leaf in enumerate(self.leaves) if leaf.dtype.is_floating]
        self.rtol = SAME.get(layer.compute_dtype, SAME["float32"])
        self.upstream = {}
        self.random = False  # whether a call draws from a seed generator: `deterministic` finds out

    def _as_leaf(self, value):
        tensor = tf.convert_to_tensor(value)
        return tf.cast(tensor, self.layer.variable_dtype) if tensor.dtype.is_floating else tensor

    @contextlib.contextmanager
    def untouched(self):
        """Put back the layer's variables, the random state of Python and NumPy, and the dtype policy."""
        policy, states = keras.config.dtype_policy(), (random.getstate(), np.random.get_state())
        variables = [v.value for v in self.layer.variables] + raw_variables(self.layer)
        before = [(variable, tf.identity(variable)) for variable in variables]
        try:
            yield
        finally:
            for variable, value in before:
                variable.assign(value)
            random.setstate(states[0])
            np.random.set_state(states[1])
            keras.config.set_dtype_policy(policy)

    def call(self, layer, leaves, **changes) -> list:
        """Call `layer` on `leaves` as the caller would, and return the list of its outputs."""
        inputs, tensors = keras.tree.pack_sequence_as(self.structure, list(leaves))
        outputs = layer(inputs, **tensors, **{**self.constants, **changes})
        return [output for output in keras.tree.flatten(outputs) if output is not None]

    def build(self) -> None:
        """Call an unbuilt layer once; at inference, so that the batch leaves no trace in moving averages."""
        if not self.layer.built:
            inference = {"training": False} if "training" in self.constants else {}
            self.call(self.layer, self.leaves, **inference)

    def outcome(self, layer, leaves=None, call=None, scale=1.0) -> list:
        """Return outputs and gradients for one fixed random upstream gradient; the layer's state is put back."""
        leaves = list(self.leaves if leaves is None else leaves)
        state = [(v, tf.identity(v.value)) for v in layer.non_trainable_variables]
        watched = [leaves[i] for i in self.floats]
        with tf.GradientTape() as tape:
            tape.watch(watched)
            outputs = (call or self.call)(layer, leaves)
            losses = [scale * self._loss(i, y) for i, y in enumerate(outputs) if y.dtype.is_floating]
        gradients = tape.gradient(losses, [*watched, *(v.value for v in layer.trainable_variables)])
        for variable, value in state:
            variable.assign(value)
        return [*outputs, *(None if g is None else tf.convert_to_tensor(g) for g in gradients)]

    def _loss(self, i, y):
        """Sum output `i` with random weights, which are its upstream gradient; a graph may not know its shape."""
        if i not in self.upstream:
            self.upstream[i] = np.random.default_rng([2024, i]).standard_normal(y.shape)
        dy = self.upstream[i][: y.shape[0]] if y.shape.rank else self.upstream[i]
        return tf.reduce_sum(tf.cast(y, tf.float64) * dy)

    @functools.cached_property
    def sources(self) -> list:
        """What the gradients of an outcome belong to: floating-point leaves, then trainable weights."""
        return [*(self.leaves[i] for i in self.floats), *(v.value for v in self.layer.trainable_variables)]

    @functools.cached_property
    def traced(self):
        """The outcome as a tf.function that does not know the batch size, as in `fit`."""
        signature = [tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype) for leaf in self.leaves]
        return tf.function(lambda leaves: self.outcome(self.layer, leaves), input_signature=[signature])

    @functools.cached_property
    def reference(self) -> list:
        """The eager outcome of the layer itself."""
        return self.outcome(self.layer)

    @property
    def batched(self) -> int:
        """How many items of an outcome belong to the batch: all but the gradients of weights."""
        return len(self.reference) - len(self.layer.trainable_variables)

    @functools.cached_property
    def labels(self) -> list[str]:
        """The names of the items of an outcome."""
        weights = [v.path.removeprefix(f"{self.layer.path}/") for v in self.layer.trainable_variables]
        sources = [*(self.names[i] for i in self.floats), *weights]
        outputs = len(self.reference) - len(sources)
        return [f"output {i}" if outputs > 1 else "the output" for i in range(outputs)] + [
            f"the gradient of {source}" for source in sources
        ]

    def compare(self, before, after, rtol=None) -> None:
        """Raise `Problem` with the first difference between two outcomes."""
        if len(before) != len(after):
            raise Problem(f"{len(after)} outputs and gradients, not {len(before)}")
        for label, a, b in zip(self.labels, before, after, strict=False):
            found = difference(a, b, self.rtol if rtol is None else rtol)
            if found:
                prefix = "" if "output" in label else "the outputs agree, but "
                raise Problem(f"{prefix}{label} {found}")

    def clone(self, policy=None, **changes):
        """Return a new layer with this one's config and weights, under another dtype policy or with `changes`."""
        before = keras.config.dtype_policy()
        if policy:  # for sublayers that are made in `__init__`
            keras.config.set_dtype_policy(policy)
        try:
            config = {**self.layer.get_config(), **changes}
            twin = type(self.layer).from_config(_recast(config, policy) if policy else config)
            self.call(twin, self.leaves)
        finally:
            keras.config.set_dtype_policy(before)
        for mine, theirs in zip(self.layer.variables, twin.variables, strict=True):
            theirs.assign(mine.value)
        return twin

    @functools.cached_property
    def twin(self):
        """A clone with the layer's own policy."""
        return self.clone()

    def model(self, before=lambda tensor: tensor) -> keras.Model:
        """Return a functional model of the twin: list in, list out; `before` is applied to each input."""
        inputs = [
            keras.Input(leaf.shape[1:], dtype=leaf.dtype.name, name=f"check_layer_{i}")
            for i, leaf in enumerate(self.leaves)
        ]
        return keras.Model(inputs, self.call(self.twin, map(before, inputs)), name="check_layer_model")


def holds_tensors(value) -> bool:
    """Whether a keyword argument of a call is a tensor, an array, or a structure of them."""
    leaves = keras.tree.flatten(value)
    return bool(leaves) and all(isinstance(leaf, tf.Tensor | np.ndarray) for leaf in leaves)


def raw_variables(layer, seen=None) -> list[tf.Variable]:
    """Return the `tf.Variable` objects that hang on a layer or its sublayers as attributes, lists or dicts."""
    seen = set() if seen is None else seen
    found = []
    for value in (leaf for attribute in vars(layer).values() for leaf in tf.nest.flatten(attribute)):
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, tf.Variable):
            found.append(value)
        elif isinstance(value, keras.layers.Layer):
            found += raw_variables(value, seen)
    return found


def _name(path) -> str:
    head, keys = ("inputs", path[1:]) if path[0] == 0 else (path[1], path[2:])
    return head + "".join(f"[{key!r}]" for key in keys)


def _recast(config, policy):
    """Replace every nested "dtype" of a config: wrappers carry those of the layers they wrap."""
    if isinstance(config, dict):
        return {key: policy if key == "dtype" else _recast(value, policy) for key, value in config.items()}
    return [_recast(value, policy) for value in config] if isinstance(config, list) else config
