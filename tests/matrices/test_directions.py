"""Directions that rise one after another, all at once, and in proportion."""

import math

import numpy as np
import pytest

from lib.matrices.directions import direction_times, order, separate

STEPS = np.array([1.0, 2, 5, 10, 20, *range(40, 401, 40)])  # as sparse as those of a training


def staircase():
    """Five directions, the largest first; each jumps within one step that it has for itself."""
    after = [2, 6, 8, 10, 12]  # the saved step before the jump
    sizes = np.array([5.0, 4, 3, 2, 1])
    risen = np.arange(len(STEPS))[:, None] > np.array(after)
    return np.where(risen, sizes, 1e-6 * sizes)


def test_a_staircase_is_in_order_and_separate_though_few_steps_are_saved():
    last, begun, ended = direction_times(STEPS, staircase(), 0.05 * 5)
    assert last.tolist() == [5, 4, 3, 2, 1]
    assert order(last, ended) == pytest.approx(1)
    assert separate(begun, ended) == 1


def test_where_the_smallest_rises_first_the_order_is_the_opposite():
    sigma = staircase()[:, ::-1] * [5, 4, 3, 2, 1] / [1, 2, 3, 4, 5]  # 5 4 3 2 1 at the end
    last, begun, ended = direction_times(STEPS, sigma, 0)
    assert last == pytest.approx([5, 4, 3, 2, 1])
    assert order(last, ended) == pytest.approx(-1)
    assert separate(begun, ended) == 1


def test_growth_in_proportion_has_no_order_and_no_separation():
    grown = np.linspace(0.1, 1, len(STEPS))[:, None]
    last, begun, ended = direction_times(STEPS, grown * 2.0 ** -np.arange(4), 0)
    assert ended == pytest.approx(np.full(4, ended[0]))
    assert math.isnan(order(last, np.full(4, ended[0])))  # nothing is before anything else
    assert separate(begun, ended) == 0


def test_one_direction_has_neither():
    last, begun, ended = direction_times(STEPS, staircase(), 4.5)
    assert len(last) == 1
    assert math.isnan(order(last, ended))
    assert math.isnan(separate(begun, ended))
