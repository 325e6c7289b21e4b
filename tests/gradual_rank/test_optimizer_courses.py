"""What a course says: times on made lines, order and separation of made directions, plateaus,
slopes.
"""

import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.growth import (
    at_times,
    learned_in_order,
    separate,
    slopes,
)


def test_between_two_times_a_course_is_on_their_straight_line_and_beyond_the_ends_it_stays():
    courses = np.array([[[0.0, 8.0], [1.0, 6.0], [5.0, 4.0]], [[1.0, 1.0], [2.0, 1.0], [4.0, 3.0]]])
    found = at_times(np.array([-1.0, 0.5, 1.0, 2.0, 9.0]), np.array([0.0, 1.0, 3.0]), courses)
    assert found[0].tolist() == [[0, 8], [0.5, 7], [1, 6], [3, 5], [5, 4]]
    assert found[1].tolist() == [[1, 1], [1.5, 1], [2, 1], [3, 2], [4, 3]]


def test_products_are_ordered_in_both_halves_and_counted_at_the_first_look_at_a_low_loss():
    """Sizes 1, 2, 4, 3 that are there from 5, 3, 2 and 1: of the values the larger is later, of all
    that is the one pair of six that is so. The loss is low from 2 on, when two are there; a look at
    every third time sees that at 3, when three are.
    """
    times, begun, last = np.arange(6.0), np.array([5, 3, 2, 1]), np.array([-1.0, 2.0, -4.0, 3.0])
    one = np.where(times[:, None] >= begun, last, 0.1 * last)
    course = times, np.stack([one, one[:, ::-1]])

    def loss(p: torch.Tensor) -> torch.Tensor:
        return 10 - p.abs().sum(-1)

    found = learned_in_order(loss, *course, 0.3, 0.5, every=3)
    assert found["rank_early"].tolist() == [3, 3]
    assert found["order"] == pytest.approx([4 / 6, 4 / 6])
    assert found["order_VO"] == pytest.approx([-1, 1])
    found = learned_in_order(loss, *course, 0.3, 0.5, to_the_end=False)
    assert found["rank_early"].tolist() == [2, 2]
    never = learned_in_order(loss, *course, -1, 0.5)
    assert never["rank_early"].tolist() == [-1, -1]


def test_directions_are_separate_where_one_begins_after_the_one_before_has_ended():
    begun, ended = (
        np.array([0.0, 0.5, 6.0]),
        np.array([1.0, 9.0, 8.0]),
    )  # these in the order 0, 2, 1
    assert separate(begun, ended) == 0.5
    assert separate(np.array([0.0, 1.0]), np.array([1.0, 2.0])) == 1
    assert math.isnan(separate(begun[:1], ended[:1]))


def test_slopes_are_those_between_the_ends_of_the_window():
    times = np.linspace(0, 0.2, 41)
    sigma = np.stack([times, 3 * times, times**2], 1)
    np.testing.assert_allclose(slopes(times, sigma, 3, (0.05, 0.15)), [1, 3, 0.2], rtol=1e-6)
    assert [len(slopes(times, sigma, n, (0.05, 0.15))) for n in (2, 0)] == [2, 0]
