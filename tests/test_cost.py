"""Saved bytes of functions whose needs are known, ratios of time on a clock of the test, and the lean ops."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import cost, ops
from course_utils.cost import saved_bytes, time_ratio

X = tf.constant(np.random.default_rng(0).standard_normal((50, 4)), tf.float32)
ONE = 50 * 4 * 4  # bytes of X
KERNEL = tf.Variable(np.random.default_rng(1).standard_normal((4, 4)), dtype=tf.float32)


def swish(x):
    return x * tf.sigmoid(x)


def in_chain(op, between=tf.identity):
    """Apply an op three times."""

    def chain(x):
        for _ in range(3):
            x = op(between(x))
        return x

    return chain


@pytest.mark.parametrize("graph", [False, True])
class TestSavedBytes:
    @pytest.mark.parametrize(
        ("f", "tensors"),
        [
            (tf.identity, 0),
            (tf.exp, 1),  # keeps its output
            (tf.sin, 1),  # keeps its input
            (swish, 2),  # x and the sigmoid
            (in_chain(swish), 6),
            (in_chain(tf.nn.relu), 3),
            (lambda x: tf.sin(tf.identity(x)) * tf.sin(x), 3),  # x and its copy are one memory
        ],
    )
    def test_counts_what_the_derivative_needs(self, f, tensors, graph):
        assert saved_bytes(f, X, graph=graph) == tensors * ONE

    def test_weights_do_not_count(self, graph):
        assert saved_bytes(lambda x: x @ KERNEL, X, graph=graph) == ONE
        dense = keras.layers.Dense(4)
        dense.build((None, 4))
        assert saved_bytes(dense, X, graph=graph) == ONE

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
    def test_sizes_follow_the_dtype(self, dtype, graph):
        x = tf.cast(X, dtype)
        assert saved_bytes(swish, x, graph=graph) == 2 * 200 * x.dtype.size

    def test_several_inputs_and_an_empty_batch(self, graph):
        assert saved_bytes(tf.multiply, X, X[::-1], graph=graph) == 2 * ONE
        assert saved_bytes(swish, X[:0], graph=graph) == 0

    def test_refuses_what_it_cannot_count(self, graph):
        with pytest.raises(TypeError, match="f is 3: give a function"):
            saved_bytes(3, X, graph=graph)
        with pytest.raises(TypeError, match="input 1 has dtype int32: give one that has a gradient"):
            saved_bytes(tf.multiply, X, tf.constant(1), graph=graph)

    def test_recomputation_keeps_the_ends(self, graph):
        kept = saved_bytes(tf.recompute_grad(in_chain(swish)), X, graph=graph)
        assert kept == (1 if graph else 2) * ONE  # an eager custom gradient holds its output too

    def test_swish_from_input_keeps_one_tensor_a_layer(self, graph):
        kept = saved_bytes(in_chain(ops.swish_from_input), X, graph=graph)
        assert kept == (3 if graph else 4) * ONE

    def test_leaky_relu_shares_its_output_with_the_next_layer(self, graph):
        def net(op):
            return in_chain(op, between=lambda x: x @ KERNEL)

        lean, native = (
            saved_bytes(net(op), X, graph=graph) // ONE  # the slope has a few bytes too
            for op in (ops.leaky_relu_from_output, tf.nn.leaky_relu)
        )
        assert (lean, native) == (4, 6)


def test_refuses_a_shape_that_only_the_run_tells():
    with pytest.raises(ValueError, match="known at run time only: count eagerly"):
        saved_bytes(lambda x: tf.sin(tf.boolean_mask(x, x[:, 0] > 0)), X, graph=True)


def test_leaves_the_garbage_collector_as_it_was():
    def broken(x):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        saved_bytes(broken, X)
    assert gc.isenabled()
    gc.disable()
    saved_bytes(tf.sin, X)
    assert not gc.isenabled()
    gc.enable()


class TestTimeRatio:
    """The clock is the test's own: one tick for each unit of work."""

    @pytest.fixture
    def work(self, monkeypatch):
        clock, log = [0.0], []

        def timed(statement, number):
            start = clock[0]
            for _ in range(number):
                statement()
            return clock[0] - start

        def make(name, ticks):
            ticks = iter(ticks)

            def f(x):
                log.append(name + x)
                clock[0] += next(ticks)

            return f

        monkeypatch.setattr(cost.timeit, "timeit", timed)
        return make, log

    def test_quartiles_of_the_ratios_without_the_first_call(self, work):
        make, _ = work
        f, baseline = make("f", [100, 2, 4, 6, 8, 10]), make("b", [100, 2, 2, 2, 2, 2])
        assert time_ratio(f, baseline, "", calls=1, rounds=5) == (2.0, 3.0, 4.0)

    def test_takes_turns(self, work):
        make, log = work
        time_ratio(make("f", [1] * 9), make("b", [1] * 9), "(x)", calls=2, rounds=2)
        assert log[2:] == ["b(x)", "b(x)", "f(x)", "f(x)"] * 2

    def test_refuses_no_calls(self):
        with pytest.raises(ValueError, match="calls is 0: give 1 or more"):
            time_ratio(len, len, "", calls=0)
        with pytest.raises(ValueError, match="rounds is 0: give 1 or more"):
            time_ratio(len, len, "", rounds=0)


class TestLeanOps:
    @pytest.mark.parametrize("graph", [False, True])
    def test_second_derivative_of_swish(self, graph):
        def second(x):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = ops.swish_from_input(x)
                dx = tape.gradient(y, x)
            return outer.gradient(dx, x)

        x = tf.constant([-2.0, 0.0, 0.5], tf.float64)
        s = 1 / (1 + np.exp(-x.numpy()))
        want = s * (1 - s) * (2 + x.numpy() * (1 - 2 * s))
        got = (tf.function(second) if graph else second)(x)
        np.testing.assert_allclose(got, want, rtol=1e-12)

    def test_leaky_relu_agrees_with_tensorflow_at_the_edges(self):
        x = tf.constant([-np.inf, -2e-38, -0.0, 0.0, 2e-38, np.inf])
        for op in (ops.leaky_relu_from_output, tf.nn.leaky_relu):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = op(x)
            want = np.float32([0.2, 0.2, 0.2, 0.2, 1.0, 1.0])
            np.testing.assert_array_equal(tape.gradient(y, x), want)

    def test_no_gradient_reaches_the_slope(self):
        slope = tf.Variable(0.5)
        with tf.GradientTape() as tape:
            y = ops.leaky_relu_from_output(X, slope)
        assert tape.gradient(y, slope) is None

    @pytest.mark.parametrize("slope", [0, -0.1, float("nan")])
    def test_refuses_a_slope_that_hides_the_sign(self, slope):
        with pytest.raises(ValueError, match=r"slope is .*: give a positive number"):
            ops.leaky_relu_from_output(X, slope)

    @pytest.mark.parametrize("op", [ops.swish_from_input, ops.leaky_relu_from_output])
    def test_refuses_integers(self, op):
        with pytest.raises(TypeError, match="x has dtype int32, which has no gradient"):
            op(tf.constant([1]))
