"""Each op: forward, gradient against an independent NumPy formula, dtypes, modes, batch sizes."""

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
    "round_with_identity_grad": (
        lambda x: 0.25 * ops.round_with_identity_grad(4 * x),
        lambda x: np.rint(4 * x) / 4,
        lambda dy, x: dy,
    ),
    "sign_with_clipped_grad": (
        lambda x: ops.sign_with_clipped_grad(x, 0.5),
        lambda x: np.where(x >= 0, 1.0, -1.0),
        lambda dy, x: dy * (abs(x) <= 0.5),
    ),
    "quantize": (
        lambda x: ops.quantize(x, bits=2, step=0.5, window=1.5),
        lambda x: np.clip(np.rint(x / 0.5), -2, 1) * 0.5,
        lambda dy, x: dy * ((x >= -1.5) & (x <= 0.75)),
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
