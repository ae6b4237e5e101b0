"""Exercises of notebook 13, the clinic: one broken op, layer or training step each, to be mended."""

from course_utils.exercises.nb13.kept import block, make_saliency, softplus
from course_utils.exercises.nb13.modes import limit, relu_with_leak, slow_rows, weigh
from course_utils.exercises.nb13.values import distance, learned_leak, smooth_abs, to_levels, vq_loss
from course_utils.exercises.nb13.weights import affine, make_layer, temperature

__all__ = [
    "affine",
    "block",
    "distance",
    "learned_leak",
    "limit",
    "make_layer",
    "make_saliency",
    "relu_with_leak",
    "slow_rows",
    "smooth_abs",
    "softplus",
    "temperature",
    "to_levels",
    "vq_loss",
    "weigh",
]
