"""Data sets: the shape of the task that a notebook relies on, the same for the same seed."""

import numpy as np
import pytest

from course_utils import datasets


class TestRotatedMoons:
    def test_target_is_the_source_rotated_counterclockwise(self):
        (x, y), (target_x, target_y) = datasets.rotated_moons(n=4000, angle=90.0, noise=0.0)
        for label in (0, 1):
            source, target = x[y[:, 0] == label], target_x[target_y[:, 0] == label]
            turned = np.stack([-source[:, 1], source[:, 0]], axis=1)  # (1, 0) comes to (0, 1)
            np.testing.assert_allclose(turned.min(axis=0), target.min(axis=0), atol=0.02)
            np.testing.assert_allclose(turned.max(axis=0), target.max(axis=0), atol=0.02)

    def test_classes_are_half_circles_apart_from_each_other(self):
        (x, y), _ = datasets.rotated_moons(n=200, noise=0.0)
        first, second = x[y[:, 0] == 0], x[y[:, 0] == 1]
        assert len(first) == len(second) == 100
        np.testing.assert_allclose(np.linalg.norm(first - np.array([-0.5, -0.25]), axis=1), 1.0, rtol=1e-5)
        assert np.linalg.norm(first[:, None] - second[None], axis=-1).min() > 0.3

    def test_seed_decides_and_domains_have_points_of_their_own(self):
        one, two, other = (datasets.rotated_moons(n=20, angle=0.0, seed=s) for s in (0, 0, 1))
        np.testing.assert_array_equal(one[0][0], two[0][0])
        assert (one[0][0] != other[0][0]).any()
        assert (one[0][0] != one[1][0]).any()

    @pytest.mark.parametrize(("options", "words"), [({"n": 1}, "n is 1"), ({"noise": -0.1}, "noise is -0.1")])
    def test_refuses_bad_options(self, options, words):
        with pytest.raises(ValueError, match=words):
            datasets.rotated_moons(**options)
