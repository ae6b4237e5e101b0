"""Load a SavedModel and take its gradient, in a process that has never seen the code of the layer.

`check_layer` starts it as a script with the folder that holds `model` and `given.npz`; it writes `found.npz`.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf


def main(folder: pathlib.Path) -> None:
    """Read inputs and upstream gradients, write outputs and the gradients of the inputs."""
    given = np.load(folder / "given.npz")
    leaves = [tf.constant(given[f"leaf{i}"]) for i in range(sum(name.startswith("leaf") for name in given))]
    model = tf.saved_model.load(str(folder / "model"))
    with tf.GradientTape() as tape:
        tape.watch([leaf for leaf in leaves if leaf.dtype.is_floating])
        outputs = tf.nest.flatten(model.serve(leaves))
        losses = [
            tf.reduce_sum(tf.cast(y, tf.float64) * given[f"dy{i}"])
            for i, y in enumerate(outputs)
            if y.dtype.is_floating
        ]
    gradients = tape.gradient(losses, leaves)
    found = {f"output{i}": y for i, y in enumerate(outputs)}
    found |= {f"gradient{i}": g for i, g in enumerate(gradients) if g is not None}
    np.savez(folder / "found.npz", **found)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
