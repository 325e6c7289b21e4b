"""What the figure of the sweeps says of a table made by hand."""

from lib.low_rank_sparse.figures.scaling import robustness
from tests.stages.made import table, ticks

SWEEP = table("""
sweep      value seed W_Q_energy_2 W_K_energy_2 W_Q_gap_2 W_K_gap_2 small_share large_over_small
confusion  0     0    0.98         0.99         0.1       0.1       0.2         5
confusion  4     0    0.99         0.8          0.5       0.2       0.2         5
batch_size 10    0    0.97         0.98         0.1       0.1       0.2         5
neurons    20    0    0.98         0.98         0.1       0.1       0.2         5
""")


def test_each_sweep_has_a_row_and_a_value_that_breaks_the_claim_is_named():
    figure = robustness(SWEEP)
    shares, *small = figure.axes
    assert ticks(shares.yaxis) == [
        "confusion tokens,\n0 to 4",
        "batch size,\n10 to 10",
        "neurons m,\n20 to 20",
    ]
    assert [line.get_xdata().tolist() for line in shares.lines] == [[0.98], [0.8], [0.97], [0.98]]
    assert [text.get_text() for text in shares.texts] == ["4"]
    assert [axes.get_xlabel() for axes in small] == ["confusion tokens", "neurons m"]
