"""What the tests of bad input share: everything of the caller that a check must leave as it was."""

import os
import random
import sys

import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

X = np.float32([[1.5, -2.0], [0.5, 3.0]])


def snapshot(folder, variables=()) -> dict:
    """Return settings, seeds, files and variables of the caller; TensorFlow's seed draws at the end."""
    return {
        "python": random.getstate(),
        "numpy": str(np.random.get_state()),
        "numpy errors": np.geterr(),
        "policy": keras.config.dtype_policy().name,
        "floatx": keras.config.floatx(),
        "custom objects": dict(keras.saving.get_custom_objects()),
        "eager": tf.config.functions_run_eagerly(),
        "environment": {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
        "path": list(sys.path),
        "files": sorted(folder.rglob("*")),
        "figures": plt.get_fignums(),
        "variables": [v.numpy().tolist() for v in variables],
    }


class Guard:
    """Take a snapshot, and assert at the end that nothing differs."""

    def __init__(self, folder, variables=()):
        self.folder, self.variables = folder, variables

    def __enter__(self):
        random.seed(7)
        np.random.seed(7)
        tf.random.set_seed(7)
        self.drawn = tf.random.normal([2]).numpy().tolist()
        tf.random.set_seed(7)
        self.before = snapshot(self.folder, self.variables)
        return self

    def __exit__(self, kind, error, trace):
        after = snapshot(self.folder, self.variables)
        changed = [name for name in after if after[name] != self.before[name]]
        assert not changed, changed
        assert tf.random.normal([2]).numpy().tolist() == self.drawn, "TensorFlow's random state"
