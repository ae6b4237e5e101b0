"""The spike trains of two classes, and bad input."""

import numpy as np
import pytest

from course_utils import datasets


class TestSpikePatterns:
    def test_classes_differ_in_time_and_not_in_number(self):
        x, y = datasets.spike_patterns(4000)
        first, second = (x[y[:, 0] == c].mean(axis=0) for c in (0, 1))  # rates, of shape (steps, inputs)
        np.testing.assert_allclose(first.sum(axis=0), second.sum(axis=0), atol=0.2)
        early = first[:8].sum(axis=0) > first[8:].sum(axis=0)
        np.testing.assert_array_equal(early, np.arange(16) % 2 == 0)
        np.testing.assert_array_equal(second[:8].sum(axis=0) > second[8:].sum(axis=0), ~early)

    def test_classes_have_one_size_and_spikes_are_ones(self):
        x, y = datasets.spike_patterns(7, steps=5, inputs=3)
        assert (x.shape, y.shape, abs(int(y.sum() * 2) - 7)) == ((7, 5, 3), (7, 1), 1)
        assert set(np.unique(x)) == {0.0, 1.0}

    def test_seed_decides(self):
        first, again, other = (datasets.spike_patterns(8, seed=s)[0] for s in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()

    @pytest.mark.parametrize("name", ["n", "steps", "inputs"])
    def test_refuses(self, name):
        with pytest.raises(ValueError, match=f"{name} is 0: give 1 or more"):
            datasets.spike_patterns(**{name: 0})
