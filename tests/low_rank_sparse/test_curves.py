"""The numbers that curves are summed up by."""

import pytest

from lib.low_rank_sparse.measures import log_log_slope, nearest, needed


@pytest.mark.parametrize(
    ("x", "y"), [([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 2.0]), ([-1.0, 2.0], [1.0, 2.0])]
)
def test_what_has_no_slope_is_refused(x, y):
    with pytest.raises(ValueError, match="wanted positive values at two different x or more, got"):
        log_log_slope(x, y)


def test_of_values_as_near_the_lower_is_nearest():
    assert nearest([0.75, 0.25, 0.5], 0.625) == 0.5


@pytest.mark.parametrize(
    ("losses", "number"),
    [
        ([0.4, 0.1, 0.025], 2 * 2**0.5 * 2**0.5),  # at a number that was tried
        ([0.4, 0.2, 0.05], 4 * 2**0.5),  # halfway between 0.2 and 0.05, in logarithms
        ([0.05, 0.2, 0.05], 4 * 2**0.5),
        ([0.4, 1.0, 0.0], 4 * 2 ** (1 / 3)),  # no loss counts as a hundredth of the threshold
    ],
)
def test_so_many_samples_are_needed_from_which_on_the_loss_is_low(losses, number):
    assert needed([2, 4, 8], losses, 0.1) == pytest.approx(number)
