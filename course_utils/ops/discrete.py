"""Ops with discrete outputs - spikes, categories, codes - that are trained through a pseudo-gradient."""

from __future__ import annotations

import tensorflow as tf

from course_utils.ops._arguments import floating, scalar


def spike_with_surrogate_grad(x, slope=10.0) -> tf.Tensor:
    """Give 1 where `x > 0`, else 0; the pseudo-gradient is that of a fast sigmoid.

    `x` is a neuron's membrane potential minus its threshold. Forward: the Heaviside step; NaN stays NaN.
    Backward: `dx = dy / (1 + slope · |x|)²`, the derivative of `x / (1 + slope · |x|)` (Zenke and Ganguli
    2018, "SuperSpike: Supervised Learning in Multilayer Spiking Neural Networks", section 3.3.2; Neftci,
    Mostafa and Zenke 2019, "Surrogate Gradient Learning in Spiking Neural Networks", figure 3). It is 1 at
    the threshold for every slope, and narrower the larger the slope: where the potential is far away, nearly
    nothing passes. The derivative of the step is zero wherever there is one.

    Args:
        x: Tensor of any shape, dtype float16, bfloat16, float32 or float64.
        slope: How narrow the surrogate is, per unit of `x`: a positive number or a scalar tensor. A number
            is fixed when a graph is traced; a tensor can change from step to step.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` has no floating-point dtype.
        ValueError: `slope` is a number that is not positive, or a tensor that is no scalar.

    Example:
        >>> x = tf.constant([-0.1, 0.0, 0.4])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = spike_with_surrogate_grad(x, slope=10.0)
        >>> y.numpy().tolist(), [f"{g:.2f}" for g in tape.gradient(y, x)]
        ([0.0, 0.0, 1.0], ['0.25', '1.00', '0.04'])
    """
    x = floating(x, "x")
    slope = scalar(slope, "slope", x.dtype, positive=True)

    @tf.custom_gradient
    def op(x):
        def grad(dy):
            return dy / tf.square(1 + slope * tf.abs(x))

        # A comparison would turn NaN into 0, and hide it.
        return (tf.sign(tf.sign(x) - 0.5) + 1) / 2, grad

    return op(x)


def one_hot_with_softmax_grad(logits, temperature=1.0) -> tf.Tensor:
    """Give the one-hot vector of the largest logit; the pseudo-gradient is that of a softmax.

    Forward: `y = one_hot(argmax(logits))` over the last axis; of equal logits the first. Backward: with
    `s = softmax(logits / temperature)`, `dx = s · (dy - Σ s · dy) / temperature`. Applied to logits with
    Gumbel noise it is the straight-through Gumbel-softmax estimator (Jang, Gu and Poole 2017, "Categorical
    Reparameterization with Gumbel-Softmax", section 2.2). The derivative is zero wherever there is one, and
    `tf.argmax` has no gradient at all.

    Args:
        logits: Tensor of shape `(..., categories)`, dtype float16, bfloat16, float32 or float64. The softmax
            of a half-precision tensor is computed in float32.
        temperature: Of the softmax, a positive number or a scalar tensor. A number is fixed when a graph is
            traced; a tensor can change from step to step.

    Returns:
        Tensor of the shape and dtype of `logits`: exactly one 1 in each vector.

    Raises:
        TypeError: `logits` has no floating-point dtype.
        ValueError: `temperature` is a number that is not positive, or a tensor that is no scalar; or `logits`
            is a scalar.

    Example:
        >>> logits = tf.constant([0.0, 1.0])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch(logits)
        ...     y = one_hot_with_softmax_grad(logits)
        >>> y.numpy().tolist()
        [0.0, 1.0]
        >>> [f"{g:.3f}" for g in tape.gradient(y, logits, output_gradients=tf.constant([0.0, 1.0]))]
        ['-0.197', '0.197']
    """
    logits = floating(logits, "logits")
    if logits.shape.rank == 0:
        raise ValueError("logits is a scalar: give a tensor of shape (..., categories)")
    wide = _wide(logits.dtype)
    temperature = scalar(temperature, "temperature", wide, positive=True)

    @tf.custom_gradient
    def op(logits):
        def grad(dy):
            soft, dy = tf.nn.softmax(tf.cast(logits, wide) / temperature), tf.cast(dy, wide)
            dx = soft * (dy - tf.reduce_sum(soft * dy, -1, keepdims=True)) / temperature
            return tf.cast(dx, logits.dtype)

        return tf.one_hot(tf.argmax(logits, -1), tf.shape(logits)[-1], dtype=logits.dtype), grad

    return op(logits)


