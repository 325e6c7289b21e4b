"""Kendall's tau, against scipy's."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from lib.gradual_rank.orders import kendall


def test_it_is_that_of_scipy_to_the_last_digit_with_ties_and_infinities():
    for seed in range(200):
        draw = np.random.default_rng(seed)
        n = draw.integers(2, 17)
        x, y = (draw.integers(0, draw.integers(1, 9), n).astype(float) for _ in range(2))
        y[0] = np.inf if seed % 5 == 0 else y[0]
        np.testing.assert_equal(
            kendall(x, y), float(kendalltau(x, y).statistic), err_msg=f"seed {seed}"
        )


def test_one_thing_has_no_order():
    assert np.isnan(kendall(np.ones(1), np.ones(1)))


def test_orders_by_hand():
    one = np.array([1.0, 2.0, 3.0])
    assert kendall(one, one) == 1
    assert kendall(one, -one) == -1
    assert kendall(one, np.array([1.0, 3.0, 2.0])) == pytest.approx(1 / 3)
