"""Each layer: serialization, the gradient after reload, `fit`, mixed precision, bad input."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import datasets, layers
from course_utils.gradients import vjp

#: A layer with options that differ from the defaults, and a bad option with the words of its error.
LAYERS = {
    "CustomSquareLayer": (
        lambda **kw: layers.CustomSquareLayer(bound=0.5, **kw),
        {"bound": -1.0},
        "bound is -1.0",
    ),
    "ClipGradient": (lambda **kw: layers.ClipGradient(0.3, **kw), {"bound": 0}, "bound is 0"),
    "ClipGradientByNorm": (
        lambda **kw: layers.ClipGradientByNorm(0.3, axis=(-1,), **kw),
        {"bound": "1"},
        "bound is '1'",
    ),
    "ScaleGradient": (lambda **kw: layers.ScaleGradient(0.1, **kw), {"factor": np.inf}, "factor is inf"),
    "GradientReversal": (
        lambda **kw: layers.GradientReversal(0.4, **kw),
        {"strength": -1},
        "strength is -1: give a finite number of 0 or more",
    ),
    "FixedPointLayer": (  # more of it in test_implicit.py
        lambda **kw: layers.FixedPointLayer(
            3, contraction=0.5, kernel_initializer=keras.initializers.GlorotUniform(seed=5), **kw
        ),
        {"units": 2, "contraction": 1},
        "contraction is 1",
    ),
    "LSQDense": (
        lambda **kw: layers.LSQDense(
            3, bits=3, activation="tanh", kernel_initializer=keras.initializers.GlorotUniform(seed=4), **kw
        ),
        {"units": 2, "bits": 1},
        "bits is 1",
    ),
    "QuantizeLayer": (
        lambda **kw: layers.QuantizeLayer(bits=3, step=0.5, window=1.5, **kw),
        {"bits": 1},
        "bits is 1",
    ),
    "PACT": (lambda **kw: layers.PACT(bits=3, bound=0.8, **kw), {"bound": 0}, "bound is 0"),
    "GradientProbe": (
        lambda **kw: layers.GradientProbe(measure="max", **kw),
        {"measure": "sum"},
        "measure is 'sum'",
    ),
    "SpikingLayer": (
        lambda **kw: layers.SpikingLayer(decay=0.8, threshold=0.5, slope=2.0, **kw),
        {"slope": 0},
        "slope is 0",
    ),
    "VectorQuantizer": (
        lambda **kw: layers.VectorQuantizer(
            5, commitment=0.5, codebook_initializer=keras.initializers.RandomNormal(seed=6), **kw
        ),
        {"codes": 0},
        "codes is 0",
    ),
}


def gradient(model, x):
    """Give the gradient for a random upstream gradient that is the same each time."""
    y = model(x)
    dy = tf.constant(np.random.default_rng(3).standard_normal(y.shape), y.dtype)
    return vjp(model, [x], dy)[0].numpy()


@pytest.fixture
def x():
    return np.random.default_rng(2).standard_normal((6, 4)).astype("float32")


@pytest.mark.parametrize("name", LAYERS)
class TestEveryLayer:
    def test_is_registered_under_the_package(self, name):
        assert keras.saving.get_registered_name(getattr(layers, name)) == f"course_utils>{name}"

    def test_config_makes_the_same_layer(self, name, x):
        layer = LAYERS[name][0](name="mine")
        twin = type(layer).from_config(layer.get_config())
        assert twin.get_config() == layer.get_config()
        np.testing.assert_array_equal(gradient(twin, x), gradient(layer, x))

    def test_gradient_survives_a_saved_file(self, name, x, tmp_path):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), LAYERS[name][0]()])
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(gradient(again, x), gradient(model, x))

    def test_layer_before_it_learns_in_fit(self, name, x):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), LAYERS[name][0]()])
        before = model.layers[0].kernel.numpy()
        model.compile("sgd", "mse")
        model.fit(x, np.ones((6, 3)), verbose=0)
        assert np.isfinite(model.layers[0].kernel.numpy()).all()
        assert (model.layers[0].kernel.numpy() != before).any()

    @pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16", "float64"])
    def test_keeps_the_compute_dtype(self, name, x, policy):
        layer = LAYERS[name][0](dtype=policy)
        x = tf.cast(x, layer.compute_dtype)
        assert layer(x).dtype == layer.compute_dtype
        assert gradient(layer, x).dtype.name == layer.compute_dtype

    def test_symbolic_shape_is_the_real_one(self, name, x):
        layer = LAYERS[name][0]()
        assert layer(keras.Input((4,))).shape == (None, *layer(x).shape[1:])
        assert layer.compute_output_shape((6, 4)) == tuple(layer(x).shape)

    def test_refuses_a_bad_option(self, name):
        _, options, words = LAYERS[name]
        with pytest.raises(ValueError, match=words):
            getattr(layers, name)(**options)


def test_every_layer_is_in_the_table():
    public = {n for n, c in vars(layers).items() if isinstance(c, type) and issubclass(c, keras.layers.Layer)}
    assert public == set(LAYERS)


def test_square_layer_clips_by_its_bound(x):
    dy = np.random.default_rng(3).standard_normal(x.shape)
    for bound in (0.5, 3.0):
        want = dy * np.clip(2 * x, -bound, bound)
        np.testing.assert_allclose(gradient(layers.CustomSquareLayer(bound), x), want, rtol=1e-5)


@pytest.mark.parametrize("bound", ["1", None, [1.0]])
def test_square_layer_wants_a_number(bound):
    with pytest.raises(ValueError, match="give a positive number"):
        layers.CustomSquareLayer(bound)


@pytest.mark.parametrize(
    ("layer", "backward"),
    [
        (layers.ClipGradient(0.3), lambda dy: np.clip(dy, -0.3, 0.3)),
        (layers.ClipGradientByNorm(0.3), lambda dy: dy * 0.3 / np.linalg.norm(dy)),
        (
            layers.ClipGradientByNorm(0.3, axis=-1),
            lambda dy: dy * np.minimum(1, 0.3 / np.linalg.norm(dy, axis=-1, keepdims=True)),
        ),
        (layers.ScaleGradient(-0.1), lambda dy: -0.1 * dy),
        (layers.GradientReversal(0.4), lambda dy: -0.4 * dy),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_layer_gives_inputs_back_and_reshapes_the_gradient(layer, backward, x):
    dy = np.random.default_rng(3).standard_normal(x.shape)
    np.testing.assert_array_equal(layer(x), x)
    np.testing.assert_allclose(gradient(layer, x), backward(dy), rtol=1e-5)


class TestGradientReversal:
    def test_strength_is_a_weight_that_nobody_trains(self, x):
        layer = layers.GradientReversal(0.5)
        layer(x)
        assert layer.trainable_weights == []
        assert [w.path.split("/")[-1] for w in layer.non_trainable_weights] == ["strength"]

    @pytest.mark.parametrize("jit", [False, True])
    def test_a_schedule_reaches_a_model_that_is_traced(self, x, jit):
        layer, traces = layers.GradientReversal(1.0), []

        @tf.function(jit_compile=jit)
        def traced(x):
            traces.append(1)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x)
            return tape.gradient(y, x)[0, 0]

        first = float(traced(tf.constant(x)))
        layer.strength.assign(0.25)
        assert (first, float(traced(tf.constant(x))), len(traces)) == (-1.0, -0.25, 1)

    def test_changed_strength_is_saved_with_the_weights(self, x, tmp_path):
        model = keras.Sequential([keras.Input((4,)), layers.GradientReversal(1.0)])
        model.layers[0].strength.assign(0.25)
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        assert float(again.layers[0].strength) == 0.25
        np.testing.assert_array_equal(gradient(again, x), gradient(model, x))


class TestLSQDense:
    @pytest.fixture
    def built(self):
        """Give a layer for 16 features and the data of a linear map with the step 0.37."""
        x, y, _ = datasets.linear_on_grid()
        layer = layers.LSQDense(1, bits=3, use_bias=False)
        layer.build((None, 16))
        return layer, tf.constant(x), y

    def test_outputs_come_from_the_levels_of_the_kernel(self, x):
        layer = LAYERS["LSQDense"][0]()
        layer.build((6, 4))
        step, kernel = 0.21, np.random.default_rng(5).standard_normal((4, 3))
        layer.step.assign(step)
        layer.kernel.assign(kernel)
        layer.bias.assign(np.arange(3.0))
        want = np.tanh(x @ (step * np.clip(np.round(kernel / step), -4, 3)) + np.arange(3.0))
        np.testing.assert_allclose(layer(x), want, rtol=1e-4, atol=1e-5)

    def test_kernel_and_step_get_the_paper_s_gradients(self, built):
        layer, x, _ = built
        layer.step.assign(0.1)
        with tf.GradientTape() as tape:
            y = layer(x)
        dy = tf.constant(np.random.default_rng(6).standard_normal(y.shape), y.dtype)
        dkernel, dstep = tape.gradient(y, [layer.kernel.value, layer.step.value], output_gradients=dy)
        upstream, ratio = x.numpy().T @ dy.numpy(), layer.kernel.numpy() / 0.1
        inside = (ratio > -4) & (ratio < 3)
        assert 0 < inside.sum() < inside.size
        np.testing.assert_allclose(dkernel, upstream * inside, rtol=1e-4, atol=1e-4)
        local = np.where(inside, np.round(ratio) - ratio, np.clip(ratio, -4, 3))
        np.testing.assert_allclose(dstep, (upstream * local).sum() / np.sqrt(16 * 3), rtol=1e-3)

    def test_starts_at_the_paper_s_step_and_again_on_reset(self, built):
        layer, *_ = built
        for _ in range(2):
            want = 2 * np.abs(layer.kernel.numpy()).mean() / np.sqrt(3)
            np.testing.assert_allclose(layer.step.numpy(), want, rtol=1e-6)
            layer.kernel.assign(5 * layer.kernel)
            layer.reset_step()

    def test_finds_the_step_in_fit(self, built):
        layer, x, y = built
        layer.kernel.assign(np.linalg.lstsq(x.numpy(), y, rcond=None)[0])
        layer.reset_step()
        before = float(layer.step)
        model = keras.Sequential([keras.Input((16,)), layer])
        keras.utils.set_random_seed(0)
        model.compile(keras.optimizers.Adam(0.01), "mse")
        model.fit(x, y, epochs=25, verbose=0)
        assert before > 0.8
        assert abs(float(layer.step) - 0.37) < 0.03

    def test_training_keeps_the_step_positive(self, built):
        layer, *_ = built
        keras.optimizers.SGD(1.0).apply([tf.constant(100.0)], [layer.step])
        assert float(layer.step) == pytest.approx(1e-6)

    def test_first_call_inside_a_graph(self, x):
        layer = LAYERS["LSQDense"][0]()
        assert tf.function(lambda x: layer(x))(x).shape == (6, 3)
        assert float(layer.step) > 0

    def test_mixed_precision_keeps_kernel_and_step_in_float32(self, x):
        layer = LAYERS["LSQDense"][0](dtype="mixed_float16")
        with tf.GradientTape() as tape:
            y = layer(tf.cast(x, tf.float16))
        gradients = tape.gradient(y, [layer.kernel.value, layer.step.value])
        assert [g.dtype for g in gradients] == [tf.float32, tf.float32]

    def test_refuses_units_that_are_no_number(self):
        with pytest.raises(ValueError, match=r"units is 2.0: give an integer of 1 or more"):
            layers.LSQDense(2.0)


def test_quantize_layer_uses_all_its_options(x):
    dy = np.random.default_rng(3).standard_normal(x.shape)
    for bits, step, window in ((2, 0.5, 1.0), (3, 0.25, 2.0)):
        low, high = -(2 ** (bits - 1)) * step, (2 ** (bits - 1) - 1) * step
        layer = layers.QuantizeLayer(bits, step, window)
        np.testing.assert_allclose(layer(x), np.clip(np.rint(x / step) * step, low, high))
        passed = (x >= low * window) & (x <= high * window)
        np.testing.assert_allclose(gradient(layer, x), dy * passed, rtol=1e-5)


def test_plain_quantize_layer_survives_its_config():
    layer = layers.QuantizeLayer(window=np.inf)
    assert type(layer).from_config(layer.get_config()).window == np.inf


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bits": 2.5}, "bits is 2.5: give an integer from 2 to 16"),
        ({"step": 0}, "step is 0: give a positive number"),
        ({"step": "1"}, "step is '1': give a positive number"),
        ({"window": -1.0}, "window is -1.0: give a positive number"),
    ],
)
def test_quantize_layer_refuses_options(options, words):
    with pytest.raises(ValueError, match=words):
        layers.QuantizeLayer(**options)


def test_probe_holds_the_size_of_the_last_gradient_in_fit():
    probe = layers.GradientProbe("max")
    dense = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)  # it changes nothing either
    model = keras.Sequential([keras.Input((1,)), dense, probe])
    model.compile("sgd", "mse")
    model.fit(np.array([[1.0], [2.0]], "float32"), np.array([[0.0], [-4.0]], "float32"), verbose=0)
    assert float(probe.upstream) == 6.0  # mean of two squares: (prediction - target), largest 2 + 4
    assert probe.trainable_variables == []


def test_clipped_square_is_an_activation_that_comes_back(x, tmp_path):
    assert keras.saving.get_registered_name(layers.clipped_square) == "course_utils>clipped_square"
    dense = keras.layers.Dense(3, activation=layers.clipped_square)
    model = keras.Sequential([keras.Input((4,)), dense])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(gradient(again, x), gradient(model, x))
    dy = np.random.default_rng(3).standard_normal(x.shape)
    want = dy * np.clip(2 * x, -1, 1)
    np.testing.assert_allclose(gradient(layers.clipped_square, x), want, rtol=1e-5)
