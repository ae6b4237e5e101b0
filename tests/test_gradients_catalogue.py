"""Every kind of broken gradient is caught with its cause, and no correct one is; ten seeds each."""

import numpy as np
import pytest
import tensorflow as tf

from course_utils.gradients import EDGE_POINTS, check_gradient

SEEDS = range(10)
BROKEN, CORRECT = [], []


def custom(forward, gradient):
    """Make an op of its forward pass and `gradient(dy, *inputs)`."""

    @tf.custom_gradient
    def op(*inputs):
        return forward(*inputs), lambda *dy: gradient(*dy, *inputs)

    return op


def broken(phrase, **options):
    """Register a function of a generator that returns the op and its inputs."""

    def register(make):
        BROKEN.append(pytest.param(make, phrase, options, id=make.__name__))
        return make

    return register


def correct(make):
    CORRECT.append(pytest.param(make, id=make.__name__))
    return make


def unary(phrase, gradient, name, forward=tf.square, x=lambda rng: rng.standard_normal(12), **options):
    """Register a broken elementwise op by the expression of its gradient."""

    def make(rng):
        return custom(forward, gradient), x(rng)

    make.__name__ = name
    broken(phrase, **options)(make)


def matrices(rng):
    return rng.standard_normal((4, 3)), rng.standard_normal((3, 5))


unary("sign flipped", lambda dy, x: -2 * x * dy, "wrong_sign")
unary("2 missing", lambda dy, x: x * dy, "factor_2_missing")
unary("3 too many", lambda dy, x: 6 * x * dy, "factor_3_too_many")
unary("constant factor: 1.0001", lambda dy, x: 2.0002 * x * dy, "constant_off_by_1e-4")
unary("no gradient", lambda dy, x: tf.zeros_like(x), "zero_grads")
unary("missing gradient (None)", lambda dy, x: None, "none_for_the_only_input")
unary("the op gives", lambda dy, x: dy * tf.sin(x), "product_rule_term_missing", lambda x: x * tf.sin(x))
unary("the op gives", lambda dy, x: dy * (1 - x**2), "uses_x_for_y", tf.tanh)
unary("passed through unchanged", lambda dy, x: dy, "local_derivative_missing")
unary("state the intent with surrogate=", lambda dy, x: 3 * dy, "piecewise_constant", tf.round)
unary("the op gives", lambda dy, x: dy * tf.where(np.arange(10_000) == 77, 0.0, 2 * x), "one_of_1e4_zero",
      x=lambda rng: rng.standard_normal(10_000))  # fmt: skip
unary("[77]", lambda dy, x: dy * tf.where(np.arange(10_000) == 77, 2.02 * x, 2 * x),
      "one_of_1e4_off_1_percent", x=lambda rng: rng.standard_normal(10_000))  # fmt: skip
unary("only negative inputs are wrong", lambda dy, x: dy * tf.where(x > 0, 2 * x, 1), "negative_x_only")
unary("only negative inputs are wrong", lambda dy, x: dy * tf.where(x > 0, 1.0, 0.5 * tf.exp(x)),
      "elu_wrong_branch_at_edge_points", tf.nn.elu, lambda rng: EDGE_POINTS)  # fmt: skip
unary("the op gives", lambda dy, x: dy * tf.where(tf.abs(x) > 3, 0.0, 2 * x), "tails_cut",
      x=lambda rng: 2 * rng.standard_normal(1000))  # fmt: skip
unary("upstream gradient is ignored", lambda dy, x: 2 * x, "ignores_dy")
unary(
    "upstream gradient is ignored",
    lambda dy, x: 2 * x,
    "ignores_dy_of_a_scalar_loss",
    lambda x: tf.reduce_sum(x * x),
)
unary("upstream gradient is squared", lambda dy, x: 2 * x * dy**2, "dy_squared")
unary("upstream gradient is cubed", lambda dy, x: 2 * x * dy**3, "dy_cubed")
unary("absolute value of the upstream", lambda dy, x: 2 * x * tf.abs(dy), "dy_abs")
unary("upstream gradient is clipped", lambda dy, x: 2 * x * tf.clip_by_value(dy, -0.5, 1), "dy_clipped")
unary(
    "upstream gradient is clipped",
    lambda dy, x: 2 * x * tf.clip_by_norm(dy, 50.0),
    "dy_norm_clipped_far_away",
)
unary("of one sign are dropped", lambda dy, x: 2 * x * tf.nn.relu(dy), "dy_negative_dropped")
unary("sign or the direction", lambda dy, x: 2 * x * dy / tf.norm(dy), "dy_normalized")
unary("Loss scaling and batch size", lambda dy, x: 2 * x * (dy + 10), "dy_shifted")
unary("only the sum of the upstream", lambda dy, x: 2 * x * tf.reduce_sum(dy), "dy_summed")
unary("Loss scaling and batch size", lambda dy, x: 2 * x * tf.tanh(dy), "dy_squashed")
unary("reversed along axis 0", lambda dy, x: tf.reverse(2 * x * dy, [0]), "reversed_order")
unary("wrong dtype", lambda dy, x: tf.cast(2 * x * dy, tf.float64), "float64_for_float32",
      x=lambda rng: rng.standard_normal(8).astype("float32"))  # fmt: skip
