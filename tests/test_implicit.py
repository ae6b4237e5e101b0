"""The fixed point: its gradient against a formula and against unrolled autodiff, memory, orders, modes."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import check_gradient, layers, ops

M = np.array([0.3, 1.0, 2.0])


def kepler(m, e, **options):
    """Solve Kepler's equation `z = m + e·sin z`."""
    return ops.fixed_point(lambda z, m, e: m + e * tf.sin(z), m, m, e, **options)


def network(z, x, w):
    return tf.tanh(z @ w + x)


def gradient(f, sources, dy=None):
    with tf.GradientTape() as tape:
        tape.watch([s for s in tf.nest.flatten(sources) if not isinstance(s, tf.Variable)])
        y = f()
    return tape.gradient(y, sources, output_gradients=dy)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    x, w, dy = rng.standard_normal((4, 3)), 0.2 * rng.standard_normal((3, 3)), rng.standard_normal((4, 3))
    return tf.constant(x), tf.constant(w), tf.constant(dy)


def test_gradient_is_that_of_unrolled_autodiff(data):
    x, w, dy = data

    def unrolled():
        z = x
        for _ in range(60):
            z = network(z, x, w)
        return z

    got = gradient(lambda: ops.fixed_point(network, x, x, w), [x, w], dy)
    for g, want in zip(got, gradient(unrolled, [x, w], dy), strict=True):
        np.testing.assert_allclose(g, want, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("mode", ["eager", "graph", "xla", "traced op"])
def test_weight_read_from_outside_gets_its_gradient(data, mode):
    x, w, dy = data
    variable = tf.Variable(w)

    def solve():
        return ops.fixed_point(lambda z, x: network(z, x, variable), x, x)

    def both():
        return gradient(solve, [x, variable], dy)

    if mode == "traced op":
        traced = tf.function(lambda: solve(), autograph=False)
        got = gradient(traced, [variable], dy)
    else:
        graph = tf.function(both, autograph=False, jit_compile=mode == "xla")
        got = (both if mode == "eager" else graph)()[1:]
    (want,) = gradient(lambda: ops.fixed_point(network, x, x, w), [w], dy)
    np.testing.assert_allclose(got[0], want, rtol=1e-11, atol=1e-13)


def test_finite_differences_confirm_both_orders():
    traced = tf.function(lambda m, e: kepler(m, e), autograph=False)
    report = check_gradient(traced, M[:1], 0.3 * np.ones(()), order=2)
    assert report, str(report)


@pytest.mark.parametrize("mode", ["eager", "graph", "traced op"])
def test_second_derivative_by_m(mode):
    m, e = tf.constant(M), tf.constant(0.3, tf.float64)
    traced = tf.function(lambda m: kepler(m, e), autograph=False)

    def second(m):
        op = traced if mode == "traced op" else lambda m: kepler(m, e)
        return gradient(lambda: gradient(lambda: op(m), m), m)

    got = (tf.function(second, autograph=False) if mode == "graph" else second)(m)
    z = kepler(m, e).numpy()
    np.testing.assert_allclose(got, -0.3 * np.sin(z) / (1 - 0.3 * np.cos(z)) ** 3, rtol=1e-10)


def test_tape_keeps_as_much_for_many_steps_as_for_few():
    m, w = tf.constant(M), tf.Variable(0.5, dtype=tf.float64)

    def kept(steps):
        gc.freeze()
        with tf.GradientTape() as tape:
            tape.watch(m)
            y = ops.fixed_point(lambda z, m: m + w * tf.sin(z), m, m, tolerance=1e-300, max_steps=steps)
        new = [thing for thing in gc.get_objects() if isinstance(thing, tf.Tensor) and thing is not y]
        gc.unfreeze()
        return len(new)

    assert kept(100) == kept(3) < 6


def test_graph_keeps_nothing_of_a_step():
    graph = tf.function(lambda m: gradient(lambda: kepler(m, 0.3), m), autograph=False)
    library = graph.get_concrete_function(tf.constant(M)).graph.as_graph_def().library
    names = {node.op for function in library.function for node in function.node_def}
    assert "Sin" in names
    assert not any("TensorList" in name for name in names)


def test_max_steps_and_tolerance_end_the_loop():
    m, e = tf.constant(M), tf.constant(0.5, tf.float64)
    z = M
    for _ in range(4):
        z = M + 0.5 * np.sin(z)
    np.testing.assert_allclose(
        kepler(m, e, max_steps=3), z, rtol=1e-12
    )  # the last step can be differentiated
    coarse = kepler(m, e, tolerance=1e-2)
    error = np.max(abs(coarse - kepler(m, e)))
    assert 1e-8 < error < 1e-2


def test_jacobian_and_a_scale_of_dy_work_as_for_any_op(data):
    x, w, _ = data
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.fixed_point(network, x, x, w)
    rows = tape.jacobian(y, x)[1, :, 1]
    slope = np.diag(1 - y[1].numpy() ** 2)
    np.testing.assert_allclose(rows, np.linalg.solve(np.eye(3) - slope @ w.numpy().T, slope), rtol=1e-10)


def test_forward_mode_gives_none_and_no_wrong_number():
    m = tf.constant(M)
    with tf.autodiff.ForwardAccumulator(m, tf.ones_like(m)) as accumulator:
        y = kepler(m, 0.3)
    assert accumulator.jvp(y) is None


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"f": 3}, TypeError, "f is 3"),
        ({"start": tf.constant([1])}, TypeError, "start has dtype int32"),
        ({"f": lambda z: z[None]}, ValueError, r"f gives shape \(1, 2\) for a z of shape \(2,\)"),
        ({"f": lambda z: tf.cast(z, tf.float64)}, TypeError, "f gives dtype float64 for a z of float32"),
        ({"tolerance": 0}, ValueError, "tolerance is 0"),
        ({"max_steps": 0}, ValueError, "max_steps is 0"),
        ({"max_steps": 2.5}, ValueError, "max_steps is 2.5"),
    ],
)
def test_refuses(options, error, words):
    options = {"f": tf.cos, "start": tf.zeros(2), **options}
    with pytest.raises(error, match=words):
        ops.fixed_point(options.pop("f"), options.pop("start"), **options)


