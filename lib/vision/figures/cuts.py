"""What remains of the accuracy when updates are cut to a rank, or parts of the model removed."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.pages.style import ORDER_COLORS, VIRIDIS, ranged
from lib.vision.figures.panels import cut_axis


def accuracy_against_rank(table: pd.DataFrame) -> Figure:
    """Test accuracy against the rank that updates are cut to, all together and each kind alone."""
    runs = sorted(table["variant"].unique())
    size = max(6.2, 4.4 * len(runs)), 4.2
    figure, panels = plt.subplots(1, len(runs), figsize=size, sharey=True, squeeze=False)
    for axes, variant in zip(panels[0], runs, strict=True):
        rows = table[table["variant"] == variant]
        kinds = [kind for kind in rows["kind"].unique() if kind != "all"]
        for i, kind in enumerate(kinds):
            means = rows[rows["kind"] == kind].groupby("rank")["test_accuracy"].mean()
            label = f"${kind[0]}_{kind[2:]}$ alone"
            axes.plot(means.index, means, color=VIRIDIS(0.9 * i / len(kinds)), lw=1.2, label=label)
        line = {"color": "black", "lw": 2.4, "marker": "o", "ms": 4}
        label = "all matrices, mean and range"
        together = rows[rows["kind"] == "all"]
        ranged(axes, together, "rank", "test_accuracy", **line, label=label)
        cut_axis(axes, rows)
        axes.set(
            title=variant.replace("_", " ").replace("=", " "),
            xlabel="rank r of the update, $W(0) + $SVD$_r(\\Delta W)$",
        )
    panels[0][0].set(ylabel="test accuracy", ylim=(0, 1.02))
    handles, labels = panels[0][-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def accuracy_against_pruning(table: pd.DataFrame) -> Figure:
    """Test accuracy against the share that is removed, by the order; mean and range over seeds.

    The share is what is really removed: where there are few heads, a rate is rounded to a number of
    them. Tables
    that have only the rates say so.
    """
    share = "removed" if "removed" in table else "rate"
    named = {"removed": "share removed", "rate": "rate of removal"}[share]
    runs = sorted(table["variant"].unique())
    kinds = {
        "weights": "weights, ranked together",
        "neurons": "MLP neurons of each layer",
        "heads": "heads of each layer",
    }
    size = 10.2, 0.8 + 2.5 * len(runs)
    figure, panels = plt.subplots(
        len(runs), len(kinds), figsize=size, sharex=True, sharey=True, squeeze=False
    )
    for row, variant in enumerate(runs):
        for axes, (what, name) in zip(panels[row], kinds.items(), strict=True):
            rows = table[(table["variant"] == variant) & (table["what"] == what)]
            for order, color in ORDER_COLORS.items():
                label = "at random" if order == "random" else f"{order} first"
                line = {"color": color, "label": label, "marker": "o", "ms": 3}
                ranged(axes, rows[rows["order"] == order], share, "test_accuracy", **line)
            if row == 0:
                axes.set_title(name)
            if row == len(runs) - 1:
                axes.set_xlabel(named)
        panels[row][0].set_ylabel(f"test accuracy\n{variant.replace('_', ' ').replace('=', ' ')}")
    panels[0][0].set_ylim(0, 1.02)
    panels[0][-1].legend()
    return figure
