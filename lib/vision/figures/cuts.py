"""What remains of the accuracy when updates are cut to a rank, or parts of the model removed."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import ranged, where
from lib.pages.panels import grid, shared_legend, tall_panel
from lib.pages.style import NULL_COLOR, ORDER_COLORS, VIRIDIS, number_panel
from lib.vision.figures.panels import cut_axis

LOST = (-1.5, 8.0)  # points of accuracy that a panel of losses shows
ONE_POINT = (1 - LOST[0]) / (LOST[1] - LOST[0])  # where one point stands in it, from below


def accuracy_against_rank(
    table: pd.DataFrame, whole_ranks: pd.DataFrame | None = None, bar: Bar | None = None
) -> Figure:
    """Test accuracy against the rank that updates are cut to, all together and each kind alone.

    The last panel has what is lost, seed by seed, beside the stable ranks of whole updates.
    """
    runs = sorted(table["variant"].unique())
    size = (3.6 * len(runs) + 4.6, 4.4)
    widths = [1.0] * len(runs) + [1.25]
    figure, panels = grid(1, len(widths), size, width_ratios=widths)
    lost = panels[0][-1]
    _lost_to_cuts(lost, where(table, kind="all"), whole_ranks, bar)
    number_panel(lost)
    for axes in panels[0][1:-1]:
        axes.sharey(panels[0][0])
        axes.tick_params(labelleft=False)
    for axes, variant in zip(panels[0], runs, strict=False):
        rows = where(table, variant=variant)
        kinds = [kind for kind in rows["kind"].unique() if kind != "all"]
        for i, kind in enumerate(kinds):
            means = where(rows, kind=kind).groupby("rank")["test_accuracy"].mean()
            label = f"${kind[0]}_{kind[2:]}$ alone"
            axes.plot(means.index, means, color=VIRIDIS(0.9 * i / len(kinds)), lw=1.2, label=label)
        line = {"color": "black", "lw": 2.4, "marker": "o", "ms": 4}
        label = "all matrices, mean and range"
        together = where(rows, kind="all")
        ranged(axes, together, "rank", "test_accuracy", **line, label=label)
        cut_axis(axes, rows)
        axes.set(
            title=_words(variant),
            xlabel="rank r of the update, $W(0) + $SVD$_r(\\Delta W)$",
        )
    panels[0][0].set(ylabel="test accuracy", ylim=(0, 1.02))
    shared_legend(figure, panels[0][-2], ncols=4)
    return figure


def _lost_to_cuts(
    axes: Axes, rows: pd.DataFrame, whole_ranks: pd.DataFrame | None, bar: Bar | None
) -> None:
    """Points of test accuracy that cuts of all updates cost, with a line per seed."""
    cut_axis(axes, rows)  # the scale first, which the limits follow
    runs = sorted(rows["variant"].unique())
    for i, variant in enumerate(runs):
        own = where(rows, variant=variant)
        by_seed = _by_seed(own, "rank")
        color = VIRIDIS(0.8 * i / max(1, len(runs)))
        if len(by_seed):
            _lost(axes, 100 * (by_seed.iloc[-1] - by_seed), color, _words(variant))
    if whole_ranks is not None and len(whole_ranks):
        scales = rows["init_scale"].unique() if "init_scale" in rows else []
        chosen = [np.isclose(whole_ranks["init_scale"], scale) for scale in scales]
        here = whole_ranks[np.any(chosen, axis=0)] if chosen else whole_ranks
        label = f"their mean stable rank, {here['stable_rank'].mean():.1f}"
        axes.axvline(here["stable_rank"].mean(), color=NULL_COLOR, ls=":", lw=2, label=label)
    axes.set(xlabel="rank r of all updates", title="all matrices, one line per seed")
    axes.axhline(1, color="black", lw=1, label="one point")
    draw_bar(axes, bar, vertical=True, across=ONE_POINT)
    axes.legend(loc="upper left")


def _by_seed(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """The test accuracy, a row for each value of a column and a column for each seed."""
    return rows.groupby([by, "seed"], observed=True)["test_accuracy"].mean().unstack("seed")


def _lost(axes: Axes, lost: pd.DataFrame, color: Any, label: str) -> None:
    """Lines of the points that were lost, a column each seed."""
    for number, (_, own) in enumerate(lost.items()):
        look = {"color": color, "lw": 1.1, "marker": "o", "ms": 3}
        axes.plot(own.index, own, **look, label=label if number == 0 else None)
    axes.set(ylabel="points of test accuracy that are lost", ylim=LOST)


def _words(variant: str) -> str:
    """What a run varies, as figures say it."""
    return str(variant).replace("_", " ").replace("=", " ")


def accuracy_against_pruning(table: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """Test accuracy against the share that is removed, by the order; mean and range over seeds.

    The share is what is really removed: where there are few heads, a rate is rounded to a number of
    them. Tables that have only the rates say so. The panel on the right has what pruning weights,
    the smallest first, costs in each seed.
    """
    share = "removed" if "removed" in table else "rate"
    named = {"removed": "share removed", "rate": "rate of removal"}[share]
    runs = sorted(table["variant"].unique())
    kinds = {
        "weights": "weights, ranked together",
        "neurons": "MLP neurons of each layer",
        "heads": "heads of each layer",
    }
    size = (12.0, 1.0 + 2.7 * len(runs))
    shared: Any = {"sharex": "col", "sharey": True, "width_ratios": [1, 1, 1, 1.5]}
    figure, panels = grid(len(runs), len(kinds) + 1, size, **shared)
    lost = tall_panel(figure, panels)
    _lost_to_pruning(lost, where(table, what="weights"), share, bar)
    number_panel(lost)
    for row, variant in enumerate(runs):
        for axes, (what, name) in zip(panels[row], kinds.items(), strict=False):
            rows = where(table, variant=variant, what=what)
            for order, color in ORDER_COLORS.items():
                label = "at random" if order == "random" else f"{order} first"
                line = {"color": color, "label": label, "marker": "o", "ms": 3}
                ranged(axes, where(rows, order=order), share, "test_accuracy", **line)
            if row == 0:
                axes.set_title(name)
            if row == len(runs) - 1:
                axes.set_xlabel(named)
        panels[row][0].set_ylabel(f"test accuracy\n{variant.replace('_', ' ').replace('=', ' ')}")
    panels[0][0].set_ylim(0, 1.02)
    panels[0][-2].legend()
    return figure


def _lost_to_pruning(axes: Axes, rows: pd.DataFrame, share: str, bar: Bar | None) -> None:
    """Points of test accuracy that it costs to remove weights, the smallest first."""
    runs = sorted(rows["variant"].unique())
    for i, variant in enumerate(runs):
        own = where(rows, variant=variant, order="smallest")
        by_seed = _by_seed(own, share)
        color = VIRIDIS(0.8 * i / max(1, len(runs)))
        if len(by_seed):
            _lost(axes, 100 * (by_seed.iloc[0] - by_seed), color, _words(variant))
    at_random = where(rows, order="random")
    if len(at_random):
        means = at_random.groupby(share, observed=True)["test_accuracy"].mean()
        look: Any = {"color": ORDER_COLORS["random"], "ls": ":", "lw": 2}
        axes.plot(means.index, 100 * (means.iloc[0] - means), **look, label="at random, mean")
    axes.axhline(1, color="black", lw=1, label="one point")
    axes.set(xlabel="share of the weights that is removed", xlim=(0, None))
    draw_bar(axes, bar, vertical=True, across=ONE_POINT)
    axes.set_title("weights, smallest first, one line per seed")
    axes.legend(loc="upper right")
