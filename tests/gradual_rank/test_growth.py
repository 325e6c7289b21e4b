"""What a course says of order and separation, on made lines."""

import numpy as np
import pytest

from lib.gradual_rank.growth import around, learned_in_order, separate, slopes


def test_products_are_ordered_in_both_halves_and_counted_at_the_first_look_at_a_low_loss():
    """The sizes 1, 2, 4 and 3 are there from the times 5, 3, 2 and 1 on. The larger of the two
    values is later; among all six pairs this is the only one in which the larger is. The loss is
    low from time 2 on, when two are there; a look at every third time sees that at 3, when three
    are.
    """
    times, last = np.arange(6.0), np.array([-1.0, 2.0, -4.0, 3.0])
    one = np.where(times[:, None] >= [5, 3, 2, 1], last, 0.6 * last)
    course = times, np.stack([one, one[:, ::-1]])

    def found(share, **options):
        return learned_in_order(lambda p: 10 - p.abs().sum(-1), *course, share, 1.5, **options)

    assert found(0.15)["rank_early"].tolist() == [2, 2]
    assert found(0.15, every=3)["rank_early"].tolist() == [3, 3]
    assert found(-1)["rank_early"].tolist() == [-1, -1]
    assert found(-1)["order"] == pytest.approx([4 / 6, 4 / 6])
    assert found(-1)["order_VO"] == pytest.approx([-1, 1])


def test_directions_are_separate_where_one_begins_after_the_one_before_has_ended():
    """They end in the order 0, 2, 1."""
    assert separate(np.array([0.0, 0.5, 6.0]), np.array([1.0, 9.0, 8.0])) == 0.5
    assert separate(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == 1


@pytest.mark.parametrize("window", [(0.2, 0.7), (0.25, 0.5), (0.0, 0.3), (0.6, 9.0), (0.26, 0.27)])
def test_slopes_need_no_more_of_a_course_than_what_is_around_the_window(window):
    """The window's ends lie between times, on one, in one interval, and beyond the last."""
    times = np.array([0.0, 0.1, 0.25, 0.3, 0.5, 0.8, 1.0])
    course = np.random.default_rng(0).normal(size=(7, 2, 3))
    some = around(times, window)
    assert len(some) <= 4
    found = slopes(times[some], course[some], window)
    begin, end = (
        [[np.interp(time, times, course[:, k, i]) for i in range(3)] for k in range(2)]
        for time in window
    )
    wanted = (np.array(end) - begin) / (window[1] - window[0])
    assert found.tolist() == wanted.tolist()
