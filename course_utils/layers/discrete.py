"""Layers with discrete outputs: spiking neurons and a codebook."""

from __future__ import annotations

import keras
import tensorflow as tf

from course_utils import ops
from course_utils.layers._package import PACKAGE


@keras.saving.register_keras_serializable(package=PACKAGE)
class SpikingLayer(keras.layers.Layer):
    """Turn currents into spikes: leaky integrate-and-fire neurons with a surrogate pseudo-gradient.

    Each neuron has a membrane potential `u`, 0 at first. At each time step `t`

        u[t] = decay · u[t-1] + current[t] - threshold · spike[t-1],
        spike[t] = 1 where u[t] > threshold, else 0

    (Neftci, Mostafa and Zenke 2019, "Surrogate Gradient Learning in Spiking Neural Networks", section II,
    without the filter on the current). Spikes get the gradient of `ops.spike_with_surrogate_grad`. No
    gradient runs through the reset `- threshold · spike[t-1]`: each spike would add another surrogate to the
    chain (Zenke and Vogels 2021, "The Remarkable Robustness of Surrogate Gradient Learning").

    Currents and spikes have the shape `(batch, time, ...)`.

    Args:
        decay: What is left of a potential after one time step, from 0 to 1.
        threshold: Where a neuron fires, a positive number in the unit of the currents.
        slope: How narrow the surrogate is, a positive number.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Raises:
        ValueError: An option is outside of its range; when called, the number of time steps is unknown.

    Example:
        >>> currents = keras.ops.array([[0.6, 0.6, 0.6, 0.6, 0.6]])  # one neuron, five time steps
        >>> SpikingLayer(decay=1.0)(currents).numpy().tolist()
        [[0.0, 1.0, 0.0, 1.0, 0.0]]
    """

    def __init__(self, decay=0.9, threshold=1.0, slope=10.0, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(decay, (int, float)) or not 0 <= decay <= 1:
            raise ValueError(f"decay is {decay!r}: give a number from 0 to 1")
        for name, value in (("threshold", threshold), ("slope", slope)):
            if not isinstance(value, (int, float)) or not value > 0:
                raise ValueError(f"{name} is {value!r}: give a positive number")
        self.decay, self.threshold, self.slope = float(decay), float(threshold), float(slope)

    def call(self, inputs):
        """Map currents of shape `(batch, time, ...)` to spikes of the same shape and dtype."""
        if inputs.shape[1] is None:
            raise ValueError(
                f"inputs has shape {tuple(inputs.shape)}: the time axis, 1, needs a fixed length"
            )
        potential = spike = tf.zeros_like(inputs[:, 0])
        spikes = []
        for current in tf.unstack(inputs, axis=1):
            reset = self.threshold * tf.stop_gradient(spike)
            potential = self.decay * potential + current - reset
            spike = ops.spike_with_surrogate_grad(potential - self.threshold, self.slope)
            spikes.append(spike)
        return tf.stack(spikes, axis=1)

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: one spike, or none, for each current."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        options = {"decay": self.decay, "threshold": self.threshold, "slope": self.slope}
        return {**super().get_config(), **options}


@keras.saving.register_keras_serializable(package=PACKAGE)
class VectorQuantizer(keras.layers.Layer):
    """Replace each vector by the nearest of a set of learned codes; a straight-through pseudo-gradient.

    The outputs are those of `ops.vector_quantize_with_identity_grad`, through which no gradient reaches the
    codes. Two losses are added to the model's own (van den Oord, Vinyals and Kavukcuoglu 2017, "Neural
    Discrete Representation Learning", section 3.2, equation 3; here as means over all elements):

        mean((stop(inputs) - code)²) + commitment · mean((inputs - stop(code))²).

    The first moves codes to the inputs that chose them, the second keeps the inputs near their codes. A code
    that nothing chooses does not move.

    Args:
        codes: How many codes, an integer of 1 or more.
        commitment: Weight of the second loss, a number of 0 or more; the paper has 0.25.
        codebook_initializer: As for the kernel of `keras.layers.Dense`; the codebook has shape
            `(codes, features)`.
        **kwargs: What every Keras layer takes, such as `name` and `dtype`.

    Attributes:
        codebook: The weight, of shape `(codes, features)`.

    Raises:
        ValueError: `codes` or `commitment` is outside of its range.

    Example:
        >>> layer = VectorQuantizer(2, codebook_initializer="identity")
        >>> layer(keras.ops.array([[0.9, 0.2], [0.0, 0.4]])).numpy().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        >>> layer.indices(keras.ops.array([[0.9, 0.2], [0.0, 0.4]])).numpy().tolist()
        [0, 1]
    """

    def __init__(self, codes, commitment=0.25, codebook_initializer="random_uniform", **kwargs):
        super().__init__(**kwargs)
        if not isinstance(codes, int) or codes < 1:
            raise ValueError(f"codes is {codes!r}: give an integer of 1 or more")
        if not isinstance(commitment, (int, float)) or not commitment >= 0:
            raise ValueError(f"commitment is {commitment!r}: give a number of 0 or more")
        self.codes, self.commitment = codes, float(commitment)
        self.codebook_initializer = keras.initializers.get(codebook_initializer)

    def build(self, input_shape):
        """Make the codebook for inputs with `input_shape[-1]` features."""
        # No autocast: distances and losses are computed in the dtype of the weights.
        self.codebook = self.add_weight(
            shape=(self.codes, input_shape[-1]),
            initializer=self.codebook_initializer,
            autocast=False,
            name="codebook",
        )

    def call(self, inputs):
        """Map a float tensor of shape `(..., features)` to codes of the same shape and dtype."""
        codebook = tf.convert_to_tensor(self.codebook)
        outputs, indices = ops.vector_quantize_with_identity_grad(inputs, codebook)
        # Looked up once more: the outputs give their gradient to the inputs, not to the codebook.
        chosen, inputs = tf.gather(codebook, indices), tf.cast(inputs, codebook.dtype)
        codebook_loss = tf.reduce_mean(tf.square(tf.stop_gradient(inputs) - chosen))
        commitment_loss = tf.reduce_mean(tf.square(inputs - tf.stop_gradient(chosen)))
        loss = codebook_loss + self.commitment * commitment_loss
        # Keras adds it to the compiled loss, which is in this dtype whatever the dtype of the layer.
        self.add_loss(tf.cast(loss, keras.config.floatx()))
        return outputs

    def indices(self, inputs):
        """Give the index of the nearest code for each vector: int64 of shape `(...)`.

        Args:
            inputs: Tensor of shape `(..., features)`, as for the layer itself.
        """
        return ops.vector_quantize_with_identity_grad(inputs, tf.convert_to_tensor(self.codebook))[1]

    def compute_output_shape(self, input_shape):
        """Give the shape of the inputs: a code has as many features as a vector."""
        return input_shape

    def get_config(self):
        """Give the options with which `from_config` makes the same layer again."""
        return {
            **super().get_config(),
            "codes": self.codes,
            "commitment": self.commitment,
            "codebook_initializer": keras.initializers.serialize(self.codebook_initializer),
        }
