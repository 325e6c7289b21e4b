"""A power law's exponent comes back."""

import numpy as np
import pytest

from lib.analysis.scaling import log_log_slope


def test_the_exponent_of_a_power_law_comes_back():
    x = [0.3, 1.0, 2.0, 7.0]
    assert log_log_slope(x, [5 * value**-1.5 for value in x]) == pytest.approx(-1.5)


def test_it_is_numpys_least_squares_fit():
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.normal(size=(2, 20)))
    assert log_log_slope(x.tolist(), y.tolist()) == pytest.approx(np.polyfit(np.log(x), np.log(y), 1)[0])


@pytest.mark.parametrize(("x", "y"), [([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 2.0]), ([-1.0, 2.0], [1.0, 2.0])])
def test_what_has_no_slope_is_refused(x, y):
    with pytest.raises(ValueError, match="wanted positive values at two different x or more, got"):
        log_log_slope(x, y)
