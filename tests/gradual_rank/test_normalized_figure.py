"""What the figure of heads with normalised queries and keys shows of tables made by hand."""

import math

import numpy as np
import pytest

from lib.files.params import Interval
from lib.gradual_rank.figures.normalized import normalized_heads
from lib.pages.bars import Bar
from tests.stages.made import table

HEADS = table("""
case     seed log10_init_scale turn rise angle
plain    4    -1               2    4    0
plain    4    -2               4    9    1
plain    4    -3               7    14   2
permuted 4    -1               9    1    0
permuted 4    -2               8    1    -
permuted 4    -3               8    1    -
qk_norm  4    -1               3    3    0
qk_norm  4    -2               5    6    45
qk_norm  4    -3               5.5  8    60
""")
LIMITS = table("""
case    seed turn growth
plain   4    inf  .5
qk_norm 4    5.25 1.5
""")
COURSES = table("""
case    seed log10_init_scale time turned sigma
plain   4    -1               0    0      .1
plain   4    -3               0    0      .2
plain   4    -3               9    .7     .3
qk_norm 4    -3               0    0      .4
qk_norm 4    -3               5    .8     .5
""")


@pytest.fixture
def panels():
    change = Bar(Interval("[0, 0.25]"), "less")
    return normalized_heads(HEADS, LIMITS, COURSES, change, Bar(Interval("[30, 180]"), "more")).axes


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_turns_stand_by_scale_beside_their_limit_with_the_bar(panels):
    turns = panels[0]
    assert turns.get_gid() == "view: number"
    assert "changes by 10 %" in turns.get_title()
    assert "plain 75 % (asked: at most 0.25 of it)" in turns.get_title()
    drawn = lines(turns)
    assert list(drawn["plain attention"].get_ydata()) == [2, 4, 7]
    assert list(drawn["QK-norm"].get_xdata()) == [1, 2, 3]
    assert list(drawn["QK-norm"].get_ydata()) == [3, 5, 5.5]
    assert list(drawn["limit, no scale in it"].get_ydata()) == [5.25, 5.25]
    assert drawn["limit, no scale in it"].get_linestyle() == "--"


def test_rises_have_the_slope_that_growth_predicts(panels):
    drawn = lines(panels[1])
    assert list(drawn["QK-norm"].get_ydata()) == [3, 6, 8]
    theory = drawn["theory"]
    slope = math.log(10) / 1.5
    np.testing.assert_allclose(theory.get_xdata(), [1, 3])
    np.testing.assert_allclose(theory.get_ydata(), [8 - 2 * slope, 8])


def test_angles_have_their_bar_and_the_course_is_from_the_smallest_scale(panels):
    angles = lines(panels[2])
    assert list(angles["QK-norm"].get_ydata()) == [0, 45, 60]
    assert list(angles["asked from $10^{-3}$: at least 30°"].get_ydata()) == [30, 30]
    course = [list(line.get_ydata()) for line in panels[3].lines]
    assert course == [[0, 0.7], [0.2, 0.3], [0, 0.8], [0.4, 0.5]]
