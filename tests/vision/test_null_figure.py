"""The figure of the nulls has a column for what was run, and none for what was not."""

from lib.vision.figures.ranks import rank_against_nulls
from tests.stages.made import table, ticks

RANKS = table("""
matrix of       control              init_scale seed step stable_rank
W_KQ   update   none                 0.1        0    1    1.5
W_KQ   update   none                 0.1        0    9    2.0
W_KQ   update   none                 1.0        0    1    1.5
W_KQ   update   none                 1.0        0    9    3.0
W_KQ   update   optimizer=sgd,rate=1 1.0        0    9    4.0
W_VO   update   none                 0.1        0    9    2.5
W_VO   update   none                 1.0        0    9    2.5
""")


def test_a_scale_has_the_columns_that_were_run_from_it_as_wide_as_they_are_many():
    figure = rank_against_nulls(RANKS, [0.1, 1.0])
    _, _, small, large = figure.axes
    assert ticks(small.xaxis) == ["learned", "first step"]
    assert ticks(large.xaxis) == ["learned", "first step", "trained with SGD"]
    widths = figure.axes[0].get_gridspec().get_width_ratios()
    assert list(widths) == [2, 3]
    drawn = [line.get_ydata().tolist() for line in figure.axes[1].lines]
    assert drawn == [[3], [1.5], [4]]
