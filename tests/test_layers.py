"""Each layer: serialization, the gradient after reload, `fit`, mixed precision, bad input."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import layers

#: A layer with options that differ from the defaults, and a bad option with the words of its error.
LAYERS = {
    "CustomSquareLayer": (
        lambda **kw: layers.CustomSquareLayer(bound=0.5, **kw),
        {"bound": -1.0},
        "bound is -1.0",
    ),
}


def gradient(model, x):
    """Give the gradient for a random upstream gradient that is the same each time."""
    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = model(x)
    dy = tf.constant(np.random.default_rng(3).standard_normal(y.shape), y.dtype)
    return tape.gradient(y, x, output_gradients=dy).numpy()


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
