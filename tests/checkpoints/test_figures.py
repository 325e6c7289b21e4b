"""Figures of pruning and of heads: their bars, and what is written above a panel."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from lib.checkpoints.figures.fine_tunes import heads_through_training, pruned
from lib.files.params import Interval
from lib.pages.bars import Bar


def test_the_bar_of_pruning_is_a_multiple_of_the_cost_above_the_tuned_loss():
    pruning = pd.DataFrame(
        {
            "run": "gentle-0",
            "what": ["updates, smallest first"] * 2 + ["updates, at random"] * 2,
            "rate": [0.3, 0.7] * 2,
            "loss": [2.1, 2.4, 2.5, np.nan],
        }
    )
    losses = pd.DataFrame(
        {"run": ["gentle-0"], "loss_tuned": [2.0], "loss_without_linear": [np.inf]}
    )
    figure = pruned(pruning, losses, Bar(Interval("[2, inf)"), "more"))
    [asked] = [line for line in figure.axes[0].lines if "asked" in str(line.get_label())]
    np.testing.assert_allclose(asked.get_ydata(), [2.2, 2.8])
    assert asked.get_label() == "at random, asked: at least 2 times the cost"
    plt.close(figure)


def test_the_ratio_of_ranks_in_random_order_is_written_above_its_panel_where_there_is_one():
    heads = pd.DataFrame(
        {
            "model": "small",
            "module": "W_VO",
            "step": [1, 9, 1, 9],
            "offset": 0,
            "text": ["language", "language", "permuted", "permuted"],
            "stable_rank": [1.0, 4.0, 1.0, 2.0],
        }
    )
    heads = pd.concat([heads, heads.assign(module="W_KQ")])
    bar = Bar(Interval("(0, 1)"), "less")
    below = heads_through_training(heads, bar).axes[1]
    assert below.get_title() == "small: in random order 0.50 times"
    assert below.lines[-1].get_ydata() == [4, 4]
    alone = heads_through_training(heads[heads["text"] == "permuted"], bar).axes[1]
    assert alone.get_title() == ""
    assert len(alone.lines) == 1
    plt.close("all")
