"""What the figure of second events shows of tables made by hand."""

import math

import pytest

from lib.files.params import Interval
from lib.gradual_rank.figures.second_event import KEYS, SECOND, what_rises_second
from lib.pages.bars import Bar
from tests.stages.made import legend, table

HEADS = table("""
case     seed before crossing
full     4    1      -6
full     5    1      -
full     6    2      -
rank_one 4    1      -
""")
RISES = table("""
case     seed log10_init_scale first keys values first_said keys_said values_said
full     4    -4               20    50   40     20         52        41
full     4    -8               40    90   inf    40         91        99
full     4    -16              80    180  inf    80         181       230
full     5    -4               20    50   inf    20         52        99
full     6    -4               20    50   40     20         52        41
rank_one 4    -4               20    50   inf    20         52        999
""")
WAITS = table("""
case     seed log10_init_scale added added_said added_pair
full     4    -8               9     9          9
full     4    -16              2     2          4
full     5    -16              3     2          1
rank_one 4    -4               1     1.5        9
""")
COURSES = table("""
case seed log10_init_scale time sigma_keys sigma_values sigma_values_2
full 4    -4               0    1e-8       1e-5         1e-6
full 4    -4               50   .05        1            .06
full 4    -8               0    1e-16      1e-5         1e-12
full 4    -8               90   .05        1            .01
full 4    -16              0    1e-16      1e-5         1e-12
full 4    -16              180  .05        1            .001
""")


@pytest.fixture
def panels():
    bar = Bar(Interval("[0.9, 1.1]"), "near")
    return what_rises_second(HEADS, RISES, WAITS, COURSES, bar).axes


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_waits_from_the_smallest_scale_stand_by_what_saddles_say(panels):
    axes = panels[0]
    assert axes.get_gid() == "view: number"
    drawn = lines(axes)
    assert list(drawn["teacher of full rank"].get_xdata()) == [2, 2]
    assert list(drawn["teacher of full rank"].get_ydata()) == [2, 3]
    assert list(drawn["of rank one"].get_xydata()[0]) == [1.5, 1]
    assert list(drawn["saddle of the second pair"].get_xdata()) == [4, 1]
    assert drawn["theory"].get_linestyle() == "--"
    assert "1.2500 of what is said\n(asked: 0.9 to 1.1)" in axes.get_title()


def test_courses_are_from_the_largest_scale_and_the_largest_with_keys_second(panels):
    large, small = panels[1:3]
    assert "a direction of" in large.get_title()
    assert "10^{-4}" in large.get_title()
    assert "10^{-8}" in small.get_title()
    assert "a direction of" not in small.get_title()
    efolds = 8 * math.log(10)
    dashed = [line for line in small.lines if line.get_linestyle() == "--"]
    wanted = [40 / efolds, 99 / efolds, 91 / efolds]
    assert [line.get_xdata()[0] for line in dashed] == pytest.approx(wanted)
    assert len(legend(large)) == 3


def test_heads_are_sorted_by_where_their_order_changes(panels):
    axes = panels[3]
    keys, values = (line for line in axes.lines if line.get_marker() == "o")
    assert (keys.get_color(), values.get_color()) == (KEYS, SECOND)
    # seed 5 has keys second from every scale, seed 6 from none
    assert sorted(zip(keys.get_xdata(), keys.get_ydata(), strict=True)) == [(4, 0), (8, 1), (16, 1)]
    assert sorted(zip(values.get_xdata(), values.get_ydata(), strict=True)) == [(4, 1), (4, 2)]
    [turn] = axes.collections[0].get_segments()
    assert turn[:, 0].tolist() == [6, 6]