unary("in float16", lambda dy, x: dy * tf.exp(x) / (1 + tf.exp(x)), "overflow_in_float16", tf.nn.softplus,
      lambda rng: np.array([1, 12 + rng.random()], "float16"))  # fmt: skip
unary("overflow", lambda dy, x: dy * tf.exp(x) / (1 + tf.exp(x)), "log1pexp_naive_at_100", tf.nn.softplus,
      lambda rng: EDGE_POINTS)  # fmt: skip
unary("0/0", lambda dy, x: dy * x / tf.abs(x), "nan_at_0", tf.abs, lambda rng: EDGE_POINTS)
unary("[6] = 0 the op gives nan", lambda dy, x: dy / x * x, "nan_at_0_beside_an_infinite_output",
      lambda x: tf.where(x < -50, tf.math.log(x), x), lambda rng: EDGE_POINTS)  # fmt: skip
unary("0/0", lambda dy, x: dy * x / tf.abs(x), "nan_at_0_beside_rounding", lambda x: tf.abs(x) + 1e4,
      lambda rng: EDGE_POINTS.astype("float64"))  # fmt: skip
unary("2 too many", lambda dy, x: dy / tf.sqrt(x - 1), "beside_an_infinite_slope",
      lambda x: tf.sqrt(x - 1), lambda rng: np.r_[1, 2 + rng.random(9)])  # fmt: skip
unary(
    "reshape(gradient", lambda dy, x: tf.reshape(2 * x * dy, [-1]), "flat", x=lambda rng: rng.random((3, 4))
)
unary(
    "reshape(gradient", lambda dy, x: tf.squeeze(2 * x * dy, 1), "n_for_n_1", x=lambda rng: rng.random((5, 1))
)
unary("return the shape of the input", lambda dy, x: tf.reduce_sum(2 * x * dy, 0, keepdims=True),
      "reduced_too_far", x=lambda rng: rng.random((3, 4)))  # fmt: skip
unary("the same all along axis 0", lambda dy, x: tf.reduce_mean(2 * x * dy, 0, keepdims=True) + 0 * x,
      "batch_averaged", x=lambda rng: rng.random((6, 3)))  # fmt: skip
unary("6 missing (6 is the size of axis 0", lambda dy, x: 2 * x * dy / 6, "batch_mean_for_sum",
      x=lambda rng: rng.random((6, 3)))  # fmt: skip
unary("5 missing (5 is the size of axis 0 of the output", lambda dy, b: tf.reduce_mean(dy, 0),
      "batch_mean_for_sum_of_a_bias", lambda b: tf.zeros((5, 1), b.dtype) + b,
      lambda rng: rng.random(3))  # fmt: skip
unary("6 too many", lambda dy, x: 2 * x * dy, "missing_batch_mean", lambda x: tf.reduce_mean(x**2, 0),
      lambda rng: rng.random((6, 3)))  # fmt: skip
unary("the op gives", lambda dy, x: 2 * x * dy[:, tf.newaxis], "reduced_over_the_wrong_axis",
      lambda x: tf.reduce_sum(x**2, 0), lambda rng: rng.random((4, 4)))  # fmt: skip
unary(
    "order 2", lambda dy, x: dy * tf.stop_gradient(3 * x**2), "second_order_stopped", lambda x: x**3, order=2
)
unary(
    "order 2",
    lambda dy, x: tf.stop_gradient(dy) * 3 * x**2,
    "second_order_dy_stopped",
    lambda x: x**3,
    order=2,
)
unary("raises", lambda dy, x: tf.matmul(dy, x), "backward_raises")
unary("one gradient for each positional argument", lambda dy, x: (dy, dy), "too_many_gradients")
unary("order 2", lambda dy, x: dy * second_order_wrong(x), "second_order_wrong_rule", lambda x: x**3, order=2)


