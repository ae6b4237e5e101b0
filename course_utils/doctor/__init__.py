"""Check a Keras layer for what can silently go wrong between its `call` and `fit`.

The same from a shell, for a layer in your own project:
`python -m course_utils.doctor my_module:MyLayer --shape 4,8`.
"""

from __future__ import annotations

import inspect

import keras
import numpy as np
import tensorflow as tf

from course_utils.diagnosis import explain
from course_utils.doctor import checks  # noqa: F401 (it fills the registry)
from course_utils.doctor.registry import ALSO, CHECKS, Note, Problem
from course_utils.doctor.subject import Subject, holds_tensors
from course_utils.gradients import check_options
from course_utils.report import Report

__all__ = ["check_layer"]

_GRADIENT_OPTIONS = ("surrogate", "backward", "order", "rtol", "seed")


def check_layer(layer, inputs, *, call_kwargs=None, skip=(), also=(), **gradient_options) -> Report:
    """Call, differentiate, trace, compile, save, reload and train `layer`, and compare the results.

    The checks, by the names that `skip` takes:
    `runs`, `deterministic`, `tracked` (variables are trained and saved), `config`, `shapes` (of gradients),
    `tf_function`, `outer_tape` (a tape outside of a tf.function), `gradient` (by `check_gradient`), `numbers`
    (Python numbers as attributes), `xla`, `any_batch_size`, `independent_examples`, `mixed_float16`,
    `mixed_bfloat16`, `loss_scale`, `saved` (`.keras`), `trains` (two steps, compiled and with `run_eagerly`),
    `forward_mode`, `vectorized_map`. A check that would only repeat a failure is left out, and says so.

    What it can't see: a fault that `inputs` don't reach (a bound that nothing exceeds, a branch that nothing
    takes); weights handed back by position whose names happen to sort as they were created; a number that
    is no argument of the constructor or decides a shape; the old value of a number inside of a function that
    the layer traces itself; a captured tensor that belongs to neither the inputs nor the layer.

    Args:
        layer: A `keras.layers.Layer`. An unbuilt one is built. Its variables, the random state of Python,
            NumPy and TensorFlow and the dtype policy are afterwards as they were.
        inputs: What the layer is called with: a tensor or array of shape (batch, ...) with two examples or
            more, or a list, tuple or dict of them. Floats are cast to the dtype of the layer's weights.
        call_kwargs: Dict of further arguments of the call: `{"training": True}`, `{"mask": mask}`. Tensors
            among them are batches too.
        skip: Names of checks to leave out.
        also: Names of checks that take seconds more: `"saved_model"` exports the layer, loads it in a fresh
            Python process and compares the gradient there.
        **gradient_options: `surrogate`, `backward`, `order`, `rtol`, `seed` of `check_gradient`. A surrogate
            takes `inputs` as the layer does, and the tensors of `call_kwargs` by name; `backward` takes `dy`
            and each floating-point tensor, and returns their gradients, then those of the trainable weights.

    Returns:
        Report, true when nothing failed. Read it from the top: the first failure is the cause.

    Raises:
        TypeError: When an argument has the wrong type, or there is no such option; the message names it.
        ValueError: When an argument of this function can't be used; the message names it.

    Example:
        >>> report = check_layer(keras.layers.Dense(3), np.ones((4, 2), "float32"))
        >>> report.ok, report.checks[0].detail
        (True, '(4, 2) → (4, 3), 2 trainable weights')
    """
    call_kwargs = {} if call_kwargs is None else call_kwargs
    _check_layer_argument(layer, call_kwargs)
    _check_options(skip, also, gradient_options)
    _check_inputs(inputs, call_kwargs)
    subject, report = Subject(layer, inputs, call_kwargs, gradient_options), Report(f"layer {layer.name}")
    with subject.untouched():
        for name, check in {**CHECKS, **{name: ALSO[name] for name in also}}.items():
            if name in skip:
                report.add(None, check.title, "skipped")
            else:
                _make(name, check, subject, report)
    return report


