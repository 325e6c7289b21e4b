"""Steps to an end that is a time: as many as are needed, and a slip is refused by the names of its
params.
"""

import math

import pytest

from lib.files.files import InputError
from lib.gradual_rank.step_counts import MOST_STEPS, evenly, steps_to


@pytest.mark.parametrize(
    ("time", "rate", "wanted"), [(1.0, 0.25, 4), (1.0, 0.3, 4), (0.0, 0.3, 0), (1e6, 1.0, 10**6)]
)
def test_the_last_step_reaches_the_end_and_may_pass_it(time, rate, wanted):
    assert steps_to(time, rate, "end, rate") == wanted


def test_more_steps_and_all_of_them_several_times():
    assert steps_to(1.0, 0.3, "end, rate", more=3, times=5) == 35


@pytest.mark.parametrize(
    ("time", "rate", "more", "times", "got"),
    [
        (50.0, 1e-9, 0, 1, r"50000000000 \(50 in steps of 1e-09\)"),
        (1e6 + 1, 1.0, 0, 1, r"1000001 \("),
        (1e9, 1e-9, 0, 1, r"1e\+18 \("),
        (1e9, 5e-324, 0, 1, r"inf \("),
        (1.0, 0.0, 0, 1, r"inf \(1 in steps of 0\)"),
        (math.nan, 1.0, 0, 1, "nan"),
        (1.0, 0.5, MOST_STEPS - 1, 1, r"1000001 \("),
        (1.0, 0.5, 1, 400_000, r"1200000 \("),
    ],
)
def test_too_many_steps_are_refused_by_the_names_of_both_params(time, rate, more, times, got):
    with pytest.raises(
        InputError, match=f"^end, rate: wanted an end that takes at most 1000000 steps, got {got}"
    ):
        steps_to(time, rate, "end, rate", more=more, times=times)


def test_steps_that_are_kept_are_evenly_spaced_or_all():
    assert evenly(5, 100) == [0, 25, 50, 75, 100]
    assert evenly(9, 3) == [0, 1, 2, 3]
    assert evenly(4, 10) == [0, 3, 7, 10]
    assert evenly(2, 0) == [0]
