"""Thin Keras layers over the ops: they hold options, weights and shapes, and call the op.

Every class is registered under the package name `course_utils`, so that a saved model finds it again as soon
as `course_utils.layers` is imported, and returns its constructor's options from `get_config`.
"""

from course_utils.layers.basic import CustomSquareLayer, GradientProbe, clipped_square
from course_utils.layers.implicit import FixedPointLayer
from course_utils.layers.quantized import LSQDense, QuantizeLayer
from course_utils.layers.signal import ClipGradient, ClipGradientByNorm, GradientReversal, ScaleGradient

__all__ = [
    "ClipGradient",
    "ClipGradientByNorm",
    "CustomSquareLayer",
    "FixedPointLayer",
    "GradientProbe",
    "GradientReversal",
    "LSQDense",
    "QuantizeLayer",
    "ScaleGradient",
    "clipped_square",
]