def _make(name, check, subject, report) -> None:
    """Make one check and add its line to the report, unless it would repeat a failure."""
    cause = next((subject.failed[need] for need in check.needs if need in subject.failed), "")
    if cause:
        subject.failed[name] = cause
        if cause not in ("runs", "deterministic"):  # after these nothing could be checked
            report.add(None, check.title, f"left out, it would repeat `{cause}`")
        return
    try:
        if check.fixed and subject.random:
            raise Note("left out, the layer draws random numbers")
        report.add(True, check.title, check.run(subject) or "")
    except Note as note:
        report.add(None, check.title, note.detail, cure=note.cure)
    except Exception as error:  # whatever TensorFlow, Keras and the layer raise is a finding
        detail, cure = (error.detail, error.cure) if isinstance(error, Problem) else explain(error)
        report.add(False, check.title, detail, cure=cure or check.cure)
        subject.failed[name] = name


def _check_options(skip, also, gradient_options) -> None:
    for argument, names, known in (("skip", skip, CHECKS), ("also", also, ALSO)):
        if (
            isinstance(names, str)
            or not np.iterable(names)
            or not all(isinstance(name, str) for name in names)
        ):
            raise TypeError(
                f"{argument} must be a sequence of names, as ({next(iter(known))!r},), not {names!r}"
            )
        for name in names:
            if name not in known:
                raise ValueError(f"{argument}: unknown check {name!r}; known are {', '.join(known)}")
    for name in gradient_options:
        if name not in _GRADIENT_OPTIONS:
            raise TypeError(f"{name} is no argument; gradient options are {', '.join(_GRADIENT_OPTIONS)}")
    check_options(check_layer, **gradient_options)


def _check_layer_argument(layer, call_kwargs) -> None:
    kind = type(layer).__name__
    if isinstance(layer, type):
        raise TypeError(f"layer must be an instance, not the class: {layer.__name__}(...)")
    if isinstance(layer, keras.Model):
        raise TypeError(f"layer must be a single layer, not a model: check each of {layer.name}.layers")
    if not isinstance(layer, keras.layers.Layer):
        raise TypeError(f"layer must be a keras.layers.Layer, not {kind}; check_gradient takes ops")
    if not hasattr(layer, "dtype_policy"):
        raise TypeError(f"layer: {kind}.__init__ must call super().__init__() first")
    if layer.variable_dtype == "string":
        raise TypeError(f"layer computes with strings ({kind}): give one that computes with numbers")
    if not isinstance(call_kwargs, dict):
        raise TypeError(f"call_kwargs must be a dict, not {type(call_kwargs).__name__}")
    known = inspect.signature(layer.call).parameters
    for name in call_kwargs:
        if name not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            raise ValueError(f"call_kwargs: {kind}.call takes no {name!r}; it takes {', '.join(known)}")


def _check_inputs(inputs, call_kwargs) -> None:
    tensors = {f"call_kwargs[{name!r}]": v for name, v in call_kwargs.items() if holds_tensors(v)}
    given = [
        (name, leaf) for name, v in {"inputs": inputs, **tensors}.items() for leaf in keras.tree.flatten(v)
    ]
    for name, leaf in given:
        if not isinstance(leaf, tf.Tensor | np.ndarray):
            raise TypeError(f"{name} must be tensors or arrays, not {type(leaf).__name__}")
        try:
            dtype = tf.as_dtype(leaf.dtype)
        except TypeError:  # a dtype of NumPy alone
            dtype = tf.string
        if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
            raise TypeError(f"{name} must hold floats, integers or booleans, not {leaf.dtype.name}")
        if len(leaf.shape) == 0 or leaf.shape[0] < 2 or 0 in leaf.shape:
            raise ValueError(
                f"{name} must be a batch of two examples or more, its shape is {tuple(leaf.shape)}"
            )
        if not np.all(np.isfinite(tf.cast(leaf, tf.float64))):
            raise ValueError(f"{name} must be finite, but has NaN or infinity")
    sizes = {leaf.shape[0] for _, leaf in given}
    if len(sizes) != 1:
        raise ValueError(f"inputs must have one batch size, it is {sorted(sizes) or 'empty'}")
