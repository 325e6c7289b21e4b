"""The numbers that summarise curves."""

import pytest

from lib.low_rank_sparse.measures import nearest, needed


def test_of_values_as_near_the_lower_is_nearest():
    assert nearest([0.75, 0.25, 0.5], 0.625) == 0.5


def test_no_loss_counts_as_a_hundredth_of_the_threshold():
    assert needed([2, 4, 8], [0.4, 1.0, 0.0], 0.1) == pytest.approx(4 * 2 ** (1 / 3))
