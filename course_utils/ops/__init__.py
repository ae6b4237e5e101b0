"""Ops with a backward pass of their own: pure functions of tensors, no Keras.

Every op has the same form. The public function takes the tensor and plain Python options; the decorated
inner function takes nothing but the tensors that get a gradient, because `tf.custom_gradient` turns every
positional argument into a tensor in a graph and refuses keyword arguments there.

Ops whose gradient differs from their derivative on purpose say so in their name or in the first line of
their docstring: such a *pseudo-gradient* is a design decision, not a mistake to be mended.
"""

from course_utils.ops.discrete import (
    gumbel_softmax_straight_through,
    one_hot_with_softmax_grad,
    spike_with_surrogate_grad,
    vector_quantize_with_identity_grad,
)
from course_utils.ops.exact import safe_norm, square_with_clipped_grad
from course_utils.ops.implicit import fixed_point
from course_utils.ops.lean import leaky_relu_from_output, swish_from_input
from course_utils.ops.signal import clip_gradient, clip_gradient_by_norm, reverse_gradient, scale_gradient
from course_utils.ops.straight_through import (
    lsq_quantize,
    quantize,
    round_with_identity_grad,
    sign_with_clipped_grad,
)
from course_utils.ops.watch import check_upstream, record_upstream

__all__ = [
    "check_upstream",
    "clip_gradient",
    "clip_gradient_by_norm",
    "fixed_point",
    "gumbel_softmax_straight_through",
    "leaky_relu_from_output",
    "lsq_quantize",
    "one_hot_with_softmax_grad",
    "quantize",
    "record_upstream",
    "reverse_gradient",
    "round_with_identity_grad",
    "safe_norm",
    "scale_gradient",
    "sign_with_clipped_grad",
    "spike_with_surrogate_grad",
    "square_with_clipped_grad",
    "swish_from_input",
    "vector_quantize_with_identity_grad",
]
