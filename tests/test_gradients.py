"""The contracts, notes, errors and manners of `check_gradient`; its catalog of gradients is next door."""

import functools
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils.gradients import EDGE_POINTS, check_gradient, slope, vjp

X = np.array([-1.7, -0.4, 0.3, 0.8, 2.6])


def op_with(forward, gradient):
    @tf.custom_gradient
    def op(x):
        return forward(x), lambda dy: gradient(dy, x)

    return op


def clipped(x):
    return tf.clip_by_value(x, -1.0, 1.0)


def inside(x):
    return tf.cast(tf.abs(x) <= 1, x.dtype)


def fast_sigmoid(x):
    return x / (1 + tf.abs(x))


def clip_backward(dy, x):
    return tf.clip_by_norm(dy, 0.1)


CONTRACTS = {
    "straight-through": (tf.sign, lambda dy, x: dy, {"surrogate": tf.identity}),
    "clipped straight-through": (tf.sign, lambda dy, x: dy * inside(x), {"surrogate": clipped}),
    "reversal": (tf.identity, lambda dy, x: -0.5 * dy, {"surrogate": lambda x: -0.5 * x}),
    "spike": (tf.sign, lambda dy, x: dy / (1 + tf.abs(x)) ** 2, {"surrogate": fast_sigmoid}),
    "detached": (tf.square, lambda dy, x: None, {"surrogate": tf.stop_gradient}),
    "clip": (tf.identity, clip_backward, {"backward": clip_backward}),
    "scaled": (tf.identity, lambda dy, x: 3 * dy, {"backward": lambda dy, x: 3 * dy}),
}
BROKEN_CONTRACTS = {
    "identity for clipped": (tf.sign, lambda dy, x: dy, {"surrogate": clipped}, "the surrogate 0"),
    "reversal forgotten": (
        tf.identity,
        lambda dy, x: 0.5 * dy,
        {"surrogate": lambda x: -0.5 * x},
        "sign flipped",
    ),
    "strength": (tf.identity, lambda dy, x: -dy, {"surrogate": lambda x: -0.5 * x}, "2 too many"),
    "ignores dy": (tf.sign, lambda dy, x: tf.ones_like(x), {"surrogate": tf.identity}, "is ignored"),
    "absolute dy": (tf.sign, lambda dy, x: tf.abs(dy), {"surrogate": tf.identity}, "absolute value"),
    "zero for identity": (tf.sign, lambda dy, x: 0 * x, {"surrogate": tf.identity}, "no gradient"),
    "leaks": (tf.square, lambda dy, x: dy, {"surrogate": tf.stop_gradient}, "the op gives"),
    "other bound": (
        tf.identity,
        lambda dy, x: tf.clip_by_norm(dy, 0.05),
        {"backward": clip_backward},
        "2 missing",
    ),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_declared_gradient_passes_and_the_numerical_check_rejects_it(name):
    forward, gradient, contract = CONTRACTS[name]
    op = op_with(forward, gradient)
    for seed in range(10):
        assert check_gradient(op, X, seed=seed, **contract)
        assert not check_gradient(op, X, seed=seed)


@pytest.mark.parametrize("name", BROKEN_CONTRACTS)
def test_broken_contract_is_caught_with_its_cause(name):
    forward, gradient, contract, phrase = BROKEN_CONTRACTS[name]
    for seed in range(10):
        report = check_gradient(op_with(forward, gradient), X, seed=seed, **contract)
        assert phrase in str(report.failures[0]), report


def test_declared_second_order():
    op = op_with(tf.sign, lambda dy, x: dy * tf.stop_gradient(1 - tf.tanh(x) ** 2))
    assert check_gradient(op, X, surrogate=tf.tanh)
    assert not check_gradient(op, X, surrogate=tf.tanh, order=2)


def test_declared_nonlinear_backward_is_noted():
    report = check_gradient(op_with(tf.identity, clip_backward), X, backward=clip_backward)
    assert report
    assert any("Loss scaling and batch size change" in check.cure for check in report.notes)


@pytest.mark.parametrize(
    ("op", "x", "phrase"),
    [
        (tf.nn.relu, EDGE_POINTS, "features[6] = 0 there is a kink, slopes"),
        (tf.sign, EDGE_POINTS, "x[6] = 0 the op jumps"),
        (tf.sqrt, np.array([0.0, 1.0]), "x[0] = 0 the op has no finite slope"),
        (tf.exp, EDGE_POINTS, "output[12] = inf in float32"),
        (tf.math.log, EDGE_POINTS, "output[0] = nan in float32, nan in float64"),
        (tf.asin, EDGE_POINTS, "x[0] = -100 the op is NaN or infinite, as at 5 more"),
        (
            tf.nn.crelu,
            np.zeros((2, 3)),
            "features[0, 1] = 0 there is a kink, slopes 0 to 3.03; the op takes 0",
        ),
        (
            op_with(lambda x: tf.math.log1p(tf.exp(x)), lambda dy, x: dy * tf.sigmoid(x)),
            EDGE_POINTS,
            "output[12] = inf in float32, 100 in float64",
        ),
        (lambda x: x * tf.constant(2.0), np.float16([1, 2]), "raises"),
    ],
)
def test_what_is_no_fault_is_noted(op, x, phrase):
    report = check_gradient(op, x)
    if phrase == "raises":
        assert phrase in str(report.failures[0])
    else:
        assert report
        assert any(phrase in str(check) for check in report.notes), report


def test_kink_with_a_slope_outside_is_a_failure():
    report = check_gradient(
        op_with(tf.abs, lambda dy, x: dy * tf.where(x < 0, -1.0, tf.where(x > 0, 1.0, 2.0))), EDGE_POINTS
    )
    assert report.failures[0].index == (6,)


def test_failure_names_argument_index_and_both_values():
    @tf.custom_gradient
    def area(width, height):
        return width * height, lambda dy: (dy * height, tf.tensor_scatter_nd_update(dy * width, [[1]], [0.0]))

    report = check_gradient(area, tf.constant([1.0, 2.0]), tf.constant([3.0, 4.0]))
    (failure,) = [check for check in report.failures if check.name == "height"]
    assert failure.index == (1,)
    assert "at height[1] = 4 the op gives 0, the numerical derivative" in failure.detail
    assert failure.error > 0


def test_an_op_of_one_triangle_is_told_from_a_wrong_gradient():
    a = np.array([[2.0, -1, 0.5], [-1, 3, 0.2], [0.5, 0.2, 1]])
    assert "the op reads the lower triangle" in check_gradient(tf.linalg.cholesky, a).failures[0].cure
    assert check_gradient(lambda a: tf.linalg.cholesky((a + tf.linalg.matrix_transpose(a)) / 2), a)


NORMALIZATIONS = {
    "Layer": keras.layers.LayerNormalization(dtype="float64"),
    "Group": keras.layers.GroupNormalization(groups=2, dtype="float64"),
    "Batch": functools.partial(keras.layers.BatchNormalization(dtype="float64"), training=True),
    "RMS": keras.layers.RMSNormalization(dtype="float64"),
    "Unit": keras.layers.UnitNormalization(dtype="float64"),
}


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_second_order_of_stock_layers_is_judged_as_by_finite_differences(name):
    # In TensorFlow 2.21 tf.nn.moments stops a gradient that the second order needs: notebook 10.
    layer = NORMALIZATIONS[name]
    x, h = tf.constant(np.random.default_rng(0).normal(size=(2, 4))), 1e-5
    dy, v = (tf.constant(np.random.default_rng(n).normal(size=(2, 4))) for n in (1, 2))

    def slope_along_v(x):
        return tf.reduce_sum(vjp(layer, [x], dy)[0] * v)

    with tf.GradientTape() as tape:
        tape.watch(x)
        found = tf.reduce_sum(tape.gradient(slope_along_v(x), x) * v)
    right = (slope_along_v(x + h * v) - slope_along_v(x - h * v)) / (2 * h)
    assert check_gradient(layer, x, order=2).ok == np.isclose(found, right, rtol=1e-4)


def test_misuse_of_the_upstream_gradient_is_told_once():
    failures = check_gradient(op_with(tf.square, lambda dy, x: 2 * x), X).failures
    assert [bool(check.cure) for check in failures] == [True, False]


def test_cause_is_told_beside_a_kink():
    report = check_gradient(
        op_with(tf.nn.relu, lambda dy, x: 0.5 * dy * tf.cast(x > 0, x.dtype)), EDGE_POINTS.astype("float64")
    )
    assert "2 missing" in report.failures[0].cure


def test_nested_inputs_are_named_by_their_place():
    def op(params, x):
        return tf.stop_gradient(params["scale"]) * x + params["shift"][0]

    report = check_gradient(op, {"shift": [tf.constant(1.0)], "scale": tf.constant(2.0)}, X.astype("float32"))
    assert report.failures[0].name == "params['scale']"


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((tf.square,), {}, ValueError, "at least one input"),
        ((3.0, X), {}, TypeError, "op must be callable"),
        ((tf.square, X), {"surrogate": 1}, TypeError, "surrogate must be callable"),
        ((tf.square, X), {"backward": "g"}, TypeError, "backward must be callable"),
        ((tf.square, X), {"surrogate": tf.square, "backward": clip_backward}, ValueError, "not both"),
        ((tf.square, X), {"rtol": 0}, ValueError, "rtol must be"),
        ((tf.square, X), {"rtol": "small"}, ValueError, "rtol must be"),
        ((tf.square, X), {"order": 0}, ValueError, "order must be"),
        ((tf.square, X), {"order": 1.5}, ValueError, "order must be"),
        ((tf.square, X), {"seed": -1}, ValueError, "seed must be"),
        ((tf.square, np.zeros((0, 3))), {}, ValueError, "x is empty"),
        ((tf.square, np.array([1, np.nan])), {}, ValueError, r"x is nan at \[1\]"),
        ((tf.square, np.array([np.inf])), {}, ValueError, r"x is inf at \[0\]"),
        ((tf.square, "text"), {}, TypeError, "x has dtype string"),
        ((tf.square, None), {}, TypeError, "x must be a tensor"),
        ((tf.square, tf.ragged.constant([[1.0], []])), {}, TypeError, "x is a RaggedTensor"),
        ((tf.square, tf.sparse.eye(2)), {}, TypeError, "x is a SparseTensor"),
        ((tf.square, [1, 2]), {}, ValueError, "only integers"),
        ((lambda x: None, X), {}, TypeError, "op must return tensors, got NoneType"),
        ((lambda x: x.numpy(), X), {}, TypeError, "op must return tensors, got ndarray"),
        ((tf.square, X), {"variables": tf.Variable(1.0)}, TypeError, "variables must be a list"),
        ((tf.square, X), {"variables": [1.0]}, TypeError, "variables must hold"),
        ((tf.square, X), {"surrogate": tf.reduce_sum}, ValueError, "surrogate must return the shapes"),
        ((tf.square, X), {"surrogate": lambda x: x @ x}, ValueError, "surrogate raises"),
        (
            (tf.square, X),
            {"backward": lambda dy, x: (dy, dy)},
            ValueError,
            "backward must return 1 gradients",
        ),
        ((tf.square, X), {"backward": lambda dy, x: dy[:1]}, ValueError, "backward must return the shape"),
    ],
)
def test_bad_argument_is_named(arguments, options, error, message):
    with pytest.raises(error, match=message):
        check_gradient(*arguments, **options)


