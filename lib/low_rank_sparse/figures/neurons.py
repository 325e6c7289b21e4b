"""The norms of neurons, and what remains when some are removed (figure 3, corollary 1)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.low_rank_sparse.figures.panels import SEEDS, dotted
from lib.pages.marks import THEORY, ranged, where
from lib.pages.panels import grid
from lib.pages.style import (
    BLUE,
    GREEN,
    HINGE_COLOR,
    INITIAL_COLOR,
    ORDER_COLORS,
    PERMUTED_COLOR,
    number_panel,
)

ORDERS = {"smallest": "smallest first", "random": "at random", "largest": "largest first"}
WITHOUT = {
    "smallest": "without the\nsmall ones",
    "random": "without as\nmany at random",
    "largest": "without as many\nof the largest",
}


def norms_and_pruning(
    neurons: pd.DataFrame, prune: pd.DataFrame, permuted: Mapping[str, str]
) -> Figure:
    """Figure 3: the norms of the rows of W_O; hinge loss and margins without a share of neurons.

    Beside the norms stand the norms after training on permuted labels, and the legends say how
    clearly they part.
    """
    figure, panels = grid(len(permuted), 3, (10.6, 3.2 * len(permuted)))
    for (norms, losses, margins), (configuration, null) in zip(
        panels, permuted.items(), strict=True
    ):
        own = where(neurons, configuration=configuration)
        _norms(norms, own, where(neurons, configuration=null))
        norms.set_ylabel(f"{configuration} readout\nshare of the neurons")
        rows = where(prune, configuration=configuration, what="neurons")
        for order, name in ORDERS.items():
            chosen = where(rows, order=order)
            color = ORDER_COLORS[order]
            ranged(losses, chosen, "rate", "hinge", color=color, label=name)
            ranged(margins, chosen, "rate", "margin", color=color)
            ranged(margins, chosen, "rate", "least_margin", color=color, ls=":")
        removed = "share of the neurons removed"
        losses.set(xlabel=removed, ylabel="test hinge loss", ylim=(-0.02, 1.04))
        margins.set(xlabel=removed, ylabel="margin; dotted: the least")
        margins.axhline(1, color="black", lw=0.8)
    panels[0][1].legend(loc="upper left")
    number_panel(panels[0][0])
    figure.suptitle(SEEDS)
    return figure


def corollary(prune: pd.DataFrame, configurations: Sequence[str]) -> Figure:
    """Corollary 1 of Li et al. (2024), a row per configuration.

    On the left stands its first half: the hinge loss with all neurons, without the small ones, and
    without as many at random or as many of the largest. On the right stands its second half: the
    loss without the small ones and a share R of the large ones, with and without one factor on the
    output, beside the law of lost scale; and the loss without a share R of the small ones alone.
    """
    n = len(configurations)
    figure, panels = grid(n, 2, (9.6, 3.5 * n), sharey=True)
    for (left, right), configuration in zip(panels, configurations, strict=True):
        rows = where(prune, configuration=configuration)
        many = where(rows, what="as many as small")
        whole = where(rows, what="neurons", order="smallest", rate=0)
        shown = {"all neurons": ("black", whole)}
        for order, name in WITHOUT.items():
            shown[name] = (ORDER_COLORS[order], where(many, order=order))
        for place, (color, of) in enumerate(shown.values()):
            values = of["hinge"].to_numpy()
            left.bar(place, values.mean(), 0.7, color=color, alpha=0.3, lw=0)
            left.plot(place + np.linspace(-0.25, 0.25, len(values)), values, ".", color=color, ms=4)
        left.set_xticks(range(len(shown)), labels=list(shown), fontsize=8)
        share = 1 - many["weights"].mean()
        title = f"{configuration} readout: {share:.0%} of the neurons are small"
        left.set(title=title, ylabel="test hinge loss")
        large = where(rows, what="large neurons")
        small = where(rows, what="small neurons")
        start = where(large, rate=0)["margin"].mean()
        R = np.linspace(0, 1, 200)
        label = rf"max(0, 1 − (1 − R) |F$_0$|), F$_0$ = {start:.2f}"
        law = np.maximum(0, 1 - (1 - R) * start)
        right.plot(R, law, **THEORY, lw=1.3, label=label)
        for of, column, color, name in (
            (large, "hinge", HINGE_COLOR, "without R of the large ones and all small ones"),
            (large, "rescaled_hinge", BLUE, "the same, one factor on the output"),
            (small, "hinge", GREEN, "without R of the small ones alone"),
        ):
            dotted(right, of, "rate", column, color, name, ms=3.5)
        removed = "share R removed at random"
        right.set(title=f"{configuration} readout", xlabel=removed, ylim=(-0.02, 1.04))
    panels[0][1].legend(loc="upper left", fontsize=7.5)
    number_panel(panels[0][0])
    figure.suptitle(f"points: seeds, bars: their mean; lines: {SEEDS}")
    return figure


def _norms(axes: Axes, of: pd.DataFrame, of_null: pd.DataFrame) -> None:
    """How the norms of all neurons are distributed, and how the norms of the null are."""
    norms = np.concatenate(list(of["norms"]))
    bins = np.histogram_bin_edges(norms, 60).tolist()
    ratio = (of["large_norm"] / of["small_norm"]).mean()
    label = f"bimodality {of['bimodality'].mean():.2f}, large / small {ratio:.2f}"
    axes.hist(norms, bins, weights=_shares(norms), color=BLUE, alpha=0.75, label=label)
    if len(of_null):
        null = np.concatenate(list(of_null["norms"]))
        label = f"permuted labels: bimodality {of_null['bimodality'].mean():.2f}"
        style: Any = {"histtype": "step", "color": PERMUTED_COLOR, "label": label}
        axes.hist(null, bins, weights=_shares(null), **style)
    kept = (of["small_norm"] / of["initial_norm"]).mean()
    for place, color, ls, label in (
        ("threshold", "black", "-", f"Otsu's threshold: {of['small_share'].mean():.0%} are small"),
        (
            "initial_norm",
            INITIAL_COLOR,
            ":",
            f"mean norm at the start; the small have {kept:.2f} of it",
        ),
    ):
        axes.axvline(of[place].mean(), color=color, ls=ls, lw=1.4, ymax=0.62, label=label)
    axes.set(xlabel="norm of a neuron, a row of $W_O$")
    axes.locator_params(axis="x", nbins=6)
    axes.legend(loc="upper right", fontsize=7)
    axes.set_ylim(top=1.65 * axes.get_ylim()[1])


def _shares(values: np.ndarray) -> np.ndarray:
    """The weight of each value in a histogram of shares."""
    return np.full(len(values), 1 / len(values))
