"""What the exact ops promise beyond the table of test_ops.py."""

import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops
from tests.test_ops import MODES, OPS, run


class TestSquareWithClippedGrad:
    def test_bound_may_be_a_tensor_that_changes_without_a_new_trace(self):
        bound, traces = tf.Variable(1.0, trainable=False), []

        @tf.function
        def gradient(x):
            traces.append(1)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = ops.square_with_clipped_grad(x, bound)
            return tape.gradient(y, x)

        x = tf.constant([3.0])
        before = float(gradient(x)[0])
        bound.assign(2.0)
        assert (before, float(gradient(x)[0]), len(traces)) == (1.0, 2.0, 1)

    def test_bound_is_no_float32_in_float64(self):
        x = tf.constant(3.0, tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ops.square_with_clipped_grad(x, 0.1)
        assert tape.gradient(y, x).numpy() == 0.1

    def test_bound_may_be_a_trainable_variable_which_gets_no_gradient(self):
        x, bound = tf.constant(3.0), tf.Variable(2.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = ops.square_with_clipped_grad(x, bound)
        dx, dbound = tape.gradient(y, [x, bound])
        assert (float(dx), dbound) == (2.0, None)

    def test_takes_the_sparse_upstream_gradient_of_a_gather(self):
        x = tf.constant([[3.0], [0.25]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.gather(ops.square_with_clipped_grad(x), [1, 1])
        np.testing.assert_allclose(tape.gradient(y, x), [[0.0], [1.0]])

    @pytest.mark.parametrize("bound", [0, -1.0, float("nan")])
    def test_refuses_a_bound_that_is_not_positive(self, bound):
        with pytest.raises(ValueError, match=r"bound is .*: give a positive number"):
            ops.square_with_clipped_grad(tf.constant(1.0), bound)

    def test_refuses_a_bound_that_is_no_scalar(self):
        with pytest.raises(ValueError, match=r"bound has shape \(2,\): give a scalar"):
            ops.square_with_clipped_grad(tf.constant(1.0), tf.constant([1.0, 2.0]))

    def test_refuses_integers(self):
        with pytest.raises(TypeError, match="x has dtype int32, which has no gradient"):
            ops.square_with_clipped_grad(tf.constant(1))


class TestSafeNorm:
    @pytest.mark.parametrize("mode", MODES)
    def test_gradient_is_zero_at_zero_and_right_beside_it(self, mode):
        x, dy = tf.constant([[0.0, 0.0], [3.0, 4.0]]), tf.constant([[5.0, 0.0], [-5.0, 0.0]])
        y, dx = run(OPS["safe_norm"][0], x, dy, mode)
        np.testing.assert_allclose(y, [[0.0, 0.0], [5.0, 5.0]])
        np.testing.assert_allclose(dx, [[0.0, 0.0], [-3.0, -4.0]], rtol=1e-6)

    @pytest.mark.parametrize(("dtype", "size"), [("float16", 3e4), ("float32", 1e30), ("float32", 1e-30)])
    def test_squares_neither_overflow_nor_underflow(self, dtype, size):
        x = tf.constant([[0.6 * size, -0.8 * size]], dtype)
        y, dx = run(lambda x: ops.safe_norm(x, keepdims=True), x, tf.ones((1, 1), dtype), "eager")
        np.testing.assert_allclose(np.asarray(y, np.float64), [[size]], rtol=2e-3)
        np.testing.assert_allclose(np.asarray(dx, np.float64), [[0.6, -0.8]], rtol=2e-3)

    @pytest.mark.parametrize("xla", [False, True])
    def test_second_derivative(self, xla):
        @tf.function(jit_compile=xla)
        def row_of_hessian(x, dy):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = ops.safe_norm(x)
                dx = tape.gradient(y, x)
            return outer.gradient(dx, x, output_gradients=dy)

        x, dy = tf.constant([[0.0, 0.0], [3.0, 4.0]], tf.float64), tf.constant([[1.0, 0.0]] * 2, tf.float64)
        np.testing.assert_allclose(row_of_hessian(x, dy), [[0, 0], [0.128, -0.096]], rtol=1e-12)

    def test_second_derivative_of_a_traced_op(self):
        x = tf.constant([[0.0, 0.0], [3.0, 4.0]], tf.float64)
        traced = tf.function(lambda x: ops.safe_norm(x))
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = traced(x)
            dx = tape.gradient(y, x)[:, 0]
        np.testing.assert_allclose(outer.gradient(dx, x), [[0, 0], [0.128, -0.096]], rtol=1e-12)

    @pytest.mark.parametrize("axis", [0, 1, -2, (0, 2), None])
    @pytest.mark.parametrize("keepdims", [True, False])
    def test_axes_are_those_of_numpy(self, axis, keepdims):
        x = np.random.default_rng(5).standard_normal((2, 3, 4))
        want = np.sqrt((x**2).sum(axis=axis, keepdims=keepdims))
        got = ops.safe_norm(x, axis, keepdims)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want)

    def test_norm_of_nothing_is_zero(self):
        np.testing.assert_array_equal(ops.safe_norm(tf.zeros((2, 0))), [0.0, 0.0])

    def test_refuses_an_axis_that_is_not_there(self):
        with pytest.raises(ValueError, match="axis is 2, and x has 2 axes"):
            ops.safe_norm(tf.ones((2, 2)), axis=2)
        with pytest.raises(ValueError, match="axis is -1, and x has 0 axes"):
            ops.safe_norm(tf.constant(3.0))

    def test_refuses_integers(self):
        with pytest.raises(TypeError, match="x has dtype int32, which has no gradient"):
            ops.safe_norm(tf.constant([1]))