def gumbel_softmax_straight_through(logits, temperature=1.0, *, seed=None) -> tf.Tensor:
    """Draw a category by `softmax(logits)`, as a one-hot vector; the pseudo-gradient is that of a softmax.

    Forward: `one_hot(argmax(logits + g))` with Gumbel noise `g = -log(-log(u))`, `u` uniform on (0, 1), which
    draws each category with its probability (Maddison, Mnih and Teh 2017, "The Concrete Distribution",
    section 3.1). Backward: the gradient of `softmax((logits + g) / temperature)`, the straight-through
    estimator of Jang, Gu and Poole (2017, "Categorical Reparameterization with Gumbel-Softmax", section 2.2).
    It is biased; a low temperature has less bias and more variance.

    Args:
        logits: Tensor of shape `(..., categories)`, dtype float16, bfloat16, float32 or float64. Noise and
            softmax of a half-precision tensor are computed in float32.
        temperature: Of the softmax, a positive number or a scalar tensor; it has no effect on the draw.
        seed: Two integers that fix the draw, for the same noise in eager mode, graphs and XLA; or a tensor of
            two integers. None draws anew each time, from TensorFlow's global generator.

    Returns:
        Tensor of the shape and dtype of `logits`: exactly one 1 in each vector.

    Raises:
        TypeError: `logits` has no floating-point dtype.
        ValueError: `temperature` is a number that is not positive, or a tensor that is no scalar; `logits`
            is a scalar; or `seed` has another shape.

    Example:
        >>> logits = tf.math.log(tf.constant([[0.2, 0.8]] * 1000))
        >>> draws = gumbel_softmax_straight_through(logits, seed=[1, 2])
        >>> print(f"{tf.reduce_mean(draws, axis=0)[1]:.1f}")
        0.8
    """
    logits = floating(logits, "logits")
    if seed is not None and tf.convert_to_tensor(seed).shape != [2]:
        raise ValueError(f"seed is {seed}: give two integers, or None")
    # Above 0, where the logarithm is finite. Always float32: the draw is then the same for every dtype.
    options = {"shape": tf.shape(logits), "minval": 1.2e-38, "dtype": tf.float32}
    if seed is None:
        uniform = tf.random.uniform(**options)
    else:  # one algorithm by name: the default differs between XLA and the rest
        uniform = tf.random.stateless_uniform(seed=seed, alg="philox", **options)
    wide = _wide(logits.dtype)
    noise = -tf.math.log(-tf.math.log(tf.cast(uniform, wide)))
    sample = one_hot_with_softmax_grad(tf.cast(logits, wide) + noise, temperature)
    return tf.cast(sample, logits.dtype)


def vector_quantize_with_identity_grad(x, codebook) -> tf.Tensor:
    """Replace each vector by the nearest code of a codebook; the pseudo-gradient is the one of the identity.

    Forward: `y = codebook[k]`, where `k` minimizes the Euclidean distance `‖x - codebook[k]‖`. Backward:
    `dx = dy`, the straight-through estimator of van den Oord, Vinyals and Kavukcuoglu (2017, "Neural Discrete
    Representation Learning", section 3.2). No gradient reaches the codebook: its own losses must train it, as
    they do in `layers.VectorQuantizer`.

    Args:
        x: Tensor of shape `(..., dim)`, dtype float16, bfloat16, float32 or float64. Distances of
            half-precision vectors are computed in float32.
        codebook: Tensor or variable of shape `(codes, dim)` with a floating-point dtype.

    Returns:
        `(y, k)`: a tensor of the shape and dtype of `x`, and the indices of the codes, int64 of shape
        `(...)`.

    Raises:
        TypeError: `x` or `codebook` has no floating-point dtype.
        ValueError: The shapes of `x` and `codebook` do not fit each other.

    Example:
        >>> x, codebook = tf.constant([[0.9, 0.8]]), tf.constant([[0.0, 0.0], [1.0, 1.0]])
        >>> with tf.GradientTape() as tape:
        ...     tape.watch([x, codebook])
        ...     y, k = vector_quantize_with_identity_grad(x, codebook)
        ...     loss = tf.reduce_sum(y * [3.0, 4.0])
        >>> dx, dcodebook = tape.gradient(loss, [x, codebook])
        >>> y.numpy().tolist(), k.numpy().tolist(), dx.numpy().tolist(), dcodebook
        ([[1.0, 1.0]], [1], [[3.0, 4.0]], None)
    """
    x, codebook = floating(x, "x"), floating(codebook, "codebook")
    if codebook.shape.rank != 2 or not x.shape[-1:].is_compatible_with(codebook.shape[1:]):
        shapes = f"x has shape {tuple(x.shape)}, codebook has shape {tuple(codebook.shape)}"
        raise ValueError(f"{shapes}: give (..., dim) and (codes, dim)")
    wide = _wide(x.dtype)
    codes = tf.stop_gradient(tf.cast(codebook, wide))

    @tf.custom_gradient
    def op(x):
        # Seen from the middle of the codes, so that no large offset swallows the digits that decide.
        middle = tf.reduce_mean(codes, 0)
        near, far = codes - middle, tf.cast(x, wide) - middle
        # ‖x‖² is the same for all codes, and left out of the distance.
        distance = tf.reduce_sum(tf.square(near), -1) - 2 * tf.einsum("...d,kd->...k", far, near)
        indices = tf.argmin(distance, -1)
        return (tf.cast(tf.gather(codes, indices), x.dtype), indices), lambda dy, _: dy

    return op(x)


def _wide(dtype: tf.DType) -> tf.DType:
    """Give the dtype in which to compute: float32 for half precision."""
    return tf.float32 if dtype.size < 4 else dtype
