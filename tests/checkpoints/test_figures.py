"""The spectra of the largest updates are drawn whatever the names of the tensors are."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lib.checkpoints.figures import heads_through_training, pruned, spectra_of_snapshots
from lib.files.params import Interval
from lib.pages.bars import Bar
from lib.pages.style import rendered, styled


def spectra(names: dict[str, int]) -> pd.DataFrame:
    """A row for each module, with the layer of its name."""
    shared = {"of": "update", "head": 0, "step": 1, "run": "tuned", "edge": 0.1}
    return pd.DataFrame(
        [
            shared | {"module": name, "layer": layer, "norm": i + 1.0, "singular_values": [3.0, 1]}
            for i, (name, layer) in enumerate(names.items())
        ]
    )


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"a.weight": 0, "b.weight": 0}, ["b", "a"]),  # no name holds a number
        ({"wte.weight": 0, "h.0.weight": 1}, ["h.0"]),
        ({r"h.0.\frac$x^$.weight": 1}, [r"h.0.\frac$x^$"]),
    ],
)
def test_every_name_is_drawn_as_it_stands(names, shown):
    with styled():
        figure = spectra_of_snapshots(spectra(names))
        assert [axes.get_title() for axes in figure.axes if axes.get_title()] == shown
        assert b"<svg" in rendered(figure)
        plt.close(figure)


def test_values_that_may_be_below_the_true_ones_have_a_band_up_to_these():
    table = spectra({"h.0.weight": 1, "h.1.weight": 2})
    table["errors"] = [[], [0.25, 0.5]]
    figure = spectra_of_snapshots(table)
    last, first = figure.axes[:2]
    assert not first.collections
    [band] = last.collections
    drawn = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(1, 3.0), (2, 1.0), (1, 3.25), (2, 1.5)} <= drawn
    plt.close(figure)


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