def test_exception_of_the_op_is_a_failed_check():
    def op(x):
        raise RuntimeError("no such table")

    (failure,) = check_gradient(op, X).failures
    assert str(failure) == "✗ forward pass: raises RuntimeError: no such table"


def test_state_is_left_alone():
    v, k = tf.Variable([2.0]), keras.Variable([3.0], name="k")
    tf.random.set_seed(5)
    np.random.seed(5)
    random.seed(5)
    want = tf.random.normal([2]).numpy(), np.random.rand(), random.random()
    tf.random.set_seed(5)
    np.random.seed(5)
    random.seed(5)
    report = check_gradient(lambda x: x * v + k, np.float32([1, 2]), variables=[v, k])
    assert report
    assert [check.name for check in report.checks][-2:] == ["Variable", "k"]
    assert (v.numpy(), k.numpy()) == (2.0, 3.0)
    assert np.array_equal(tf.random.normal([2]).numpy(), want[0])
    assert (np.random.rand(), random.random()) == want[1:]


def test_variables_come_back_after_an_exception():
    v = tf.Variable([2.0])

    def op(x):
        if v.numpy() != 2.0:
            raise RuntimeError("moved")
        return x * v

    assert "moved" in str(check_gradient(op, np.float32([1, 2]), variables=[v]))
    assert v.numpy() == 2.0


def test_same_seed_gives_the_same_report():
    op = op_with(tf.square, lambda dy, x: x * dy)
    assert str(check_gradient(op, X, seed=3)) == str(check_gradient(op, X, seed=3))
    assert str(check_gradient(op, X, seed=3)) != str(check_gradient(op, X, seed=4))


def test_vjp_gives_inputs_then_variables_and_none_for_integers():
    v = tf.Variable(3.0)
    dx, di, dv = vjp(
        lambda x, i: v * tf.gather(x, i),
        [tf.constant([1.0, 2.0]), tf.constant([1])],
        tf.constant([10.0]),
        [v],
    )
    assert dx.numpy().tolist() == [0, 30]
    assert di is None
    assert dv.numpy() == 20


def test_error_bar_of_slope_covers_the_error():
    for x in np.linspace(-3, 3, 25):
        derivative, bar = slope(lambda t, x=x: np.tanh(x + t), 1e-2)
        assert abs(derivative - (1 - np.tanh(x) ** 2)) <= bar
