"""Small generated data sets: seeded, made in milliseconds, nothing to download."""

from __future__ import annotations

import numpy as np


def squares(
    n: int = 256, features: int = 2, *, noise: float = 0.05, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
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


def rotated_moons(n: int = 300, angle: float = 35.0, *, noise: float = 0.1, seed: int = 0) -> tuple:
    """Make two domains of one task: two interleaved half circles, and the same rotated about their middle.

    The task of Ganin et al. (2016, "Domain-Adversarial Training of Neural Networks", section 5.1), where a
    model learns from the labels of the source domain and is used on the target domain.

    Args:
        n: How many points each domain has, 2 or more; half of them in each class.
        angle: By how many degrees the target domain is rotated, counterclockwise.
        noise: Standard deviation of the noise on both features, 0 or more; a half circle has radius 1.
        seed: The same seed gives the same points; the domains have different points.

    Returns:
        `(x, y), (target_x, target_y)`: float32 arrays of shapes `(n, 2)` and `(n, 1)`; labels are 0 or 1.

    Raises:
        ValueError: `n` is below 2, or `noise` is negative.

    Example:
        >>> (x, y), (target_x, target_y) = rotated_moons(n=4)
        >>> x.shape, target_y.ravel().tolist()
        ((4, 2), [0.0, 0.0, 1.0, 1.0])
    """
    _at_least("n", n, 2)
    _at_least("noise", noise, 0)
    rng = np.random.default_rng(seed)
    turn = np.radians(angle)
    rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
    domains = []
    for matrix in (np.eye(2), rotation):
        y = np.repeat([0.0, 1.0], [n - n // 2, n // 2])[:, None]
        x = _half_circles(y, rng.uniform(0, np.pi, (n, 1)))
        x = (x + noise * rng.standard_normal((n, 2))) @ matrix
        domains.append((x.astype("float32"), y.astype("float32")))
    return tuple(domains)


def linear_on_grid(
    n: int = 256, features: int = 16, *, step=0.37, bits=3, noise: float = 0.05, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


def two_moons(n: int = 256, *, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
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
    x = _half_circles(y, rng.uniform(0, np.pi, (n, 1))) + np.array([0.5, 0.25])
    x += noise * rng.standard_normal((n, 2))
    return x.astype("float32"), y.astype("float32")


def spike_patterns(
    n: int = 128, steps: int = 16, inputs: int = 16, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Make spike trains of two classes that differ in when an input fires, not in how often.

    Each input has a volley of spikes early or late, on top of a few random ones. In class 0 the even inputs
    are early and the odd ones late; in class 1 it is the other way around.

    Args:
        n: How many examples, 1 or more; the classes differ in size by one at most.
        steps: How many time steps, 1 or more.
        inputs: How many inputs, 1 or more.
        seed: The same seed gives the same spikes.

    Returns:
        `(x, y)`: float32 arrays of shape `(n, steps, inputs)`, 1 for a spike and else 0, and `(n, 1)`, the
        class 0 or 1.

    Raises:
        ValueError: `n`, `steps` or `inputs` is below 1.

    Example:
        >>> x, y = spike_patterns(n=4)
        >>> x.shape, sorted(set(x.ravel().tolist())), sorted(y[:, 0].tolist())
        ((4, 16, 16), [0.0, 1.0], [0.0, 0.0, 1.0, 1.0])
    """
    for name, value in (("n", n), ("steps", steps), ("inputs", inputs)):
        _at_least(name, value, 1)
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)[:, None]
    middle = (np.arange(steps) + 0.5) / steps
    early = np.exp(-(((middle - 0.3) / 0.15) ** 2) / 2)  # a bell curve; the late one is its mirror image
    is_late = (np.arange(inputs) % 2 != y)[:, None, :]
    rate = 0.03 + 0.5 * np.where(is_late, early[::-1, None], early[:, None])
    return (rng.random(rate.shape) < rate).astype("float32"), y.astype("float32")


def _half_circles(y: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Give the points at `angle` of two interleaved half circles, 1 the lower; the origin is their middle."""
    side = 1 - 2 * y  # the second is the first, turned by 180 degrees
    return np.concatenate([side * (np.cos(angle) - 0.5), side * (np.sin(angle) - 0.25)], axis=1)


def _at_least(name: str, value, low) -> None:
    if not value >= low:
        raise ValueError(f"{name} is {value}: give {low} or more")
