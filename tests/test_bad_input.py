"""Bad input to `check_gradient`, plots and sliders: a right report or one clear error, no traces."""

import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import Curve, Slider, check_gradient, explore, explore_op, plot_gradient
from course_utils.explorers import Explorer
from tests.bad_input import Guard, X

WEIGHT = tf.Variable(2.0)
TWIN = tf.Variable(3.0)  # both are called "Variable"
DENSE = keras.layers.Dense(2)
DENSE.build((None, 2))
UNBUILT = keras.layers.Dense(2)  # its initializer draws its seed from Python


@pytest.fixture(autouse=True)
def unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Guard(tmp_path, [WEIGHT, TWIN, *DENSE.variables]):
        yield


def refused(act, kind, words):
    """The call raises one error, of exactly this kind, that says these words on one line."""
    with pytest.raises(kind, match=re.escape(words)) as raised:
        act()
    assert type(raised.value) is kind


def two_inputs(x, n):
    return x * tf.cast(n, x.dtype)


def nested(x):
    return {"b": [x * x, (x,)], "a": tf.argmax(x)}


def counts(x, seen=[]):  # noqa: B006 - the side effect is the point
    seen.append(x)
    return x * len(seen) / len(seen)


def advances(x):
    WEIGHT.assign_add(1.0)
    return x * WEIGHT


def prints(x):
    print("called")
    return x * x