@tf.custom_gradient
def second_order_wrong(x):
    return 3 * x**2, lambda dy: dy * 3 * x


@broken("reversed along axis 0")
def dy_index_reversed(rng):
    return custom(tf.identity, lambda dy, x: tf.reverse(dy, [0])), rng.standard_normal(9)


@broken("swapped with the gradient of")
def swapped_inputs(rng):
    return custom(lambda a, b: a * b, lambda dy, a, b: (dy * a, dy * b)), *rng.standard_normal((2, 7))


@broken("missing gradient (None)")
def none_for_one_input(rng):
    return custom(lambda a, b: a * b, lambda dy, a, b: (dy * b, None)), *rng.standard_normal((2, 7))


@broken("output 1 is not used")
def second_output_ignored(rng):
    return custom(lambda x: (x * x, x**3), lambda dy, dz, x: 2 * x * dy), rng.standard_normal(6)


@broken("transposed")
def matmul_dw_transposed_shape(rng):
    def gradient(dy, x, w):
        return dy @ tf.transpose(w), tf.transpose(dy) @ x

    return custom(tf.matmul, gradient), *matrices(rng)


@broken("transposed")
def matmul_dw_transposed_values(rng):
    return custom(
        tf.matmul, lambda dy, x, w: (dy @ tf.transpose(w), tf.transpose(dy) @ x)
    ), *rng.standard_normal((2, 4, 4))


@broken("the op gives")
def matmul_dx_w_not_transposed(rng):
    return custom(tf.matmul, lambda dy, x, w: (dy @ w, tf.transpose(x) @ dy)), *rng.standard_normal((2, 4, 4))


@broken("not summed over the broadcast axis")
def broadcast_not_summed(rng):
    return custom(lambda x, b: x + b, lambda dy, x, b: (dy, dy)), rng.random((4, 3)), rng.random(3)


@broken("not summed over the broadcast axis")
def scalar_parameter_not_summed(rng):
    return custom(lambda x, a: x * a, lambda dy, x, a: (dy * a, dy * x)), rng.random((4, 3)), rng.random(())


@broken("5 missing")
def bias_mean_for_sum(rng):
    return (
        custom(lambda x, b: x + b, lambda dy, x, b: (dy, tf.reduce_mean(dy, 0))),
        rng.random((5, 3)),
        rng.random(3),
    )


@broken("keeps a value from an earlier call")
def stateful_counter(rng):
    calls = []
    return custom(
        tf.square, lambda dy, x: 2 * x * dy * (1 + len(calls)) * (calls.append(1) is None)
    ), rng.random(5)


@broken("backward pass is random")
def noisy_backward(rng):
    return custom(tf.square, lambda dy, x: 2 * x * dy * (1 + 1e-3 * rng.standard_normal(8))), rng.random(8)


@broken("two outputs")
def noisy_forward(rng):
    return custom(lambda x: x**2 + 1e-3 * rng.standard_normal(8), lambda dy, x: x * dy), rng.random(8)


@broken("stale closure")
def stale_from_the_first_call(rng):
    seen = []

    def gradient(dy, x):
        seen.append(x)
        return 2 * tf.cast(seen[0], x.dtype) * dy

    return custom(tf.square, gradient), rng.standard_normal(6)


@broken("stale closure")
def stale_from_the_author(rng):
    x = rng.standard_normal(6)
    return custom(tf.square, lambda dy, _: 2 * x * dy), x


@broken("stale closure")
def stale_from_half_the_inputs(rng):
    x = rng.standard_normal(6)
    first = x / 2
    return custom(tf.square, lambda dy, _: 2 * first * dy), x


@broken("2 too many")
def variable_gradient_counted_twice(rng):
    return variable_op(rng, lambda dy, x, w: 2 * tf.reduce_sum(dy * x, 0))


@broken("missing gradient (None)")
def variable_captured_as_a_tensor(rng):
    w = tf.Variable(rng.random(3))
    return (lambda x: x * tf.stop_gradient(w)), rng.random((4, 3)), [w]


def variable_op(rng, dw):
    w = tf.Variable(rng.random(3))

    @tf.custom_gradient
    def op(x):
        return x * w, lambda dy, variables=None: (dy * w, [dw(dy, x, w)])

    return op, rng.random((4, 3)), [w]


