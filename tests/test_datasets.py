"""Data sets are seeded and are what they say."""

import numpy as np
import pytest

from course_utils import datasets


def test_squares_are_the_sum_of_squared_features_and_noise():
    x, y = datasets.squares(n=2000, features=3, noise=0.1, seed=1)
    residual = y - (x**2).sum(axis=1, keepdims=True)
    assert abs(residual.std() - 0.1) < 0.01
    assert abs(x.std() - 1) < 0.05


def test_the_same_seed_gives_the_same_points():
    for a, b in zip(datasets.squares(seed=3), datasets.squares(seed=3), strict=True):
        np.testing.assert_array_equal(a, b)
    assert (datasets.squares(seed=3)[0] != datasets.squares(seed=4)[0]).any()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 0}, "n is 0: give 1"),
        ({"features": 0}, "features is 0"),
        ({"noise": -1}, "noise is -1: give 0"),
    ],
)
def test_bad_input(arguments, words):
    with pytest.raises(ValueError, match=words):
        datasets.squares(**arguments)
