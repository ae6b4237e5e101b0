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


def two_moons(n: int = 256, *, noise: float = 0.1, seed: int = 0):
    """Make two classes, each a half circle of points that reaches into the other.

    Class 0 is the upper half of the unit circle around the origin, class 1 the lower half of the one around
    (1, 0.5). The order is random; the classes differ in size by one point at most.

    Args:
        n: How many points, 1 or more.
        noise: Standard deviation of the normal noise on both coordinates, 0 or more.
        seed: The same seed gives the same points.

    Returns:
        `(x, y)`: float32 arrays of shape `(n, 2)`, the coordinates, and `(n, 1)`, the class 0 or 1.

    Raises:
        ValueError: `n` is below 1, or `noise` is negative.

    Example:
        >>> x, y = two_moons(n=4)
        >>> x.shape, sorted(y[:, 0].tolist()), x.dtype.name
        ((4, 2), [0.0, 0.0, 1.0, 1.0], 'float32')
    """
    _at_least("n", n, 1)
    _at_least("noise", noise, 0)
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)[:, None]
    angle = np.pi * rng.uniform(size=(n, 1))
    side = 1 - 2 * y  # 1 bends upward, -1 downward
    x = np.concatenate([y + side * np.cos(angle), 0.5 * y + side * np.sin(angle)], axis=1)
    x += noise * rng.standard_normal((n, 2))
    return x.astype("float32"), y.astype("float32")


def _at_least(name: str, value, low) -> None:
    if not value >= low:
        raise ValueError(f"{name} is {value}: give {low} or more")
