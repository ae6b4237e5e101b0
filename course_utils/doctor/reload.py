"""Load a SavedModel and take its gradient, in a process that has never seen the code of the layer.

`check_layer` starts it as a script with the folder that holds `model` and `given.npz` (the inputs, and the
upstream gradients by the numbers of their outputs); it writes outputs and gradients to `found.npz`.
"""

import pathlib
import sys

import numpy as np
import tensorflow as tf


def main(folder: pathlib.Path) -> None:
    """Do that for this folder."""
    given = np.load(folder / "given.npz")
    leaves = [tf.constant(given[name]) for name in given if name.startswith("arr")]
    watched = [leaf for leaf in leaves if leaf.dtype.is_floating]
    model = tf.saved_model.load(str(folder / "model"))
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs = tf.nest.flatten(model.serve(leaves))
        losses = [
            tf.reduce_sum(tf.cast(y, tf.float64) * given[f"dy{i}"])
            for i, y in enumerate(outputs)
            if f"dy{i}" in given
        ]
    found = enumerate([*outputs, *tape.gradient(losses, watched)])
    np.savez(folder / "found.npz", **{f"arr_{i}": tensor for i, tensor in found if tensor is not None})


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
