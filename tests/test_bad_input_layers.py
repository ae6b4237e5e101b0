"""Bad input to `check_layer`, its command and exercises: a right report or one clear error, no traces."""

import re
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import check_layer
from course_utils.doctor.__main__ import main
from course_utils.exercises import nb00, nb02, nb03
from tests.bad_input import Guard

B = np.random.default_rng(0).normal(size=(4, 2)).astype("float32")
STEPS = B.reshape(2, 2, 2)
DENSE = keras.layers.Dense(2)
DENSE.build((None, 2))
# Made here: the initializer of a new layer draws its seed from Python.
UNBUILT = keras.layers.Dense(2)
IDS = keras.layers.Embedding(5, 2)
DROPOUT = keras.layers.Dropout(0.5)
FEW_IDS = keras.layers.Embedding(2, 2)
LSTM = keras.layers.LSTM(2)
STATEFUL = keras.layers.SimpleRNN(2, stateful=True)
#: The checks that this file is about; the others take seconds and look at code, not at input.
FEW = (
    "xla",
    "trains",
    "saved",
    "vectorized_map",
    "mixed_float16",
    "mixed_bfloat16",
    "forward_mode",
    "numbers",
    "outer_tape",
    "loss_scale",
)


@pytest.fixture(autouse=True)
def unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "their_layers.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "their_layers", raising=False)  # other tests have another of that name
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    with Guard(tmp_path, DENSE.variables):
        yield


def layer_of(call, **options):
    """Return a layer whose `call` is this function."""
    kind = type("Theirs", (keras.layers.Layer,), {"call": call})
    return kind(**options)


def check(layer, inputs=B, **options):
    return check_layer(layer, inputs, **{"skip": FEW, **options})


class Forgetful(keras.layers.Layer):
    def __init__(self):
        pass


class Branches(keras.layers.Layer):
    """Two weights that are both called "kernel"; the second gets no gradient."""

    def __init__(self, **options):
        super().__init__(**options)
        self.first, self.second = keras.layers.Dense(2), keras.layers.Dense(2)

    def call(self, x):
        return self.second(x) + tf.stop_gradient(self.first(tf.ones_like(x)))


def raises(self, x):
    raise RuntimeError("no such table")


def sets_policy(self, x):
    keras.config.set_dtype_policy("mixed_float16")
    return 2.0 * x


def masked(self, x, mask=None):
    return x if mask is None else tf.where(mask[..., None], x, 0.0)


MASK = np.array([[True, False], [True, True]])
GOOD = {
    "unbuilt": lambda: check(UNBUILT),
    "built": lambda: check(DENSE),
    "float16 input": lambda: check(DENSE, B.astype("float16")),
    "integers": lambda: check(DENSE, np.int16([[1, 2], [3, 4]])),
    "booleans": lambda: check(DENSE, B > 0),
    "integer ids": lambda: check(IDS, np.array([[0, 1], [2, 4]])),
    "several inputs": lambda: check(keras.layers.Add(), [B, B]),
    "second argument": lambda: check(layer_of(lambda self, x, y: x * y), call_kwargs={"y": B}),
    "mask": lambda: check(layer_of(masked), STEPS, call_kwargs={"mask": MASK}),
    "training": lambda: check(keras.layers.BatchNormalization(), call_kwargs={"training": True}),
    "random": lambda: check(DROPOUT, call_kwargs={"training": True}),
    "changes shape": lambda: check(keras.layers.Flatten(), STEPS),
    "nested outputs": lambda: check(layer_of(lambda self, x: (x, {"a": 2.0 * x}))),
    "sets the dtype policy": lambda: check(layer_of(sets_policy)),
}


@pytest.mark.parametrize("name", GOOD)
def test_odd_but_right(name):
    report = GOOD[name]()
    assert [str(failure) for failure in report.failures if "config" not in failure.name] == []
    assert any(c.ok and c.name == "Has the right gradients" for c in report.checks) or "skip" in name, report


