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


def _at_least(name: str, value, low) -> None:
    if not value >= low:
        raise ValueError(f"{name} is {value}: give {low} or more")
