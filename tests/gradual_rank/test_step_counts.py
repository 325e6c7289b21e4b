"""Steps to an end that is a time: as many as are needed, and a slip is refused by the names of its
params.
"""

from lib.gradual_rank.step_counts import evenly, steps_to


def test_more_steps_and_all_of_them_several_times():
    assert steps_to(1.0, 0.3, "end, rate", more=3, times=5) == 35


def test_steps_that_are_kept_are_evenly_spaced_or_all():
    assert evenly(5, 100) == [0, 25, 50, 75, 100]
    assert evenly(9, 3) == [0, 1, 2, 3]
    assert evenly(4, 10) == [0, 3, 7, 10]
    assert evenly(2, 0) == [0]
