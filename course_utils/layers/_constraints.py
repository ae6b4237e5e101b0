"""A constraint that layers share."""

from __future__ import annotations

import keras


class LowerBound(keras.constraints.Constraint):
    """Keep a weight at `least` or more: above 0, where an op divides by it."""

    def __init__(self, least):
        self.least = least

    def __call__(self, w):
        return keras.ops.maximum(w, self.least)
