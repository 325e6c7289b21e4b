"""Kendall's tau, against scipy's."""

import numpy as np
from scipy.stats import kendalltau

from lib.gradual_rank.orders import kendall


def test_it_is_that_of_scipy_to_the_last_digit_with_ties_and_infinities():
    for seed in range(100):
        draw = np.random.default_rng(seed)
        n = draw.integers(2, 17)
        x, y = (draw.integers(0, draw.integers(1, 9), n).astype(float) for _ in range(2))
        y[0] = np.inf if seed % 5 == 0 else y[0]
        wanted = kendalltau(x, y).statistic
        np.testing.assert_equal(kendall(x, y), float(wanted), err_msg=f"seed {seed}")
