"""What the figure of cross-entropy shows of tables made by hand."""

import pytest

from lib.files.params import Interval
from lib.gradual_rank.figures.cross_entropy import cross_entropy_plateaus
from lib.pages.bars import Bar
from tests.stages.made import table

SUPPORTS = table("""
case   seed log10_init_scale supports supports_by_gradient
linear 4    -2               .2       .1
linear 4    -8               .6       .3
linear 5    -2               .4       .1
linear 5    -8               .8       .1
head   4    -2               .5       .25
head   4    -8               1        .25
""")
STAGES = table("""
case   seed share stage time p
linear 4    .1    0     0    0,0
linear 4    .1    1     2    0,4
linear 5    .1    0     0    0,0
linear 5    .1    1     2    2,-2
head   4    .1    0     0    0,0
head   4    .1    1     4    0,3
head   4    .1    2     8    -5,3
head   4    0     1     3    0,9
""")
COURSES = table("""
case   seed share log10_init_scale rescaled_time p
linear 4    .1    -8               2             0,4
linear 4    0     -8               2             0,8
linear 5    .1    -8               1             1,-1
linear 5    0     -8               3             4,-8
head   4    .1    -8               20            -5,3
head   4    .1    -8               4             0,2
head   4    0     -8               4             0,32
""")


@pytest.fixture
def panels():
    return cross_entropy_plateaus(SUPPORTS, COURSES, STAGES, Bar(Interval("[.85, 1]"), "more")).axes


def drawn(axes):
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines}


def test_supports_are_means_by_scale_beside_their_null_with_the_bar(panels):
    shares = panels[0]
    assert shares.get_gid() == "view: number"
    said = "attention heads 100%, linear classifiers 70%\n(asked: at least 0.85)"
    assert said in shares.get_title()
    lines = drawn(shares)
    assert lines["linear classifiers"] == pytest.approx([0.3, 0.7])
    assert lines["attention heads"] == [0.5, 1]
    assert lines["products by their gradient at 0"] == pytest.approx([0.1, 0.2])
    assert [label.get_text() for label in shares.get_xticklabels()] == ["$10^{-2}$", "$10^{-8}$"]


def test_the_course_is_of_a_head_with_decay_on_the_stairs_of_algorithm_1(panels):
    solid = [line for line in panels[1].lines if line.get_linestyle() == "-"]
    dashed = [line for line in panels[1].lines if line.get_linestyle() == "--"]
    assert [list(line.get_ydata()) for line in solid] == [[0, -5], [2, 3]]
    assert list(solid[0].get_xdata()) == [4, 20]
    assert list(dashed[0].get_ydata()) == [0, 0, 0, 0, -5, -5]
    assert list(dashed[1].get_xdata()) == [0, 4, 4, 8, 8, 24]


def test_sizes_are_over_those_of_the_last_plateau_with_decay(panels):
    lines = [line for line in panels[2].lines if line.get_linestyle() == "-"]
    found = sorted((list(line.get_xdata()), list(line.get_ydata())) for line in lines)
    assert found == [
        ([0.5], [0.5]),
        ([0.5], [4]),
        ([0.5, 2.5], [0.25, 1]),
        ([1], [1]),
        ([1], [2]),
        ([1.5], [3]),
    ]
    assert drawn(panels[2])["Algorithm 1's end with decay"] == [1, 1]
