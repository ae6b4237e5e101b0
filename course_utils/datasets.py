"""Small generated data sets: seeded, made in milliseconds, nothing to download."""

from __future__ import annotations

import numpy as np


def squares(n: int = 256, features: int = 2, *, noise: float = 0.05, seed: int = 0):
    """Make points whose target is the sum of their squared features, with noise.

    Args:
        n: How many points, 1 or more.
        features: How many features, 1 or more; each is normally distributed with standard deviation 1.
        noise: Standard deviation of the noise on the target, 0 or more.
        seed: The same seed gives the same points.

    Returns:
        `(x, y)`: float32 arrays of shape `(n, features)` and `(n, 1)`.

    Raises:
        ValueError: `n` or `features` is below 1, or `noise` is negative.

    Example:
        >>> x, y = squares(n=4)
        >>> x.shape, y.shape, x.dtype.name
        ((4, 2), (4, 1), 'float32')
    """
    _at_least("n", n, 1)
    _at_least("features", features, 1)
    _at_least("noise", noise, 0)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, features))
    y = (x**2).sum(axis=1, keepdims=True) + noise * rng.standard_normal((n, 1))
    return x.astype("float32"), y.astype("float32")


def linear_on_grid(
    n: int = 256, features: int = 16, *, step=0.37, bits=3, noise: float = 0.05, seed: int = 0
):
    """Make points whose target is a linear map of them, with weights that are multiples of a step.

    Args:
        n: How many points, 1 or more.
        features: How many features, 1 or more; each is normally distributed with standard deviation 1.
        step: Width of a level of the weights, positive.
        bits: How many bits a level has, 2 or more: levels go from `-2^(bits-1)` to `2^(bits-1) - 1`, and each
            is as probable as any other.
        noise: Standard deviation of the noise on the target, 0 or more.
        seed: The same seed gives the same points.

    Returns:
        `(x, y, weights)`: float32 arrays of shape `(n, features)`, `(n, 1)` and `(features, 1)`.

    Raises:
        ValueError: `n` or `features` is below 1, `bits` below 2, `step` not positive, or `noise` negative.

    Example:
        >>> x, y, weights = linear_on_grid(n=4, features=3, step=0.5, bits=2)
        >>> x.shape, y.shape, sorted(set(weights.ravel().tolist()) - {-1.0, -0.5, 0.0, 0.5})
        ((4, 3), (4, 1), [])
    """
    for name, value, low in (("n", n, 1), ("features", features, 1), ("bits", bits, 2), ("noise", noise, 0)):
        _at_least(name, value, low)
    if not step > 0:
        raise ValueError(f"step is {step}: give a positive number")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, features))
    weights = step * rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (features, 1))
    y = x @ weights + noise * rng.standard_normal((n, 1))
    return x.astype("float32"), y.astype("float32"), weights.astype("float32")


def _at_least(name: str, value, low) -> None:
    if not value >= low:
        raise ValueError(f"{name} is {value}: give {low} or more")
