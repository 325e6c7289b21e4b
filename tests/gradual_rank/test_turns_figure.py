"""What the figure of normalised heads after their turn shows of tables made by hand."""

import pytest

from lib.files.params import Interval
from lib.gradual_rank.figures.turns import after_the_turn
from lib.pages.bars import Bar
from tests.stages.made import table

LAGS = table("""
case    seed log10_init_scale matrix lag
plain   4    -4               W_KQ   9
plain   4    -1               W_KQ   6
plain   4    -1               W_VO   6
plain   4    -4               W_VO   9
qk_norm 4    -1               W_KQ   5
qk_norm 4    -4               W_KQ   5
qk_norm 4    -1               W_VO   6
qk_norm 4    -4               W_VO   9
qk_norm 9    -1               W_KQ   10
qk_norm 9    -4               W_KQ   10
qk_norm 9    -1               W_VO   11
qk_norm 9    -4               W_VO   14
""")
COURSES = table("""
case    seed log10_init_scale time W_KQ_1 W_KQ_2 W_KQ_3 W_VO_1 W_VO_2 W_VO_3
qk_norm 4    -1               0    9      9      9      9      9      9
qk_norm 4    -4               0    0      0      0      0      0      0
qk_norm 4    -4               5    1      .5     .25    4      2      1
qk_norm 4    -4               9    2      1      .5     8      8      8
""")
LAWS = table("""
law                          seed own  other
turn_wait.pre_norm           4    1.01 1.1
turn_wait_doubled.small_gain 4    1.02 .5
gain_wait.learned_gain       4    .99  .3
rise_wait.decayed            4    1    1.2
""")
HEADS = table("""
case         seed log10_init_scale turn
decayed      4    -3               9
decayed      4    -4               8
decayed_keys 4    -4               4
""")
LIMITS = table("""
case         seed turn turn_undecayed
decayed      4    8    8
decayed_keys 4    6    8
""")


@pytest.fixture
def panels():
    bar = Bar(Interval("[0, 0.02]"), "less")
    return after_the_turn(LAGS, COURSES, LAWS, HEADS, LIMITS, bar).axes


def test_a_course_is_from_the_smallest_scale_over_its_last_values(panels):
    drawn = [list(line.get_ydata()) for line in panels[0].lines]
    assert drawn == [[0, 0.5, 1]] * 3 + [[0, 0.5, 1], [0, 0.25, 1], [0, 0.125, 1]]


def test_lags_stand_by_scale_for_both_products_with_the_bar(panels):
    lags = {line.get_label(): list(line.get_ydata()) for line in panels[1].lines}
    values = lags["$W_V W_O^\\top$, QK-norm"]
    assert values == [8.5, 11.5]
    assert lags["$W_K W_Q^\\top$, QK-norm"] == [7.5, 7.5]
    assert lags["$W_K W_Q^\\top$, plain"] == [6, 9]
    assert "at most 0.02" in panels[1].get_title()
    assert panels[1].get_gid() == "view: number"


def test_laws_and_nulls_are_drawn_row_by_row_beside_one(panels):
    xs = [float(line.get_xdata()[0]) for line in panels[2].lines]
    assert xs == [1.1, 1.01, 0.5, 1.02, 0.3, 0.99, 1.2, 1, 1]
    assert panels[2].lines[-1].get_linestyle() == "--"


def test_turns_under_decay_stand_beside_what_is_said_of_them(panels):
    assert [list(line.get_ydata()) for line in panels[3].lines] == [[1], [0.5]]
    said = [[y for _, y in one.get_segments()[0]] for one in panels[3].collections]
    assert said == [[1, 1], [0.75, 0.75]]
    assert panels[3].collections[0].get_label() == "theory"
