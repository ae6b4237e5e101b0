"""Each op: forward, gradient against an independent NumPy formula, dtypes, modes, batch sizes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops

#: op, forward and backward in NumPy, and a size of the inputs where the rule makes a difference.
OPS = {
    "square_with_clipped_grad": (
        lambda x: ops.square_with_clipped_grad(x, 1.5),
        lambda x: x * x,
        lambda dy, x: dy * np.clip(2 * x, -1.5, 1.5),
    ),
    "lsq_quantize": (
        lambda x: ops.lsq_quantize(x, 0.25, bits=3),
        lambda x: 0.25 * np.clip(np.round(x / 0.25), -4, 3),
        lambda dy, x: dy * ((x / 0.25 > -4) & (x / 0.25 < 3)),
    ),
}
#: How far the last digits of an honest computation may be off, relative to the largest value.
RTOL = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}
MODES = {"eager": None, "graph": False, "xla": True}


def run(op, x, dy, mode):
    """Give output and gradient of an op, in one of the three modes."""

    def output_and_gradient(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = op(x)
        return y, tape.gradient(y, x, output_gradients=dy)

    if MODES[mode] is None:
        return output_and_gradient(x, dy)
    spec = tf.TensorSpec([None, *x.shape[1:]], x.dtype)
    return tf.function(output_and_gradient, input_signature=[spec, spec], jit_compile=MODES[mode])(x, dy)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("batch", [0, 1, 7])
@pytest.mark.parametrize("name", OPS)
def test_output_and_gradient(name, batch, dtype, mode):
    op, forward, backward = OPS[name]
    rng = np.random.default_rng([11, batch])
    x, dy = (tf.constant(rng.standard_normal((batch, 3)), dtype) for _ in range(2))
    y, dx = run(op, x, dy, mode)
    x, dy = np.asarray(x, np.float64), np.asarray(dy, np.float64)
    for got, want in ((y, forward(x)), (dx, backward(dy, x))):
        assert got.dtype == dtype
        assert got.shape == want.shape
        largest = abs(want).max(initial=1e-30)
        np.testing.assert_allclose(
            np.asarray(got, np.float64), want, rtol=RTOL[dtype], atol=RTOL[dtype] * largest
        )


def test_every_public_op_is_in_the_table():
    public = {n for n, f in vars(ops).items() if callable(f) and f.__module__ == ops.__name__ and n[0] != "_"}
    assert public == set(OPS)


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
