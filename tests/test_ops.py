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
    "safe_norm": (  # repeated to the shape of x, since this table holds ops that keep the shape
        lambda x: ops.safe_norm(x, keepdims=True) * tf.ones_like(x),
        lambda x: np.linalg.norm(x, axis=-1, keepdims=True) * np.ones_like(x),
        lambda dy, x: dy.sum(-1, keepdims=True) * x / np.linalg.norm(x, axis=-1, keepdims=True),
    ),
    "clip_gradient": (
        lambda x: ops.clip_gradient(x, 0.3),
        lambda x: x,
        lambda dy, x: np.clip(dy, -0.3, 0.3),
    ),
    "clip_gradient_by_norm": (
        lambda x: ops.clip_gradient_by_norm(x, 0.7, axis=-1),
        lambda x: x,
        lambda dy, x: dy * np.minimum(1, 0.7 / np.linalg.norm(dy, axis=-1, keepdims=True)),
    ),
    "scale_gradient": (lambda x: ops.scale_gradient(x, 0.1), lambda x: x, lambda dy, x: 0.1 * dy),
    "reverse_gradient": (lambda x: ops.reverse_gradient(x, 0.4), lambda x: x, lambda dy, x: -0.4 * dy),
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


def gradient_of(op, dy):
    """Give the gradient of an op for the upstream gradient `dy`; what the input is makes no difference."""
    x = tf.zeros_like(dy)
    return run(op, x, dy, "eager")[1]


#: The ops that give their input back, with the name of their option and a value for it.
RESHAPERS = {
    "clip_gradient": ("bound", 0.5),
    "clip_gradient_by_norm": ("bound", 0.5),
    "scale_gradient": ("factor", 0.5),
    "reverse_gradient": ("strength", 0.5),
}


@pytest.mark.parametrize("name", RESHAPERS)
class TestEveryReshaper:
    def test_option_may_be_a_tensor_that_changes_without_a_new_trace(self, name):
        op, option, traces = getattr(ops, name), tf.Variable(0.5, trainable=False), []

        @tf.function
        def gradient(x):
            traces.append(1)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = op(x, option) * 8.0
            return tape.gradient(y, x)

        x = tf.constant([3.0])
        before = float(gradient(x)[0])
        option.assign(2.0)
        assert (float(gradient(x)[0]) / before, len(traces)) == (4.0, 1)

    def test_no_gradient_reaches_the_option(self, name):
        option, x = tf.Variable(0.5), tf.constant([3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = getattr(ops, name)(x, option)
        dx, doption = tape.gradient(y, [x, option])
        assert dx is not None
        assert doption is None

    def test_takes_the_sparse_upstream_gradient_of_a_gather(self, name):
        op, upstream = getattr(ops, name), tf.constant([[0.1, 0.2], [0.3, 0.1]])
        x = tf.ones((2, 2))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.gather(op(x, 0.35), [1, 1])
        got = tape.gradient(y, x, output_gradients=upstream)
        dense = tf.stack([tf.zeros(2), tf.reduce_sum(upstream, 0)])  # both rows belong to one row of x
        np.testing.assert_allclose(got, gradient_of(lambda x: op(x, 0.35), dense))

    def test_refuses_bad_options_and_integers(self, name):
        op, (option, value) = getattr(ops, name), RESHAPERS[name]
        with pytest.raises(ValueError, match=rf"{option} is nan: give a \w+ number"):
            op(tf.constant(1.0), float("nan"))
        with pytest.raises(ValueError, match=rf"{option} has shape \(2,\): give a scalar"):
            op(tf.constant(1.0), tf.constant([1.0, 2.0]))
        with pytest.raises(TypeError, match="x has dtype int32, which has no gradient"):
            op(tf.constant(1), value)

    def test_is_proportional_to_dy_unless_it_clips(self, name):
        dy = tf.constant([0.2, -0.9, 3.0])
        small, large = (gradient_of(lambda x: getattr(ops, name)(x, 0.5), c * dy) for c in (1.0, 1024.0))
        assert np.allclose(1024.0 * small, large) == ("clip" not in name)


class TestClipGradientByNorm:
    def test_one_norm_for_all_one_for_each_row_or_for_several_axes(self):
        dy = np.random.default_rng(4).standard_normal((3, 4, 5))
        for axis in (None, -1, 0, (1, 2), [0, 2]):
            along = tuple(axis) if isinstance(axis, list) else axis
            norm = np.sqrt((dy**2).sum(axis=along, keepdims=True))
            got = gradient_of(lambda x, axis=axis: ops.clip_gradient_by_norm(x, 1.5, axis), tf.constant(dy))
            np.testing.assert_allclose(got, dy * np.minimum(1, 1.5 / norm))

    def test_zero_stays_zero(self):
        assert not gradient_of(ops.clip_gradient_by_norm, tf.zeros((2, 3))).numpy().any()

    def test_large_half_precision_gradients_do_not_vanish(self):
        got = gradient_of(ops.clip_gradient_by_norm, tf.constant([3e4, 4e4], tf.float16))
        np.testing.assert_allclose(np.asarray(got, np.float64), [0.6, 0.8], rtol=2e-3)

    @pytest.mark.parametrize("axis", [2, [0, -3]])
    def test_refuses_an_axis_that_x_has_not(self, axis):
        with pytest.raises(ValueError, match=r"x has 2 axes: give None, or numbers from -2 to 1"):
            ops.clip_gradient_by_norm(tf.ones((2, 3)), 1.0, axis)


def test_strength_below_zero_is_refused():
    with pytest.raises(ValueError, match="strength is -1: give a finite number of 0 or more"):
        ops.reverse_gradient(tf.constant(1.0), -1)


def test_scaling_by_zero_gives_zeros_not_none():
    assert gradient_of(lambda x: ops.scale_gradient(x, 0), tf.ones(2)).numpy().tolist() == [0.0, 0.0]
