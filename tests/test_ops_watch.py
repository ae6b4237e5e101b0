"""What the ops that watch a backward pass promise beyond the table of test_ops.py."""

import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops
from tests.test_ops import MODES, RECORD, run


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