class TestFixedPointLayer:
    @pytest.fixture
    def layer(self):
        layer = layers.FixedPointLayer(5, contraction=0.6)
        layer.build((None, 3))
        rng = np.random.default_rng(4)
        layer.set_weights([rng.standard_normal(w.shape) for w in layer.get_weights()])
        return layer

    def test_result_and_gradients_are_those_of_the_loop(self, layer):
        x = tf.constant(np.random.default_rng(5).standard_normal((6, 3)), tf.float32)
        dy = tf.constant(np.random.default_rng(6).standard_normal((6, 5)), tf.float32)

        def unrolled():
            kernel, w, bias = layer.weights
            w = w * tf.minimum(1.0, 0.6 / tf.reduce_sum(tf.abs(w), axis=0))
            z = tf.zeros((6, 5))
            for _ in range(60):
                z = tf.tanh(z @ w + x @ kernel + bias)
            return z

        np.testing.assert_allclose(layer(x), unrolled(), atol=1e-5)
        sources = [x, *(weight.value for weight in layer.weights)]
        for got, want in zip(
            gradient(lambda: layer(x), sources, dy), gradient(unrolled, sources, dy), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)

    def test_residual_tells_whether_it_has_converged(self, layer):
        x = np.random.default_rng(7).standard_normal((6, 3)).astype("float32")
        assert float(layer.residual(x)) < 1e-5
        layer.max_steps = 2
        assert float(layer.residual(x)) > 1e-3

    def test_weights_of_zero_have_a_finite_gradient(self, layer):
        layer.recurrent_kernel.assign(np.zeros((5, 5)))
        got = gradient(lambda: layer(tf.ones((2, 3))), layer.recurrent_kernel.value)
        assert np.isfinite(got).all()

    @pytest.mark.parametrize(
        "options", [{"units": 0}, {"contraction": 1.0}, {"max_steps": 0}, {"tolerance": 0.0}]
    )
    def test_refuses(self, options):
        name, value = next(iter(options.items()))
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            layers.FixedPointLayer(**{"units": 3, **options})

    def test_comes_back_from_its_config(self):
        layer = layers.FixedPointLayer(3, "relu", 0.5, 1e-3, 7, keras.initializers.Zeros())
        assert layers.FixedPointLayer.from_config(layer.get_config()).get_config() == layer.get_config()