@broken("2 too many")
def wrong_for_a_variable_beside_an_infinite_output(rng):
    w = tf.Variable(rng.random(3))

    @tf.custom_gradient
    def op(x):
        y = tf.math.log(x) * w
        return y, lambda dy, variables=None: (dy * w / x, [2 * dy * tf.math.log(x)])

    return op, np.array([0, 2.0, 3.0]), [w]


@broken("variables")
def variables_keyword_missing(rng):
    w = tf.Variable(rng.random(3))
    return custom(lambda x: x * w, lambda dy, x: dy * w), rng.random((4, 3))


@broken("x[0]")
def one_wrong_among_elements_near_a_kink(rng):
    x = np.concatenate([[2.0], 1e-7 * rng.standard_normal(4), rng.standard_normal(1000)])
    wrong = np.arange(1005) == 0
    return (
        lambda x: custom(tf.nn.relu, lambda dy, x: dy * tf.where(wrong, 0.5, tf.cast(x > 0, x.dtype)))(x)
    ), x


@broken("conjugate")
def complex_conjugate_missing(rng):
    return custom(tf.square, lambda dy, z: 2 * z * dy), rng.standard_normal(4) + 1j * rng.standard_normal(4)


def stock(name, op, *inputs, kwargs=None):
    def make(rng):
        return op, *(x(rng) if callable(x) else x for x in inputs)

    make.__name__ = name
    correct(make)


def normal(*shape, dtype="float64", scale=1.0):
    return lambda rng: (scale * rng.standard_normal(shape)).astype(dtype)


stock("square", tf.square, normal(12, dtype="float32"))
stock("square_of_1e4", tf.square, normal(10_000))
stock("matmul", tf.matmul, normal(4, 3, dtype="float32"), normal(3, 5, dtype="float32"))
stock("dense_128", tf.matmul, normal(64, 128, dtype="float32"), normal(128, 128, dtype="float32"))
stock("softplus_at_edges", tf.nn.softplus, EDGE_POINTS)
stock(
    "sum_with_dense_jacobian", lambda x: tf.cumsum(tf.exp(x)) * tf.reduce_sum(x), normal(50, dtype="float32")
)
stock("large_x", tf.square, normal(9, scale=1e6))
stock("tiny_x", lambda x: tf.math.log(tf.abs(x)), normal(9, scale=1e-6))
stock("sqrt_of_small_x", tf.sqrt, lambda rng: 1e-5 + 1e-3 * rng.random(9))
stock("steep_tanh", lambda x: tf.tanh(50 * x), normal(40, dtype="float32"))
stock("sharp_sigmoid", lambda x: tf.sigmoid(100 * x), normal(40))
stock("big_offset", lambda x: x**2 + 1e4, normal(1000, dtype="float32"))
stock("relu_away_from_0", tf.nn.relu, lambda rng: rng.choice([-1, 1], 9) * (1 + rng.random(9)))
stock("relu_at_edges", tf.nn.relu, EDGE_POINTS)
stock("relu_at_zeros", tf.nn.relu, np.zeros((8, 8)))
stock("relu_1e5", tf.nn.relu, normal(100_000))
stock(
    "relu_within_the_step",
    tf.nn.relu,
    lambda rng: np.r_[1e-7 * rng.standard_normal(4), rng.standard_normal(2000)],
)
stock("saturated", tf.tanh, lambda rng: 60 + rng.random(4))
stock("cubic", lambda x: x**3, normal(20, dtype="float32"))
stock("exp_20", tf.exp, lambda rng: 20 + rng.random(6))
stock("logsumexp", tf.reduce_logsumexp, normal(30, dtype="float32"))
stock("softmax", tf.nn.softmax, normal(4, 7, dtype="float16"))
stock("max_with_ties", lambda x: tf.reduce_max(x, 0), np.ones((3, 2)))
stock("sign_jumps", tf.sign, EDGE_POINTS)
stock("gather", lambda x, i: tf.gather(x, i), normal(5, 2), [0, 0, 3])
stock("complex", lambda z: z * tf.exp(z), lambda rng: rng.standard_normal(3) + 1j * rng.standard_normal(3))
stock(
    "abs_of_complex",
    tf.abs,
    lambda rng: (rng.standard_normal(3) + 1j * rng.standard_normal(3)).astype("complex64"),
)
stock("two_outputs", lambda x: {"a": tf.sin(x), "n": tf.argmax(x), "b": [x**2]}, normal(6, dtype="float32"))
stock("nested_inputs", lambda p, x: x @ p["w"] + p["b"][0],
      lambda rng: {"b": [rng.random(2)], "w": rng.random((3, 2))}, normal(4, 3))  # fmt: skip
