"""Ops and layers with discrete outputs: what the tables of `test_ops` and `test_layers` do not see."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import check_gradient, layers, ops
from course_utils.gradients import EDGE_POINTS, vjp


def gradient(op, x, dy):
    x = tf.convert_to_tensor(x)
    return vjp(op, [x], tf.cast(dy, x.dtype))[0]


class TestSpike:
    def test_fires_above_the_threshold_only_and_keeps_nan(self):
        y = ops.spike_with_surrogate_grad(tf.constant([-np.inf, -1e-30, 0.0, 1e-30, np.inf, np.nan]))
        np.testing.assert_array_equal(y, [0, 0, 0, 1, 1, np.nan])

    def test_is_the_declared_surrogate_at_the_edges(self):
        def surrogate(x):
            return x / (1 + 7.0 * tf.abs(x))

        assert check_gradient(
            lambda x: ops.spike_with_surrogate_grad(x, 7.0), EDGE_POINTS, surrogate=surrogate
        )

    @pytest.mark.parametrize("dtype", ["float16", "float32"])
    def test_far_away_nothing_passes_and_nothing_overflows(self, dtype):
        x = tf.constant([-6e4, 6e4], dtype)
        dx = gradient(lambda x: ops.spike_with_surrogate_grad(x, 1e3), x, [1.0, 1.0])
        np.testing.assert_allclose(np.asarray(dx, np.float64), [0.0, 0.0], atol=1e-12)

    def test_slope_may_be_a_tensor_that_changes_without_a_new_trace(self):
        traces = []

        @tf.function
        def at(slope):
            traces.append(1)
            return gradient(lambda x: ops.spike_with_surrogate_grad(x, slope), tf.constant([1.0]), [1.0])

        assert [float(at(tf.constant(s))[0]) for s in (1.0, 3.0)] == [0.25, 0.0625]
        assert len(traces) == 1

    def test_refuses(self):
        with pytest.raises(ValueError, match="slope is 0: give a positive number"):
            ops.spike_with_surrogate_grad(tf.constant(1.0), 0)
        with pytest.raises(TypeError, match="x has dtype int32"):
            ops.spike_with_surrogate_grad(tf.constant(1))


class TestGumbelSoftmax:
    def test_equal_logits_give_the_first_category(self):
        np.testing.assert_array_equal(ops.one_hot_with_softmax_grad(tf.constant([1.0, 1.0])), [1.0, 0.0])

    def test_gradient_is_that_of_a_softmax_for_any_shape(self):
        def surrogate(x):
            return tf.nn.softmax(x / 0.7)

        x = np.random.default_rng(1).standard_normal((2, 3, 4))
        assert check_gradient(lambda x: ops.one_hot_with_softmax_grad(x, 0.7), x, surrogate=surrogate)

    def test_draws_by_the_softmax(self):
        logits = np.array([1.0, 0.0, -2.0])
        p = np.exp(logits) / np.exp(logits).sum()
        draws = ops.gumbel_softmax_straight_through(tf.constant([logits] * 40000), seed=[5, 6])
        np.testing.assert_allclose(np.mean(draws, axis=0), p, atol=4 * np.sqrt(0.25 / 40000))

    def test_temperature_has_no_effect_on_the_draw(self):
        logits = tf.zeros((50, 3))
        cold, hot = (ops.gumbel_softmax_straight_through(logits, t, seed=[1, 2]) for t in (0.1, 10.0))
        np.testing.assert_array_equal(cold, hot)

    def test_one_seed_gives_one_draw_in_every_dtype_and_another_seed_another(self):
        def draw(seed, dtype="float32"):
            return ops.gumbel_softmax_straight_through(tf.zeros((50, 3), dtype), seed=seed).numpy()

        np.testing.assert_array_equal(draw([1, 2]), draw([1, 2], "float64"))
        np.testing.assert_array_equal(draw([1, 2]), draw([1, 2], "float16"))
        assert (draw([1, 2]) != draw([1, 3])).any()

    def test_without_a_seed_each_call_draws_anew_and_the_global_seed_decides(self):
        logits, runs = tf.zeros((50, 3)), []
        for _ in range(2):
            tf.random.set_seed(3)
            runs.append([ops.gumbel_softmax_straight_through(logits).numpy() for _ in range(2)])
        assert (runs[0][0] != runs[0][1]).any()
        np.testing.assert_array_equal(runs[0], runs[1])

    @pytest.mark.parametrize("op", [ops.one_hot_with_softmax_grad, ops.gumbel_softmax_straight_through])
    def test_refuses(self, op):
        with pytest.raises(ValueError, match=r"temperature is 0: give a positive number"):
            op(tf.zeros(2), 0)
        with pytest.raises(ValueError, match="logits is a scalar"):
            op(tf.constant(1.0))
        with pytest.raises(TypeError, match="logits has dtype int32"):
            op(tf.constant([1, 2]))

    def test_refuses_a_seed_that_is_no_pair(self):
        with pytest.raises(ValueError, match="seed is 3: give two integers, or None"):
            ops.gumbel_softmax_straight_through(tf.zeros(2), seed=3)


class TestVectorQuantize:
    def test_any_leading_shape(self):
        rng = np.random.default_rng(2)
        x, codebook = rng.standard_normal((2, 5, 3)), rng.standard_normal((4, 3))
        y, k = ops.vector_quantize_with_identity_grad(x, codebook)
        want = np.linalg.norm(x[:, :, None] - codebook, axis=-1).argmin(axis=-1)
        np.testing.assert_array_equal(k, want)
        np.testing.assert_array_equal(y, codebook[want])
        one, index = ops.vector_quantize_with_identity_grad(x[0, 0], codebook)
        assert (one.shape, int(index)) == ((3,), want[0, 0])

    def test_finds_the_nearest_far_from_the_origin(self):
        codebook = np.float32(5000) + np.array([[0.0], [0.25], [0.5]], "float32")
        x = np.float32(5000) + np.array([[0.0], [0.25], [0.5]], "float32")
        np.testing.assert_array_equal(ops.vector_quantize_with_identity_grad(x, codebook)[1], [0, 1, 2])

    def test_no_gradient_reaches_a_trainable_codebook(self):
        x, codebook = tf.constant([[1.0, 2.0]]), tf.Variable([[0.0, 0.0], [1.0, 1.0]])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, _ = ops.vector_quantize_with_identity_grad(x, codebook)
        dx, dcodebook = tape.gradient(y, [x, codebook])
        np.testing.assert_array_equal(dx, [[1.0, 1.0]])
        assert dcodebook is None

    @pytest.mark.parametrize("codebook", [np.ones((4, 2)), np.ones(3), np.ones((1, 4, 3))])
    def test_refuses_shapes_that_do_not_fit(self, codebook):
        with pytest.raises(ValueError, match=r"give \(\.\.\., dim\) and \(codes, dim\)"):
            ops.vector_quantize_with_identity_grad(np.ones((5, 3)), codebook)

    def test_refuses_integers(self):
        with pytest.raises(TypeError, match="codebook has dtype int"):
            ops.vector_quantize_with_identity_grad(np.ones((5, 3)), np.ones((4, 3), int))


class TestSpikingLayer:
    options: dict = {"decay": 0.8, "threshold": 0.5, "slope": 3.0}  # noqa: RUF012

    def currents(self):
        return np.random.default_rng(4).normal(0.1, 0.5, (3, 7, 2))

    def forward(self, currents):
        """Give spikes and distances from the threshold by a loop over time in NumPy."""
        u, s, spikes, distances = 0.0, 0.0, [], []
        for t in range(currents.shape[1]):
            u = 0.8 * u + currents[:, t] - 0.5 * s
            s = (u > 0.5) * 1.0
            spikes.append(s)
            distances.append(u - 0.5)
        return np.stack(spikes, 1), np.stack(distances, 1)

    def test_spikes_are_those_of_a_loop_over_time(self):
        spikes = layers.SpikingLayer(**self.options, dtype="float64")(self.currents())
        assert 0.1 < np.mean(spikes) < 0.9
        np.testing.assert_array_equal(spikes, self.forward(self.currents())[0])

    def test_gradient_is_a_loop_backward_in_time(self):
        currents = self.currents()
        dy = np.random.default_rng(5).standard_normal(currents.shape)
        local = 1 / (1 + 3.0 * abs(self.forward(currents)[1])) ** 2
        want, later = np.zeros_like(dy), 0.0
        for t in reversed(range(7)):
            later = want[:, t] = dy[:, t] * local[:, t] + 0.8 * later
        got = gradient(layers.SpikingLayer(**self.options, dtype="float64"), currents, dy)
        np.testing.assert_allclose(got, want, rtol=1e-12)

    def test_wants_a_fixed_number_of_time_steps(self):
        with pytest.raises(ValueError, match="the time axis, 1, needs a fixed length"):
            tf.function(layers.SpikingLayer()).get_concrete_function(tf.TensorSpec((3, None, 2)))

    @pytest.mark.parametrize(("name", "value"), [("decay", 1.1), ("decay", "1"), ("threshold", 0)])
    def test_refuses(self, name, value):
        with pytest.raises(ValueError, match=f"{name} is {value!r}: give a"):
            layers.SpikingLayer(**{name: value})


class TestVectorQuantizer:
    @pytest.fixture
    def case(self):
        """Give a layer with four codes, vectors, and the nearest code of each."""
        rng = np.random.default_rng(6)
        x, codebook = rng.standard_normal((6, 3)), rng.standard_normal((4, 3))
        layer = layers.VectorQuantizer(4, commitment=0.5, dtype="float64")
        layer.build((None, 3))
        layer.codebook.assign(codebook)
        return layer, x, codebook, np.linalg.norm(x[:, None] - codebook, axis=-1).argmin(axis=-1)

    def test_each_loss_moves_one_side(self, case):
        layer, x, codebook, nearest = case
        x = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            layer(x)
            loss = sum(layer.losses)
        dx, dcodes = tape.gradient(loss, [x, layer.codebook.value])
        pull = 2 * (x.numpy() - codebook[nearest]) / 18
        np.testing.assert_allclose(loss, 1.5 * np.mean((x.numpy() - codebook[nearest]) ** 2), rtol=1e-6)
        np.testing.assert_allclose(dx, 0.5 * pull, rtol=1e-6)
        np.testing.assert_allclose(tf.convert_to_tensor(dcodes), -(np.eye(4)[nearest].T @ pull), rtol=1e-6)

    def test_gives_the_nearest_codes_and_their_indices(self, case):
        layer, x, codebook, nearest = case
        np.testing.assert_array_equal(layer(x), codebook[nearest])
        np.testing.assert_array_equal(layer.indices(x), nearest)

    def test_codes_move_to_their_vectors_in_fit(self, case):
        layer, x, codebook, nearest = case
        model = keras.Sequential([keras.Input((3,)), layer])
        model.compile(keras.optimizers.SGD(4.0), "mse")
        model.fit(x, codebook[nearest], batch_size=6, epochs=15, verbose=0)
        chosen, codes = layer.indices(x).numpy(), layer.codebook.numpy()
        for k in range(4):
            mine = x[chosen == k].mean(axis=0) if k in chosen else codebook[k]  # an unused code stays
            np.testing.assert_allclose(codes[k], mine, atol=0.02)

    def test_mixed_precision_keeps_the_codes_in_float32(self):
        layer = layers.VectorQuantizer(4, dtype="mixed_float16")
        x = tf.ones((2, 3), tf.float16)
        with tf.GradientTape() as tape:
            layer(x)
            loss = sum(layer.losses)
        assert (layer.codebook.dtype, loss.dtype) == ("float32", tf.float32)
        assert tape.gradient(loss, layer.codebook.value).dtype == tf.float32

    @pytest.mark.parametrize(("name", "value"), [("codes", 2.0), ("commitment", -1)])
    def test_refuses(self, name, value):
        with pytest.raises(ValueError, match=f"{name} is {value!r}: give a"):
            layers.VectorQuantizer(**{"codes": 4, name: value})