FAILED = {
    "carries a state": (
        lambda: check(STATEFUL, STEPS),
        "Gives the same result twice",
    ),
    "raises": (lambda: check(layer_of(raises)), "RuntimeError: no such table"),
    "no call": (
        lambda: check(keras.layers.Layer()),
        "NotImplementedError: Layer Layer does not have a `call` method",
    ),
    "returns None": (lambda: check(layer_of(lambda self, x: None)), "call returns nothing"),
    "returns an array": (lambda: check(layer_of(lambda self, x: B)), "call returns ndarray"),
    "returns strings": (
        lambda: check(layer_of(lambda self, x: tf.strings.as_string(x))),
        "call returns EagerTensor",
    ),
    "returns ragged": (
        lambda: check(layer_of(lambda self, x: tf.RaggedTensor.from_tensor(x))),
        "call returns RaggedTensor → return dense tensors of numbers",
    ),
    "one input of two": (lambda: check(keras.layers.Add()), "should be called on a list of inputs"),
    "argument missing": (lambda: check(layer_of(lambda self, x, y: x)), "missing a required argument: 'y'"),
    "argument twice": (
        lambda: check(DENSE, call_kwargs={"inputs": B}),
        "multiple values for argument 'inputs'",
    ),
    "id too large": (
        lambda: check(FEW_IDS, np.array([[0], [9]])),
        "9 is not in [0, 2)",
    ),
    "built for another shape": (
        lambda: check(DENSE, np.ones((4, 5), "float32")),
        "value 2, but received input",
    ),
    "too few axes": (lambda: check(LSTM), "expected ndim=3, found ndim=2"),
    "impossible shape": (lambda: check(keras.layers.Reshape((7,)), STEPS), "total size of the tensor"),
    "too large for float32": (
        lambda: check(DENSE, B.astype("float64") * 1e300),
        "the output has NaN or infinity",
    ),
    "surrogate raises": (
        lambda: check(DENSE, surrogate=lambda x: 1 / 0),
        "surrogate raises ZeroDivisionError",
    ),
}


@pytest.mark.parametrize("name", FAILED)
def test_fault_of_the_layer_is_reported(name):
    act, words = FAILED[name]
    report = act()
    assert words in str(report.failures[0])


BRANCHES = Branches()


def test_a_weight_without_gradient_is_named_though_another_has_its_name():
    failure = next(c for c in check(BRANCHES).failures if c.name == "Has the right gradients")
    assert failure.detail.startswith("dense")
    assert "/kernel: at dense" in failure.detail
    assert failure.cure.startswith("no gradient arrives")


REFUSED = [
    (lambda: check(None), TypeError, "layer must be a keras.layers.Layer, not NoneType"),
    (lambda: check(Forgetful()), TypeError, "layer: Forgetful.__init__ must call super().__init__() first"),
    (lambda: check(keras.layers.StringLookup()), TypeError, "layer computes with strings (StringLookup)"),
    (lambda: check(DENSE, None), TypeError, "inputs must be tensors or arrays, not NoneType"),
    (lambda: check(DENSE, [[1.0, 2.0]]), TypeError, "inputs must be tensors or arrays, not float"),
    (lambda: check(DENSE, np.array(3.0)), ValueError, "inputs must be a batch of two examples or more"),
    (
        lambda: check(DENSE, tf.ragged.constant([[1.0], []])),
        TypeError,
        "inputs must be tensors or arrays, not Ragged",
    ),
    (lambda: check(DENSE, tf.sparse.eye(2)), TypeError, "inputs must be tensors or arrays, not SparseTensor"),
    (lambda: check(DENSE, keras.Input((2,))), TypeError, "inputs must be tensors or arrays, not KerasTensor"),
    (
        lambda: check(DENSE, B.astype("complex64")),
        TypeError,
        "inputs must hold floats, integers or booleans, not c",
    ),
    (
        lambda: check(DENSE, B.astype("longdouble")),
        TypeError,
        "inputs must hold floats, integers or booleans",
    ),
    (
        lambda: check(DENSE, B.astype(object)),
        TypeError,
        "inputs must hold floats, integers or booleans, not object",
    ),
    (lambda: check(DENSE, B.astype("datetime64[s]")), TypeError, "booleans, not datetime64[s]"),
    (lambda: check(DENSE, np.zeros((2, 2), [("a", "f4")])), TypeError, "inputs must hold floats"),
    (lambda: check(DENSE, B / 0 * 0), ValueError, "inputs must be finite"),
    (
        lambda: check(keras.layers.Add(), [B, STEPS]),
        ValueError,
        "inputs must have one batch size, it is [2, 4]",
    ),
    (lambda: check(DENSE, skip=None), TypeError, "skip must be a sequence of names, as ('runs',), not None"),
    (lambda: check(DENSE, also=3), TypeError, "also must be a sequence of names"),
    (lambda: check(DENSE, call_kwargs={1: 2}), ValueError, "call_kwargs: Dense.call takes no 1"),
    (lambda: check(DENSE, rtol="small"), ValueError, "rtol must be a number between 0 and 1"),
    (lambda: check(DENSE, order=0), ValueError, "order must be an integer of at least 1"),
    (lambda: check(DENSE, surrogate=3), TypeError, "surrogate must be callable, got 3"),
    (lambda: check(DENSE, surrogate=abs, backward=abs), ValueError, "give surrogate or backward, not both"),
    (tf.function(lambda: check(DENSE), autograph=False), ValueError, "a check needs values: call it outside"),
]


