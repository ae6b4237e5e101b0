"""Half-repairs of cases 10 to 12."""

import keras
import tensorflow as tf


def total(values):
    return tf.reduce_sum(values, axis=0)


class Affine(keras.layers.Layer):
    """The patient's weights; each half-repair gives `call` from `op(layer, x)`."""

    def build(self, shape):
        self.slope = self.add_weight(shape=shape[-1:], initializer="ones", name="slope")
        self.offset = self.add_weight(shape=shape[-1:], initializer="zeros", name="offset")


def reads_weights(grad):
    """Make a layer whose op reads the weights; `grad(x, slope)` gives its grad."""

    class Reads(Affine):
        def call(self, x):
            @tf.custom_gradient
            def op(x):
                return self.slope * x + self.offset, grad(x, self.slope)

            return op(x)

    return Reads


def takes_weights(convert, gradients):
    """Make a layer whose op takes the weights as arguments, after `convert`."""

    @tf.custom_gradient
    def op(x, slope, offset):
        return slope * x + offset, lambda dy: gradients(dy, x, slope)

    class Takes(Affine):
        def call(self, x):
            return op(x, convert(self.slope), convert(self.offset))

    return Takes


class Captures(Affine):
    def call(self, x):
        slope, offset = tf.convert_to_tensor(self.slope), tf.convert_to_tensor(self.offset)
        return tf.custom_gradient(lambda x: (slope * x + offset, lambda dy: dy))(x)


def with_variables(answer):
    """Make a grad that takes `variables` and returns `answer(dy, x)`."""
    return lambda x, slope: lambda dy, variables=None: answer(dy, x)


def full(dy, x, slope):
    return dy, total(dy * x), total(dy)


# --- temperature ----------------------------------------------------------------------------------

register = keras.saving.register_keras_serializable(package="wrong13")


@tf.custom_gradient
def sharpen(x, t):
    y = x * tf.exp(-t)
    return y, lambda dy: (dy * tf.exp(-t), -tf.reduce_sum(dy * y))


class Temperature(keras.layers.Layer):
    def call(self, inputs):
        return sharpen(inputs, tf.convert_to_tensor(self.t))


@register
class RawVariable(Temperature):
    def build(self, input_shape):
        self.t = tf.Variable(0.0)


@register
class NotTrainable(Temperature):
    def build(self, input_shape):
        self.t = self.add_weight(shape=(), initializer="zeros", trainable=False, name="t")


@register
class SavedByHand(RawVariable):
    def save_own_variables(self, store):
        store["t"] = self.t.numpy()

    def load_own_variables(self, store):
        self.t.assign(store["t"][()])


@register
class StartsAtOne(Temperature):
    def build(self, input_shape):
        self.t = self.add_weight(shape=(), initializer="ones", name="t")


# --- make_layer -----------------------------------------------------------------------------------


def make_soft_step(slope):
    @tf.custom_gradient
    def soft_step(x):
        s = tf.sigmoid(slope * x)
        return tf.cast(x > 0, x.dtype), lambda dy: slope * dy * s * (1.0 - s)

    return soft_step


@register
def step_of_two(x):
    return make_soft_step(2.0)(x)


@register
def plain_step(x):
    return tf.cast(x > 0, x.dtype)


class Unregistered(keras.layers.Layer):
    def __init__(self, slope=1.0, **kwargs):
        super().__init__(**kwargs)
        self.slope = slope

    def call(self, inputs):
        return make_soft_step(self.slope)(inputs)

    def get_config(self):
        return {**super().get_config(), "slope": self.slope}


@register
class OptionForgotten(Unregistered):
    def get_config(self):
        return keras.layers.Layer.get_config(self)


WRONG = {
    "affine": {
        "as it was": (reads_weights(lambda x, slope: lambda dy: dy), "`variables=None`"),
        "variables ignored": (
            reads_weights(with_variables(lambda dy, x: dy)),
            "grad returns two things",
        ),
        "by position": (
            reads_weights(with_variables(lambda dy, x: (dy, [total(dy * x), total(dy)]))),
            "TensorFlow promises no order",
        ),
        "a tuple": (
            reads_weights(with_variables(lambda dy, x: (dy, (total(dy * x), total(dy))))),
            "return a list",
        ),
        "None for both": (
            reads_weights(with_variables(lambda dy, x: (dy, [None, None]))),
            "is its entry None?",
        ),
        "captured": (Captures, "was it read outside of the op"),
        "Keras's weight": (takes_weights(lambda weight: weight, full), "Keras's own weight was passed"),
        "not summed": (
            takes_weights(tf.convert_to_tensor, lambda dy, x, slope: (dy, dy * x, dy)),
            "sum its gradient over axis 0",
        ),
        "true derivative": (
            takes_weights(tf.convert_to_tensor, lambda dy, x, slope: (slope * dy, *full(dy, x, slope)[1:])),
            "dy itself shall reach the inputs",
        ),
    },
    "temperature": {
        "as it was": (RawVariable, "Keras does not know this variable"),
        "not trainable": (NotTrainable, "not one that is trained"),
        "saved by hand": (SavedByHand, "no optimizer knows it"),
        "starts at one": (StartsAtOne, "t starts at 0"),
    },
    "make_layer": {
        "as it was": (lambda slope: keras.layers.Activation(make_soft_step(slope)), "class Bind"),
        "a lambda": (
            lambda slope: keras.layers.Activation(lambda x: make_soft_step(slope)(x)),
            "is not found again",
        ),
        "Lambda layer": (
            lambda slope: keras.layers.Lambda(lambda x: make_soft_step(slope)(x)),
            "a lambda is refused",
        ),
        "registered function": (
            lambda slope: keras.layers.Activation(step_of_two),
            "the slope is another",
        ),
        "pseudo-gradient lost": (
            lambda slope: keras.layers.Activation(plain_step),
            "without its pseudo-gradient",
        ),
        "not registered": (Unregistered, "Keras knows nothing of that name"),
        "option forgotten": (OptionForgotten, "the layer's config must carry it"),
    },
}
