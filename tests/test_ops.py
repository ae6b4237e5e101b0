"""Each op: forward, gradient against an independent NumPy formula, dtypes, modes, batch sizes."""

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


def output_and_gradient(op, mode, features, dtype):
    """Give the function of x and dy that gives output and gradient of an op, traced once for any batch."""

    def both(x, dy):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = op(x)
        return y, tape.gradient(y, x, output_gradients=dy)

    if MODES[mode] is None:
        return both
    spec = tf.TensorSpec([None, *features], dtype)
    return tf.function(both, input_signature=[spec, spec], jit_compile=MODES[mode])


def run(op, x, dy, mode):
    """Give output and gradient of an op, in one of the three modes."""
    return output_and_gradient(op, mode, x.shape[1:], x.dtype)(x, dy)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("name", OPS)
def test_output_and_gradient(name, dtype, mode):
    op, forward, backward = OPS[name]
    both = output_and_gradient(op, mode, [3], dtype)
    for batch in (0, 1, 7):
        rng = np.random.default_rng([11, batch])
        x, dy = (tf.constant(rng.standard_normal((batch, 3)), dtype) for _ in range(2))
        y, dx = both(x, dy)
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
