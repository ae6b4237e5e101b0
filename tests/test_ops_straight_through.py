"""What the straight-through estimators promise beyond the table of test_ops.py."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops
from tests.test_ops import MODES, RTOL


class TestLSQQuantize:
    def step_gradient(self, x, dy, step, low, high):
        """Give the gradient of the step for each element, as the paper's equation 3 has it."""
        ratio = x / step
        inside = np.round(ratio) - ratio
        return dy * np.where(ratio <= -low, -low, np.where(ratio >= high, high, inside))

    def run(self, x, dy, step, mode, **options):
        def gradient(x, dy, step):
            with tf.GradientTape() as tape:
                tape.watch(step)
                y = ops.lsq_quantize(x, step, **options)
            return tape.gradient(y, step, output_gradients=dy)

        if MODES[mode] is None:
            return gradient(x, dy, step)
        batch = tf.TensorSpec([None, *x.shape[1:]], x.dtype)
        signature = [batch, batch, tf.TensorSpec(step.shape, step.dtype)]
        return tf.function(gradient, input_signature=signature, jit_compile=MODES[mode])(x, dy, step)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    @pytest.mark.parametrize("batch", [0, 1, 7])
    @pytest.mark.parametrize("shape", [(), (3,), (1, 3)])
    def test_gradient_of_the_step(self, shape, batch, dtype, mode):
        rng = np.random.default_rng([12, batch])
        x, dy = (tf.constant(rng.standard_normal((batch, 3)), dtype) for _ in range(2))
        step = np.array([0.25, 0.5, 0.125])[: 3 if shape else 1].reshape(shape)
        step = tf.constant(step, "float32" if dtype == "float16" else dtype)  # short steps are not advised
        got = self.run(x, dy, step, mode, bits=3, grad_scale=0.5)
        x, dy = np.asarray(x, np.float64), np.asarray(dy, np.float64)
        elements = 0.5 * self.step_gradient(x, dy, np.asarray(step, np.float64), 4, 3)
        want = elements.sum(axis=0 if shape else None).reshape(shape)
        assert (got.dtype, got.shape) == (step.dtype, step.shape)
        np.testing.assert_allclose(got, want, rtol=5 * RTOL[dtype], atol=5 * RTOL[dtype])

    def test_step_of_float32_sums_what_float16_cannot_hold(self):
        x = tf.fill((70_000, 1), tf.constant(9.0, tf.float16))
        step = tf.constant(1.0)
        assert float(self.run(x, tf.ones_like(x), step, "eager", bits=2)) == 70_000

    def test_agrees_with_autodiff_around_a_rounding_op(self):
        @tf.custom_gradient
        def round_with_identity_grad(x):
            return tf.round(x), lambda dy: dy

        def composed(x, step):
            return step * round_with_identity_grad(tf.clip_by_value(x / step, -4.0, 3.0))

        rng = np.random.default_rng(13)
        x, dy = (tf.constant(rng.standard_normal((50, 3)), tf.float64) for _ in range(2))
        results = []
        for op in (composed, lambda x, step: ops.lsq_quantize(x, step, bits=3)):
            step = tf.constant(0.3, tf.float64)
            with tf.GradientTape() as tape:
                tape.watch([x, step])
                y = op(x, step)
            results.append([y, *tape.gradient(y, [x, step], output_gradients=dy)])
        for one, other in zip(*results, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)

    def test_unsigned_levels_start_at_zero(self):
        x = tf.constant([-1.0, 0.4, 0.6, 9.0])
        assert ops.lsq_quantize(x, 1.0, 1, signed=False).numpy().tolist() == [0, 0, 1, 1]
        want = self.step_gradient(x.numpy(), 1.0, 1.0, 0, 1).sum()
        got = self.run(x, tf.ones(4), tf.constant(1.0), "eager", bits=1, signed=False)
        np.testing.assert_allclose(got, want, rtol=1e-6)

    @pytest.mark.parametrize("kind", [tf.Variable, keras.Variable])
    def test_variables_get_their_gradient_in_every_mode(self, kind):
        x, step = kind([0.3, 0.9, 8.0]), kind(0.5)
        sources = [getattr(v, "value", v) if kind is keras.Variable else v for v in (x, step)]

        def gradients():
            with tf.GradientTape() as tape:
                y = ops.lsq_quantize(x, step, bits=3)
            return tape.gradient(y, sources)

        for run in (gradients, tf.function(gradients)):
            dx, dstep = run()
            np.testing.assert_allclose(dx, [1, 1, 0])
            np.testing.assert_allclose(dstep, 3.6, rtol=1e-6)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((1.0, 1), "bits is 1: give an integer of 2 or more"),
            ((1.0, 2.5), "bits is 2.5: give an integer"),
            ((0.0,), "step is 0.0: give a positive number"),
            (
                (np.ones(2, "float32"),),
                r"step has shape \(2,\), which does not broadcast to the shape \(4, 3\)",
            ),
            ((np.ones((5, 4, 3), "float32"),), r"step has shape \(5, 4, 3\), which does not broadcast"),
        ],
    )
    def test_refuses(self, arguments, words):
        with pytest.raises(ValueError, match=words):
            ops.lsq_quantize(tf.ones((4, 3)), *arguments)

    def test_refuses_other_bad_arguments(self):
        with pytest.raises(ValueError, match="grad_scale is 0: give a positive number"):
            ops.lsq_quantize(tf.ones(3), 1.0, grad_scale=0)
        with pytest.raises(TypeError, match="step has dtype int32, which has no gradient"):
            ops.lsq_quantize(tf.ones(3), tf.constant(1))