stock(
    "casts_to_float32", lambda x: tf.cast(tf.exp(tf.cast(x, tf.float32)), x.dtype), normal(8, dtype="float32")
)
stock("float32_constant", lambda x: x * tf.constant(3.0), normal(8, dtype="float32"))
stock("bfloat16", tf.tanh, normal(8, dtype="bfloat16"))
stock("fast_sine", lambda x: tf.sin(1e5 * x), normal(8, dtype="float32"))
stock("infinite_output", custom(lambda x: tf.math.log1p(tf.exp(x)), lambda dy, x: dy * tf.sigmoid(x)),
      np.array([1.0, 800.0]))  # fmt: skip
stock("small_gradients_in_float16", tf.reduce_mean, normal(20_000, dtype="float16"))
stock("conv", lambda x, k: tf.nn.conv2d(x, k, 1, "SAME"), normal(2, 6, 6, 2), normal(3, 3, 2, 3))
stock("cholesky", lambda a: tf.linalg.cholesky(a @ tf.transpose(a) + tf.eye(4, dtype=a.dtype)), normal(4, 4))
stock("scalar", lambda x: x * x, 3.0)
stock("norm_times_x", lambda x: x * tf.norm(x), normal(10))
stock("saturated_in_float32", tf.sigmoid, np.array([-100, -60, 1, 60, 100], "float32"))
stock("constant_in_exact_arithmetic", lambda x: tf.reduce_sum(tf.nn.softmax(x)), normal(6, dtype="float32"))
stock("log_outside_its_domain", tf.math.log, EDGE_POINTS)
stock("asin_outside_its_domain", tf.asin, EDGE_POINTS)
stock("sum_outside_its_domain", lambda x: tf.reduce_sum(tf.math.log(x)), EDGE_POINTS)
stock("cube_root_at_0", lambda x: tf.sign(x) * tf.abs(x) ** (1 / 3), EDGE_POINTS)


@correct
def variable_outside_the_domain(rng):
    w = tf.Variable(rng.random(3).astype("float32"))
    return lambda x: tf.math.log(x) * w, tf.constant([-1.0, 0.0, 3.0]), [w]


stock("kinks_of_two_outputs", tf.nn.crelu, EDGE_POINTS)
stock("cancellation", lambda x: (x + 1e4) - 1e4, normal(20, dtype="float32"))
stock("cancellation_in_float64", lambda x: (x + 1e4) - 1e4, normal(20))


def checked(make, seed, **options):
    # The data and the directions differ from seed to seed.
    op, *inputs = make(np.random.default_rng([7, seed]))
    if inputs and isinstance(inputs[-1], list) and isinstance(inputs[-1][0], tf.Variable):
        options["variables"] = inputs.pop()
    return check_gradient(op, *inputs, seed=seed, **options)


@pytest.mark.parametrize(("make", "phrase", "options"), BROKEN)
def test_broken_gradient_is_caught_with_its_cause(make, phrase, options):
    for seed in SEEDS:
        report = checked(make, seed, **options)
        assert not report
        assert phrase in str(report.failures[0]), report


@pytest.mark.parametrize("make", CORRECT)
def test_correct_gradient_passes(make):
    for seed in SEEDS:
        report = checked(make, seed)
        assert report, report


@pytest.mark.parametrize("op", [lambda x: tf.tanh(50 * x), lambda x: tf.sigmoid(100 * x), tf.nn.softplus])
def test_correct_second_order_passes(op):
    for seed in SEEDS:
        report = check_gradient(
            op, normal(20, dtype="float32")(np.random.default_rng([7, seed])), order=2, seed=seed
        )
        assert report, report


@pytest.mark.parametrize("op", [tf.sqrt, tf.math.rsqrt, tf.math.digamma, tf.nn.crelu])
def test_second_order_outside_the_domain_is_no_fault(op):
    for seed in SEEDS[:3]:
        report = check_gradient(op, EDGE_POINTS, order=2, seed=seed)
        assert report, report


def test_rounding_is_not_held_to_be_linear():
    # The second derivative is 0. Through logarithms of dy, rounding is all that comes out.
    x = np.random.default_rng(5).normal(size=(1, 36)).astype("float32")
    for seed in SEEDS[:3]:
        report = check_gradient(tf.math.cumulative_logsumexp, x, order=2, seed=seed)
        assert report, report


def test_catalogue_is_complete():
    assert len(BROKEN) >= 44
    assert len(CORRECT) >= 25
