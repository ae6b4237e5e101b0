"""Thin Keras layers over the ops: they hold options, weights and shapes, and call the op.

Every class is registered under the package name `course_utils`, so that a saved model finds it again as soon
as `course_utils.layers` is imported, and returns its constructor's options from `get_config`.

`PACT` and its op `pact` run on every backend of Keras. All others are written in TensorFlow: where Keras runs
on JAX or PyTorch they are left out, and TensorFlow is not imported.
"""

import keras

from course_utils.layers.portable import PACT, pact

__all__ = ["PACT", "pact"]

if keras.backend.backend() == "tensorflow":
    from course_utils.layers.basic import CustomSquareLayer, GradientProbe, clipped_square
    from course_utils.layers.discrete import SpikingLayer, VectorQuantizer
    from course_utils.layers.implicit import FixedPointLayer
    from course_utils.layers.quantized import LSQDense, QuantizeLayer
    from course_utils.layers.signal import ClipGradient, ClipGradientByNorm, GradientReversal, ScaleGradient

    __all__ += [
        "ClipGradient",
        "ClipGradientByNorm",
        "CustomSquareLayer",
        "FixedPointLayer",
        "GradientProbe",
        "GradientReversal",
        "LSQDense",
        "QuantizeLayer",
        "ScaleGradient",
        "SpikingLayer",
        "VectorQuantizer",
        "clipped_square",
    ]


def __getattr__(name: str):
    reason = ""
    if keras.backend.backend() != "tensorflow":
        reason = (
            f": Keras runs on {keras.backend.backend()}, where only {', '.join(__all__)} are there. For the "
            "layers that are written in TensorFlow set KERAS_BACKEND=tensorflow before Keras is imported"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reason}")
