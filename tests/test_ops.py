"""Each op: forward, gradient against an independent NumPy formula, dtypes, modes, batch sizes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops


def one_hot(x):
    """Give 1 at the largest element of each row, else 0."""
    return np.eye(x.shape[-1])[x.argmax(-1)]


def softmax_gradient(dy, x, temperature):
    """Give the gradient of a softmax by its whole Jacobian, row by row."""
    s = np.exp(x / temperature)
    s /= s.sum(-1, keepdims=True)
    jacobian = (np.einsum("bi,ij->bij", s, np.eye(x.shape[-1])) - np.einsum("bi,bj->bij", s, s)) / temperature
    return np.einsum("bi,bij->bj", dy, jacobian)


def gumbel_noise(shape):
    """Give the noise of the seed that the table uses."""
    uniform = tf.random.stateless_uniform(shape, [3, 4], alg="philox").numpy().astype("float64")
    return -np.log(-np.log(uniform))


#: Where `record_upstream` writes: a graph must find its variable when it runs.
RECORD = tf.Variable(0.0, trainable=False)
#: The codes of `vector_quantize_with_identity_grad`.
CODEBOOK = np.array([[0.5, 0.0, -0.5], [-1.0, 0.25, 0.0], [0.25, 1.0, 1.0]])
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
    "lsq_quantize": (
        lambda x: ops.lsq_quantize(x, 0.25, bits=3),
        lambda x: 0.25 * np.clip(np.round(x / 0.25), -4, 3),
        lambda dy, x: dy * ((x / 0.25 > -4) & (x / 0.25 < 3)),
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
    "swish_from_input": (
        ops.swish_from_input,
        lambda x: x / (1 + np.exp(-x)),
        lambda dy, x: dy * (1 + np.exp(-x) * (1 + x)) / (1 + np.exp(-x)) ** 2,
    ),
    "leaky_relu_from_output": (
        lambda x: ops.leaky_relu_from_output(x, 0.25),
        lambda x: np.where(x > 0, x, 0.25 * x),
        lambda dy, x: np.where(x > 0, dy, 0.25 * dy),
    ),
    "fixed_point": (  # more of it in test_implicit.py
        lambda x: ops.fixed_point(lambda z, x: 0.25 * z[:, ::-1] + x, x, x),
        lambda x: (x + 0.25 * x[:, ::-1]) / (1 - 0.25**2),
        lambda dy, x: (dy + 0.25 * dy[:, ::-1]) / (1 - 0.25**2),
    ),
    "check_upstream": (ops.check_upstream, lambda x: x, lambda dy, x: dy),
    "record_upstream": (
        lambda x: ops.record_upstream(x, RECORD, "max"),
        lambda x: x,
        lambda dy, x: dy,
    ),
    "spike_with_surrogate_grad": (
        lambda x: ops.spike_with_surrogate_grad(x, 2.5),
        lambda x: (x > 0) * 1.0,
        lambda dy, x: dy / (1 + 2.5 * abs(x)) ** 2,
    ),
    "one_hot_with_softmax_grad": (
        lambda x: ops.one_hot_with_softmax_grad(x, 1.5),
        one_hot,
        lambda dy, x: softmax_gradient(dy, x, 1.5),
    ),
    "gumbel_softmax_straight_through": (
        lambda x: ops.gumbel_softmax_straight_through(x, 1.5, seed=[3, 4]),
        lambda x: one_hot(x + gumbel_noise(x.shape)),
        lambda dy, x: softmax_gradient(dy, x + gumbel_noise(x.shape), 1.5),
    ),
    "vector_quantize_with_identity_grad": (
        lambda x: ops.vector_quantize_with_identity_grad(x, CODEBOOK)[0],
        lambda x: CODEBOOK[np.linalg.norm(x[:, None] - CODEBOOK, axis=-1).argmin(-1)],
        lambda dy, x: dy,
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
    public = {n for n, f in vars(ops).items() if callable(f) and f.__module__.startswith(ops.__name__)}
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


def gradient_by_mode(op, x, dy, mode):
    """Give the gradient of an op in a mode of `MODES`, or with a tape around a `tf.function`."""
    if mode != "outer tape":
        return run(op, x, dy, mode)[1]
    graph = tf.function(lambda x: op(x))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = graph(x)
    return tape.gradient(y, x, output_gradients=dy)


class TestCheckUpstream:
    @pytest.mark.parametrize("mode", ["eager", "graph", "outer tape"])
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_raises_with_the_message(self, mode, bad):
        dy = tf.constant([[1.0, bad]])
        with pytest.raises(tf.errors.InvalidArgumentError, match="after the encoder"):
            gradient_by_mode(lambda x: ops.check_upstream(x, "after the encoder"), tf.ones((1, 2)), dy, mode)

    def test_refuses_integers(self):
        with pytest.raises(TypeError, match="x has dtype int32"):
            ops.check_upstream(tf.constant(1))


class TestRecordUpstream:
    @pytest.mark.parametrize("mode", [*MODES, "outer tape"])
    @pytest.mark.parametrize(("measure", "want"), [("norm", 5.0), ("max", 4.0)])
    def test_records_in_every_mode(self, mode, measure, want):
        record = tf.Variable(-1.0, trainable=False)
        dy = tf.constant([[3.0, -4.0]])
        gradient_by_mode(lambda x: ops.record_upstream(x, record, measure), tf.ones((1, 2)), dy, mode)
        assert float(record) == want

    @pytest.mark.parametrize("measure", ["norm", "max"])
    def test_records_zero_for_an_empty_batch(self, measure):
        record, empty = tf.Variable(-1.0, trainable=False), tf.zeros((0, 2))
        gradient_by_mode(lambda x: ops.record_upstream(x, record, measure), empty, empty, "eager")
        assert float(record) == 0.0

    def test_norm_of_float16_does_not_overflow(self):
        record, dy = tf.Variable(0.0, trainable=False), tf.constant([[3e4, 4e4]], tf.float16)
        gradient_by_mode(lambda x: ops.record_upstream(x, record), tf.ones_like(dy), dy, "eager")
        assert float(record) == pytest.approx(5e4, rel=1e-3)

    def test_takes_the_sparse_upstream_gradient_of_a_gather(self):
        x, record = tf.constant([[3.0], [1.0]]), tf.Variable(0.0, trainable=False)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.gather(ops.record_upstream(x, record, "max"), [1, 1])
        np.testing.assert_allclose(tape.gradient(y, x), [[0.0], [2.0]])
        assert float(record) == 2.0

    def test_refuses_another_measure(self):
        with pytest.raises(ValueError, match="measure is 'sum': give"):
            ops.record_upstream(tf.ones(2), RECORD, "sum")

    def test_refuses_a_trainable_variable(self):
        with pytest.raises(ValueError, match="record is trainable"):
            ops.record_upstream(tf.ones(2), tf.Variable(0.0))
