"""What the figure of waits under momentum, ε and warm-up shows of tables made by hand."""

import math

import pytest

from lib.files.params import Interval
from lib.gradual_rank.figures.momentum import waits_of_optimizers
from lib.pages.bars import Bar
from tests.stages.made import legend, table

WAITS = table("""
case        rule     beta beta_2 eps   seed added added_law added_memory
gd          sgd      0    0      0     4    40    40        -
gd          sgd      0    0      0     5    80    80        -
beta_90     sgd      .9   0      0     4    10    8         -
beta_90     sgd      .9   0      0     5    20    16        -
nesterov_90 nesterov .9   0      0     4    8     8         -
eps_1e-2    adam     .9   .999   1e-2  4    200   200       199
eps_1e-5    adam     .9   .999   1e-5  4    8     10        9
eps_1e-8    adam     .9   .999   1e-8  4    -1    2         2
eps_1e-30   adam     .9   .999   1e-30 4    7     9         9
short       adam     .9   .9     1e-5  4    9.5   10        9
gd          sgd      0    0      0     4    -     -         -
""").assign(learning_rate=0.1, sigma=0.1, efolds=math.log(100))
COURSES = table("""
case      log10_init_scale step value expected
gd        -1               0    .1    .1
gd        -1               9    .2    .3
gd        -2               0    .01   .01
warm_200  -1               0    .1    .1
warm_200  -1               19   .4    .5
other     -1               5    1     1
""")
ROOTS = table("""
seed place wait
4    0     1
4    .9    .3
-1   1     8
-1   10    2
""")


@pytest.fixture
def panels():
    return waits_of_optimizers(WAITS, COURSES, ROOTS, Bar(Interval("[0.99, 1.01]"), "near")).axes


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def test_waits_under_momentum_are_shares_of_those_of_plain_descent(panels):
    axes = panels[0]
    assert axes.get_gid() == "view: number"
    assert "1.2500 of the root's wait\n(asked: 0.99 to 1.01)" in axes.get_title()
    drawn = lines(axes)
    assert list(drawn["momentum"].get_xdata()) == [0, 0, 0.9, 0.9]
    assert list(drawn["momentum"].get_ydata()) == [1, 1, 0.25, 0.25]
    assert list(drawn["Nesterov"].get_ydata()) == [0.2]
    root = drawn["the root μ"]
    assert root.get_linestyle() == "--"
    assert list(root.get_ydata()) == [1, 0.3]


def test_adams_waits_stand_by_the_strength_of_its_step(panels):
    drawn = lines(panels[1])
    assert list(drawn["Adam"].get_xdata()) == pytest.approx([1, 1e3, 1e6])
    assert list(drawn["Adam"].get_ydata()) == pytest.approx([100, 4, 0.1])
    assert list(drawn["the root μ"].get_ydata()) == [8, 2]
    assert "PyTorch's" in panels[1].texts[1].get_text()


def test_ratios_of_few_steps_are_left_out(panels):
    drawn = lines(panels[2])
    assert list(drawn["Adam, β₂ = 0.999"].get_ydata()) == [1, 0.8]
    assert list(drawn["Adam, β₂ = 0.9"].get_ydata()) == [0.95]
    assert list(drawn["one number under Adam"].get_ydata()) == [0.995, 0.9]


def test_courses_are_of_one_scale_beside_theory(panels):
    axes = panels[3]
    assert list(lines(axes)["warm-up of 200 steps"].get_ydata()) == [0.1, 0.4]
    assert list(lines(axes)["theory"].get_ydata()) == [0.1, 0.3]
    assert "warm-up of 200 steps" in legend(axes)
    assert 1 not in [value for line in axes.lines for value in line.get_ydata()]


def test_a_table_in_which_nothing_rose_is_drawn_empty():
    axes = waits_of_optimizers(WAITS.assign(added=math.nan), COURSES.iloc[:0], ROOTS).axes
    assert len(axes) == 4
    assert not axes[1].lines
