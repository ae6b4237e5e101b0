"""Print how long `check_layer` takes, in units of compile plus first `fit` of the same layer in the same run.

Run it as a script: `python tests/benchmarks/bench_check_layer.py`.
"""

import time

import course_utils.quiet  # isort: skip
import keras
import numpy as np
import tensorflow as tf

from course_utils import check_layer


@tf.custom_gradient
def matmul(x, w):
    """Multiply matrices, with the backward pass written out."""
    return x @ w, lambda dy: (dy @ tf.transpose(w), tf.transpose(x) @ dy)


@keras.saving.register_keras_serializable(package="bench")
class OpDense(keras.layers.Layer):
    """A dense layer over a custom-gradient op."""

    def build(self, shape):
        """Make kernel and bias."""
        self.kernel = self.add_weight(shape=(shape[-1], 8), name="kernel")
        self.bias = self.add_weight(shape=(8,), name="bias")

    def call(self, x):
        """Multiply and shift."""
        return matmul(x, self.kernel.value) + self.bias


def seconds(act) -> float:
    """Return the wall-clock time of one call."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def fit(x):
    """Compile a model of the layer and fit it for the first time."""
    model = keras.Sequential([OpDense()])
    model.compile("sgd", "mse")
    model.fit(x, np.zeros((len(x), 8)), verbose=0)


def main(repeats=3):
    """Print the medians and their ratio; the first round warms TensorFlow up and does not count."""
    x = np.random.default_rng(0).normal(size=(4, 8)).astype("float32")
    rounds = [
        (seconds(lambda: fit(x)), seconds(lambda: check_layer(OpDense(), x))) for _ in range(repeats + 1)
    ][1:]
    fits, checks = np.median(rounds, axis=0)
    print(f"compile + fit {fits:.2f} s, check_layer {checks:.2f} s, ratio {checks / fits:.1f} (bar: under 4)")


if __name__ == "__main__":
    main()