class TestStraightThrough:
    X = (-np.inf, -2.0, -1.0, -0.0, 0.0, 0.4, 1.0, 2.0, np.inf)

    def gradient(self, op, dy=1.0):
        x = tf.constant(self.X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = op(x)
        return y.numpy().tolist(), tape.gradient(y, x, output_gradients=tf.fill(x.shape, dy)).numpy().tolist()

    def test_sign_of_zero_is_one_and_of_nan_nan(self):
        y, _ = self.gradient(ops.sign_with_clipped_grad)
        assert y == [-1, -1, -1, 1, 1, 1, 1, 1, 1]
        assert np.isnan(ops.sign_with_clipped_grad(tf.constant(np.nan)))

    def test_windows_include_their_ends_and_stop_an_infinite_gradient(self):
        inside = [0, 0, np.inf, np.inf, np.inf, np.inf, np.inf, 0, 0]
        assert self.gradient(ops.sign_with_clipped_grad, np.inf)[1] == inside
        # four levels, from -2 to 1 in steps of 1
        two_bits = [0, np.inf, np.inf, np.inf, np.inf, np.inf, np.inf, 0, 0]
        assert self.gradient(lambda x: ops.quantize(x, 2, 1.0), np.inf)[1] == two_bits

    @pytest.mark.parametrize(
        "op",
        [
            ops.round_with_identity_grad,
            lambda x: ops.sign_with_clipped_grad(x, np.inf),
            lambda x: ops.quantize(x, window=np.inf),
        ],
    )
    def test_plain_estimator_passes_everything(self, op):
        assert self.gradient(op, 3.0)[1] == [3.0] * len(self.X)

    @pytest.mark.parametrize("bits", [2, 3, 8])
    def test_quantize_has_as_many_levels_as_its_bits_allow(self, bits):
        y = ops.quantize(tf.linspace(-300.0, 300.0, 4801), bits, 0.25).numpy()
        n = 2 ** (bits - 1)
        np.testing.assert_array_equal(np.unique(y), 0.25 * np.arange(-n, n))

    def test_quantize_gives_a_level_again_as_it_is(self):
        y = ops.quantize(tf.constant(np.linspace(-1, 1, 101), tf.float32), 4, 0.1)
        np.testing.assert_array_equal(ops.quantize(y, 4, 0.1), y)

    def test_step_and_window_may_be_tensors(self):
        step, window = tf.Variable(0.5), tf.Variable(1.0)
        traced = tf.function(lambda x: ops.quantize(x, 3, step, window))
        x = tf.constant([0.7])
        before = float(traced(x)[0])
        step.assign(0.4)
        assert (before, float(traced(x)[0])) == (0.5, np.float32(0.8))

    def test_a_step_keeps_the_precision_of_float64(self):
        assert float(ops.quantize(tf.constant(0.12, tf.float64), step=0.1)) == 0.1

    @pytest.mark.parametrize("bits", [1, 17, 4.0, "4", None])
    def test_quantize_refuses_bits(self, bits):
        with pytest.raises(ValueError, match=r"bits is .*: give an integer from 2 to 16"):
            ops.quantize(tf.constant(1.0), bits)

    @pytest.mark.parametrize(
        ("call", "words"),
        [
            (lambda x: ops.quantize(x, step=0.0), "step is 0.0: give a positive number"),
            (lambda x: ops.quantize(x, window=-1), "window is -1: give a positive number"),
            (lambda x: ops.quantize(x, step=tf.ones(2)), "step has shape .2,.: give a scalar"),
            (lambda x: ops.sign_with_clipped_grad(x, 0), "bound is 0: give a positive number"),
        ],
    )
    def test_refuses_options(self, call, words):
        with pytest.raises(ValueError, match=words):
            call(tf.constant(1.0))

    @pytest.mark.parametrize("op", [ops.round_with_identity_grad, ops.sign_with_clipped_grad, ops.quantize])
    def test_refuses_integers_and_takes_sparse_upstream_gradients(self, op):
        with pytest.raises(TypeError, match="x has dtype int32, which has no gradient"):
            op(tf.constant(1))
        x = tf.constant([[3.0], [0.25]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.gather(op(x), [1, 1])
        np.testing.assert_allclose(tf.convert_to_tensor(tape.gradient(y, x)), [[0.0], [2.0]])