GOOD = {
    "0-d": lambda: check_gradient(tf.square, 3.0),
    "complex": lambda: check_gradient(tf.square, np.complex64([1 + 2j, 3])),
    "big-endian": lambda: check_gradient(tf.square, X.astype(">f4")),
    "reversed view": lambda: check_gradient(tf.square, X[::-1, ::-1]),
    "read-only": lambda: check_gradient(tf.square, np.broadcast_to(X[0], (2, 2))),
    "huge in float32": lambda: check_gradient(tf.square, np.float32([1e30, 1])),
    "huge in float64": lambda: check_gradient(tf.square, np.array([1e300, 1])),
    "subnormal": lambda: check_gradient(tf.square, np.float32([1e-40, 1])),
    "a million elements": lambda: check_gradient(tf.square, np.ones((1000, 1000), np.float32)),
    "odd integers beside floats": lambda: check_gradient(two_inputs, X, np.uint16([[1, 2], [3, 4]])),
    "an empty dict beside x": lambda: check_gradient(lambda x, options: x * x, X, {}),
    "variables as input": lambda: check_gradient(tf.multiply, WEIGHT, keras.Variable(4.0)),
    "nested outputs": lambda: check_gradient(nested, X),
    "side effect": lambda: check_gradient(counts, X),
    "prints": lambda: check_gradient(prints, X),
    "partial": lambda: check_gradient(functools.partial(tf.multiply, y=2.0), X),
    "tf.function": lambda: check_gradient(tf.function(tf.square), X),
    "layer": lambda: check_gradient(DENSE, X),
    "unbuilt layer": lambda: check_gradient(UNBUILT, X),
    "closes over a variable": lambda: check_gradient(lambda x: x * WEIGHT, X),
    "moves a variable": lambda: check_gradient(advances, X, variables=[WEIGHT]),
    "integer variable": lambda: check_gradient(tf.square, X, variables=[tf.Variable(1)]),
    "same variable twice": lambda: check_gradient(lambda x: x * WEIGHT, X, variables=[WEIGHT, WEIGHT]),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_odd_but_right(name):
    report = GOOD[name]()
    assert report, report
    assert any("equals the numerical derivative" in str(check) for check in report.checks)


FAILED = {
    "raises": (lambda x: 1 / 0, "raises ZeroDivisionError: division by zero"),
    "raises without a message": (lambda x: next(iter(())), "raises StopIteration"),
    "class": (keras.layers.Dropout, "raises ValueError"),
    "random": (
        lambda x: x * tf.random.stateless_uniform([], [len(CALLS.append(0) or CALLS), 0]),
        "two outputs",
    ),
    "leaves TensorFlow": (lambda x: tf.numpy_function(np.square, [x], x.dtype), "missing gradient (None)"),
}
CALLS = []


@pytest.mark.parametrize("name", FAILED)
def test_fault_of_the_op_is_reported(name):
    op, words = FAILED[name]
    report = check_gradient(op, X)
    assert len(report.failures) == 1
    assert words in str(report.failures[0])


def test_each_of_two_variables_of_one_name_is_checked():
    report = check_gradient(lambda x: x * tf.stop_gradient(WEIGHT) * TWIN, X, variables=[WEIGHT, TWIN])
    assert [check.name for check in report.failures] == ["Variable"]
    assert [check.name for check in report.checks][-1] == "Variable 1"


def test_variables_may_come_from_a_generator():
    report = check_gradient(lambda x: x * WEIGHT, X, variables=(v for v in [WEIGHT]))
    assert report.checks[-1].name == "Variable"


GRADIENT = [
    (
        ([[1.0], [1.0, 2.0]],),
        {},
        TypeError,
        "x must be a tensor, an array or a number, got [[1.0], [1.0, 2.0]]",
    ),
    ((np.longdouble([1, 2]),), {}, TypeError, "x must be a tensor"),
    ((np.array([1, "a"], object),), {}, TypeError, "x must be a tensor"),
    ((np.zeros(2, "datetime64[D]"),), {}, TypeError, "x must be a tensor"),
    ((np.zeros(2, [("a", "f4")]),), {}, TypeError, "x must be a tensor"),
    (
        (np.int8([1, 2]),),
        {},
        ValueError,
        "inputs: only integers or nothing, which get no gradient: give floats",
    ),
    ((True,), {}, ValueError, "inputs: only integers or nothing"),
    (({},), {}, ValueError, "inputs: only integers or nothing"),
    (([],), {}, ValueError, "x is empty, shape (0,)"),
    ((b"abc",), {}, TypeError, "x has dtype string"),
    (({1.0, 2.0},), {}, TypeError, "x must be a tensor"),
    ((keras.Input((2,)),), {}, TypeError, "x must be a tensor"),
    ((tf.sparse.eye(2),), {}, TypeError, "x is a SparseTensor: give a dense tensor ("),
    ((tf.IndexedSlices(X, tf.constant([0, 1])),), {}, TypeError, "x is a IndexedSlices: give a dense tensor"),
    ((np.float64([1, np.nan]),), {}, ValueError, "x is nan at [1]"),
    ((X, X), {"op": lambda x: x}, TypeError, "op can't take 2 inputs: too many positional arguments"),
    ((X,), {"op": lambda x, y: x}, TypeError, "op can't take 1 inputs: missing a required argument: 'y'"),
    ((X,), {"op": lambda x, *, a: x}, TypeError, "op can't take 1 inputs: missing a required"),
    ((X,), {"op": lambda x: None}, TypeError, "op must return tensors, got NoneType"),
    ((X,), {"op": lambda x: ()}, TypeError, "op must return a float tensor with elements, got ()"),
    ((X,), {"op": lambda x: {}}, TypeError, "op must return a float tensor with elements, got {}"),
    ((X,), {"op": lambda x: {"a": x, "b": None}}, TypeError, "op must return tensors, got NoneType"),
    ((X,), {"op": lambda x: (x, lambda dy: dy)}, TypeError, "op must return tensors, got function"),
    ((X,), {"op": np.square}, TypeError, "op must return tensors, got ndarray"),
    ((X,), {"op": lambda x: x > 0}, TypeError, "op must return a float tensor with elements, got tf.Tensor("),
    ((X,), {"op": lambda x: tf.cast(x, tf.int32)}, TypeError, "op must return a float tensor"),
    ((X,), {"op": lambda x: tf.boolean_mask(x, x >= X[0])}, TypeError, "op must return one shape whatever"),
    ((X,), {"op": lambda x: x[:0]}, TypeError, "op must return a float tensor with elements"),
    ((X,), {"op": lambda x: (x, tf.strings.as_string(x))}, TypeError, "op must return numbers, got string"),
    ((np.ma.masked_less(X, 0),), {}, TypeError, "masked array, and TensorFlow drops its mask: give"),
    ((X,), {"op": tf.RaggedTensor.from_tensor}, TypeError, "op must return tensors, got RaggedTensor"),
    ((X,), {"op": tf.sparse.from_dense}, TypeError, "op must return tensors, got SparseTensor"),
    ((X,), {"variables": None}, TypeError, "variables must be a list of"),
    ((X,), {"variables": {"a": WEIGHT}}, TypeError, "variables must hold tf.Variable or keras.Variable"),
    ((X,), {"variables": [tf.Variable(np.nan)]}, ValueError, "Variable is nan at []: give finite"),
    ((X,), {"surrogate": lambda x: tf.cast(x, tf.int32)}, ValueError, "surrogate raises TypeError"),
    ((X,), {"surrogate": lambda x, y: x}, ValueError, "surrogate raises TypeError"),
    ((X,), {"backward": lambda dy, x: "text"}, ValueError, "backward must return the shape (2, 2), got ()"),
    ((X,), {"backward": lambda dy, x: []}, ValueError, "backward must return 1 gradients"),
    ((X,), {"rtol": float("nan")}, ValueError, "rtol must be a number between 0 and 1"),
    ((X,), {"seed": None}, ValueError, "seed must be an integer of at least 0, got None"),
]


@pytest.mark.parametrize(("inputs", "options", "kind", "words"), GRADIENT)
def test_check_gradient_names_the_argument(inputs, options, kind, words):
    options = dict(options)
    op = options.pop("op", tf.square)
    refused(lambda: check_gradient(op, *inputs, **options), kind, words)


def test_check_gradient_in_a_graph():
    graph = tf.function(lambda: check_gradient(tf.square, X), autograph=False)
    refused(graph, ValueError, "a check needs values: call it outside of tf.function")


PLOT = [
    ((lambda x: None,), {}, TypeError, "op gives NoneType: it must return one tensor of real numbers"),
    ((lambda x: (x, x),), {}, TypeError, "op gives tuple: it must return one tensor"),
    ((lambda x: {"a": x},), {}, TypeError, "op gives dict: it must return one tensor"),
    ((np.square,), {}, TypeError, "op gives ndarray: it must return one tensor"),
    ((tf.strings.as_string,), {}, TypeError, "op gives string: it must return one tensor"),
    ((lambda x: tf.cast(x, tf.complex64),), {}, TypeError, "op gives complex64: it must return one tensor"),
    ((tf.sparse.from_dense,), {}, TypeError, "op gives SparseTensor: it must return one tensor"),
    ((tf.sin, "ab"), {}, ValueError, "x is 'ab': give two finite numbers"),
    ((tf.sin, [1j, 2]), {}, ValueError, "x is [1j, 2]: give two finite numbers"),
    ((tf.sin, [[1], [1, 2]]), {}, ValueError, "x is [[1], [1, 2]]: give two finite numbers"),
    ((tf.sin, 3.0), {}, ValueError, "x is 3.0: give two finite numbers"),
    ((tf.sin, []), {}, ValueError, "x is []: give two finite numbers"),
    ((tf.sin, (-1e300, 1e300)), {}, ValueError, "x is (-1e+300, 1e+300): give two finite numbers"),
    ((tf.sin,), {"points": 2.5}, ValueError, "points is 2.5: give 2 or more"),
    ((tf.sin,), {"points": None}, ValueError, "points is None: give 2 or more"),
    (({str(i): tf.sin for i in range(7)},), {}, ValueError, "op holds 7 functions: give at most 6"),
]


@pytest.mark.parametrize(("arguments", "options", "kind", "words"), PLOT)
def test_plot_gradient_names_the_argument(arguments, options, kind, words):
    refused(lambda: plot_gradient(*arguments, **options), kind, words)


def test_what_an_op_raises_tells_how_it_was_called():
    with pytest.raises(ZeroDivisionError) as raised:
        plot_gradient(lambda x: 1 / 0)
    assert raised.value.__notes__ == ["op raises this for one float32 tensor of shape (401,)"]


@pytest.mark.parametrize(
    "op", [keras.layers.ReLU(), lambda x: tf.cast(x, tf.int32), lambda x: tf.cast(x, tf.float64), {1: tf.sin}]
)
def test_plot_gradient_draws_what_is_odd(op):
    left, right = plot_gradient(op, tf.linspace(0.0, 1.0, 5)).axes
    assert [len(ax.lines) for ax in (left, right)] == [1, 1]


def curves(a=1.0):
    return {"c": ([0, 1], [0, a])}


EXPLORE = [
    ({"a": "ab"}, TypeError, "slider a is 'ab': give (low, high)"),
    ({"a": ("x", "y")}, TypeError, "low is 'x': give a number"),
    ({"a": (0, float("inf"))}, ValueError, "high is inf: give a finite number"),
    ({"a": (0.0, 1.0, "small")}, TypeError, "step is 'small': give a number"),
    ({"a": (0.0, 1.0, -0.1)}, ValueError, "step is -0.1: give a number above 0"),
    ({"a": (0, 3), "f": lambda a="s": curves()}, TypeError, "value is 's': give a number"),
    ({"a": (0, 1), "f": lambda *a: curves()}, TypeError, "f takes [], the sliders are ['a']"),
    ({"a": (0, 1), "f": max}, TypeError, "arguments are not known: wrap it in a function"),
    ({"a": (0, 1), "f": lambda a: None}, ValueError, "f gives NoneType: return a dict of named curves"),
    ({"a": (0, 1), "f": lambda a: {"c": 3}}, ValueError, "f gives 3 for 'c': give (x, y) or a Curve"),
    ({"a": (0, 1), "f": lambda a: {"c": ([1],)}}, ValueError, "f gives ([1],) for 'c': give (x, y)"),
    ({"a": (0, 1), "f": lambda a: {"c": ("ab", "cd")}}, ValueError, "a curve needs two 1-D arrays"),
    ({"a": (0, 1), "f": lambda a: {"c": ([0, 1], [1j, 2])}}, ValueError, "a curve needs two 1-D arrays"),
    (
        {"a": (0, 1), "f": lambda a: {"p": curves(), "q": ([0], [0])}},
        ValueError,
        "f gives ([0], [0]) for panel 'q'",
    ),
    ({"a": (0, 1), "f": lambda a: {"p": {}}}, ValueError, "f gives {} for panel 'p'"),
]


@pytest.mark.parametrize(("sliders", "kind", "words"), EXPLORE)
def test_explore_names_the_argument(sliders, kind, words):
    refused(lambda: explore(**{"f": curves, **sliders}), kind, words)
    assert all(explorer.f is not sliders.get("f") for explorer in Explorer.instances)


def test_numbers_of_numpy_make_an_integer_slider():
    assert Slider(np.int64(0), np.int64(3)).step == 1


def test_a_kind_that_is_no_name():
    refused(lambda: Curve([0], [0], kind=[]), ValueError, "kind is []: give one of")


OPS = [
    (lambda a: None, TypeError, "op is None: give a function of one tensor"),
    (lambda a: tf.constant(1.0), TypeError, "give a function of one tensor"),
    (lambda a: lambda x: None, TypeError, "op gives NoneType: it must return one tensor"),
    (lambda a: lambda x: (x, x), TypeError, "op gives tuple: it must return one tensor"),
    (lambda a: tf.reduce_sum, ValueError, "op gives shape () for shape (201,)"),
    (max, TypeError, "arguments are not known: wrap it in a function"),
]


@pytest.mark.parametrize(("make_op", "kind", "words"), OPS)
def test_explore_op_names_the_argument(make_op, kind, words):
    refused(lambda: explore_op(make_op, a=(0.0, 1.0)), kind, words)
