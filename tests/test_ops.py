"""Each op: forward, gradient against an independent NumPy formula, dtypes, modes, batch sizes."""

import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops

#: Where `record_upstream` writes: a graph must find its variable when it runs.
RECORD = tf.Variable(0.0, trainable=False)
#: op, forward and backward in NumPy, and a size of the inputs where the rule makes a difference.
OPS = {
    "square_with_clipped_grad": (
        lambda x: ops.square_with_clipped_grad(x, 1.5),
        lambda x: x * x,
        lambda dy, x: dy * np.clip(2 * x, -1.5, 1.5),
    ),
    "check_upstream": (ops.check_upstream, lambda x: x, lambda dy, x: dy),
    "record_upstream": (
        lambda x: ops.record_upstream(x, RECORD, "max"),
        lambda x: x,
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
