"""The points of the two moons, and bad input."""

import numpy as np
import pytest

from course_utils import datasets


class TestTwoMoons:
    def test_points_without_noise_lie_on_two_half_circles(self):
        x, y = datasets.two_moons(501, noise=0.0)
        upper, lower = x[y[:, 0] == 0], x[y[:, 0] == 1] - [1.0, 0.5]
        for moon in (upper, lower):
            np.testing.assert_allclose(np.hypot(*moon.T), 1.0, rtol=1e-5)
        assert (upper[:, 1] >= 0).all()
        assert (lower[:, 1] <= 0).all()
        assert (len(upper), len(lower)) == (251, 250)

    def test_noise_has_the_standard_deviation_that_is_asked_for(self):
        clean, noisy = (datasets.two_moons(4000, noise=s)[0] for s in (0.0, 0.3))
        assert np.std(noisy - clean) == pytest.approx(0.3, rel=0.05)

    def test_seed_decides(self):
        first, again, other = (datasets.two_moons(8, seed=s)[0] for s in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    @pytest.mark.parametrize(
        ("options", "words"), [({"n": 0}, "n is 0: give 1"), ({"noise": -1}, "noise is -1")]
    )
    def test_refuses(self, options, words):
        with pytest.raises(ValueError, match=words):
            datasets.two_moons(**options)
