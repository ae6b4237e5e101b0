"""What the ops that reshape the backward signal promise beyond the table of test_ops.py."""

import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops
from tests.test_ops import run


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