@pytest.mark.parametrize(("act", "kind", "words"), REFUSED)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_check_layer_names_the_argument(act, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        act()


MODULE = """
import sys
import keras

number = 3
text = "Dense"

class Outer:
    Inner = keras.layers.ReLU

def quits():
    sys.exit(5)

def gives_a_class():
    return keras.layers.ReLU

def relu():
    return keras.layers.ReLU()
"""

COMMANDS = [
    (["their_layers:number", "--shape", "4,2"], "layer must be a keras.layers.Layer, not int"),
    (["their_layers:text", "--shape", "4,2"], "layer must be a keras.layers.Layer, not str"),
    (["their_layers:gives_a_class", "--shape", "4,2"], "layer must be an instance, not the class"),
    (["their_layers:Outer", "--shape", "4,2"], "layer must be a keras.layers.Layer, not Outer"),
    (["their_layers:quits", "--shape", "4,2"], "their_layers:quits leaves with exit status 5"),
    (["their_layers:", "--shape", "4,2"], "layer must be package.module:Name"),
    ([":relu", "--shape", "4,2"], "layer must be package.module:Name"),
    ([".their_layers:relu", "--shape", "4,2"], "layer must be package.module:Name"),
    (["their_layers.py:relu", "--shape", "4,2"], "there is no module 'their_layers.py'"),
    (["their_layers:relu", "--shape", ""], "argument --shape"),
    (["their_layers:relu", "--shape=-4,2"], "argument --shape"),
    (["their_layers:relu", "--shape", "4,0"], "argument --shape"),
    (["their_layers:relu", "--shape", "4,2", "--dtype", "string"], "argument --dtype"),
    (["their_layers:relu", "--shape", "4,2", "--dtype", "complex64"], "argument --dtype"),
    (["their_layers:relu", "--shape", "4,2", "--dtype", "qint8"], "argument --dtype"),
]


@pytest.mark.parametrize(("arguments", "words"), COMMANDS, ids=[" ".join(row[0]) for row in COMMANDS])
def test_command_names_the_argument(arguments, words, capsys, monkeypatch):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2
    assert words in capsys.readouterr().err
    sys.modules.pop("their_layers", None)


def test_command_takes_a_nested_name(capsys):
    assert main(["their_layers:Outer.Inner", "--shape", "4,2", "--skip", *FEW, "gradient"]) == 0


def leaves(*args):
    sys.exit(1)


ANSWERS = {
    "number": (3, "wrong"),
    "text": ("tf.square", "wrong"),
    "NaN": (float("nan"), "wrong"),
    "tensor": (tf.constant([1.0]), "wrong"),
    "ragged tensor": (tf.ragged.constant([[1.0], []]), "wrong"),
    "empty array": (np.zeros(0), "wrong"),
    "Ellipsis": (..., "not attempted"),
    "gives None": (lambda *a: None, "wrong"),
    "gives a tuple": (lambda *a: a, "wrong"),
    "gives a dict": (lambda *a: {"a": a[0]}, "wrong"),
    "gives strings": (lambda *a: tf.strings.as_string(a[0]), "wrong"),
    "gives a sparse tensor": (lambda *a: tf.sparse.from_dense(a[0]), "wrong"),
    "gives nothing of the batch": (lambda *a: a[0][:0], ("wrong", "error")),
    "gives NaN": (lambda *a: a[0] * np.nan, "wrong"),
    "raises": (lambda *a: 1 / 0, "error"),
    "leaves Python": (leaves, "error"),
    "takes nothing": (lambda: 0, "error"),
    "class of a library": (keras.layers.Embedding, "error"),
    "layer": (keras.layers.Dense(2), ("wrong", "error")),
    "prints": (print, "wrong"),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    "exercise", [nb00.double, nb02.mend_batch_size, nb03.safe_log], ids=lambda e: e.title
)
def test_exercise_never_raises(exercise, name):
    answer, kinds = ANSWERS[name]
    outcome = exercise.check(answer)
    assert outcome.kind in kinds, outcome
    assert str(outcome).count("\n") < 12


def test_hint_and_solution_give_text_however_often():
    texts = [nb00.double.hint() for _ in range(5)] + [nb00.double.solution()]
    assert all(isinstance(text, str) and text for text in texts)
    nb00.double._told = 0
