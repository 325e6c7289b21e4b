"""The norms of neurons, and what remains when some are removed (figure 3 of Li et al. 2024,
corollary 1).
"""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.style import (
    BLUE,
    GREEN,
    HINGE_COLOR,
    NULL_COLOR,
    ORANGE,
    ORDER_COLORS,
    PERMUTED_COLOR,
    ranged,
)

ORDERS = {
    "smallest": (ORDER_COLORS["smallest"], "smallest first"),
    "random": (ORDER_COLORS["random"], "at random"),
    "largest": (ORDER_COLORS["largest"], "largest first"),
}
SEEDS = "mean over seeds, least to largest shaded"


def norms_and_pruning(
    neurons: pd.DataFrame, prune: pd.DataFrame, permuted: Mapping[str, str]
) -> Figure:
    """Figure 3: the norms of the rows of W_O; hinge loss and margins against the share of neurons
    removed.

    Beside the norms those of the training on permuted labels, and in the titles how clearly they
    part.
    """
    figure, panels = plt.subplots(
        len(permuted), 3, figsize=(10.6, 3.2 * len(permuted)), squeeze=False
    )
    for line, (configuration, null) in zip(panels, permuted.items(), strict=True):
        of, of_null = (neurons[neurons["configuration"] == name] for name in (configuration, null))
        _norms(line[0], of, of_null)
        line[0].set_ylabel(f"{configuration} readout\nshare of the neurons")
        rows = prune[(prune["configuration"] == configuration) & (prune["what"] == "neurons")]
        for order, (color, name) in ORDERS.items():
            chosen = rows[rows["order"] == order]
            ranged(line[1], chosen, "rate", "hinge", color=color, label=name)
            ranged(line[2], chosen, "rate", "margin", color=color)
            ranged(line[2], chosen, "rate", "least_margin", color=color, ls=":")
        line[1].set(
            xlabel="share of the neurons removed", ylabel="test hinge loss", ylim=(-0.02, 1.04)
        )
        line[2].set(xlabel="share of the neurons removed", ylabel="margin; dotted: the least")
        line[2].axhline(1, color="black", lw=0.8)
    panels[0][1].legend(loc="upper left")
    figure.suptitle(SEEDS)
    return figure


def corollary(prune: pd.DataFrame, configurations: Sequence[str]) -> Figure:
    """Corollary 1 of Li et al. (2024), a row per configuration.

    Left, its first half: the hinge loss with all neurons, without the small ones, and without as
    many at random or as many of the largest. Right, its second half: with the small ones gone, the
    loss without a share R of the large ones, with and without one factor on the output, beside the
    law of lost scale; and without a share R of the small ones alone.
    """
    figure, panels = plt.subplots(
        len(configurations), 2, figsize=(9.6, 3.5 * len(configurations)), sharey=True, squeeze=False
    )
    for (left, right), configuration in zip(panels, configurations, strict=True):
        rows = prune[prune["configuration"] == configuration]
        neurons, many = (rows[rows["what"] == what] for what in ("neurons", "as many as small"))
        whole = neurons[(neurons["order"] == "smallest") & (neurons["rate"] == 0)]
        shown = [("all neurons", "black", whole)]
        names = {"smallest": "without the\nsmall ones", "random": "without as\nmany at random"}
        names |= {"largest": "without as many\nof the largest"}
        shown += [
            (names[order], color, many[many["order"] == order])
            for order, (color, _) in ORDERS.items()
        ]
        for place, (_, color, of) in enumerate(shown):
            values = of["hinge"].to_numpy()
            left.bar(place, values.mean(), 0.7, color=color, alpha=0.3, lw=0)
            left.plot(place + np.linspace(-0.25, 0.25, len(values)), values, ".", color=color, ms=4)
        share = 1 - many["weights"].mean()
        left.set_xticks(range(len(shown)), labels=[name for name, *_ in shown], fontsize=8)
        left.set(
            title=f"{configuration} readout: {share:.0%} of the neurons are small",
            ylabel="test hinge loss",
        )
        large, small = (rows[rows["what"] == f"{size} neurons"] for size in ("large", "small"))
        start = large[large["rate"] == 0]["margin"].mean()
        R = np.linspace(0, 1, 200)
        right.plot(
            R,
            np.maximum(0, 1 - (1 - R) * start),
            color="black",
            ls="--",
            lw=1.3,
            label=rf"max(0, 1 − (1 − R) |F$_0$|), F$_0$ = {start:.2f}",
        )
        for of, column, color, name in (
            (large, "hinge", HINGE_COLOR, "without R of the large ones and all small ones"),
            (large, "rescaled_hinge", BLUE, "the same, one factor on the output"),
            (small, "hinge", GREEN, "without R of the small ones alone"),
        ):
            ranged(right, of, "rate", column, color=color, marker="o", ms=3.5, label=name)
        right.set(
            title=f"{configuration} readout", xlabel="share R removed at random", ylim=(-0.02, 1.04)
        )
    panels[0][1].legend(loc="upper left", fontsize=7.5)
    figure.suptitle(f"points: seeds, bars: their mean; lines: {SEEDS}")
    return figure


def what_to_prune(prune: pd.DataFrame, configurations: Sequence[str]) -> Figure:
    """Hinge loss against the share of W_O that is left: neurons, single weights, N:M groups;
    dotted: rescaled.
    """
    figure, panels = plt.subplots(
        1, len(configurations), figsize=(4.6 * len(configurations), 3.5), sharey=True, squeeze=False
    )
    kinds = [
        ("neurons", BLUE, "neurons: rows of $W_O$"),
        ("weights", GREEN, "single weights of $W_O$"),
    ]
    for axes, configuration in zip(panels[0], configurations, strict=True):
        rows = prune[(prune["configuration"] == configuration) & (prune["order"] == "smallest")]
        rows = rows.assign(left=1 - rows["rate"])
        for what, color, name in kinds:
            chosen = rows[rows["what"] == what]
            ranged(axes, chosen, "left", "hinge", color=color, label=name)
            label = f"{name.split(':')[0]}, output rescaled"
            ranged(axes, chosen, "left", "rescaled_hinge", color=color, ls=":", label=label)
        grouped = rows[rows["what"].astype(str).str.contains(":")]
        for what, of in grouped.groupby(grouped["what"].astype(str)):
            hinge = of["hinge"]
            reach = [[hinge.mean() - hinge.min()], [hinge.max() - hinge.mean()]]
            axes.errorbar(
                [of["weights"].mean()],
                [hinge.mean()],
                reach,
                color=ORANGE,
                marker="D",
                ms=5,
                capsize=3,
                lw=1.4,
                ls="none",
                label=f"{what} in each row",
            )
        axes.set(
            title=f"{configuration} readout",
            xlabel="share of $W_O$ that is left",
            ylim=(-0.02, 1.04),
        )
        axes.set_xlim(1.02, 0)
    panels[0][0].set_ylabel("test hinge loss")
    panels[0][0].legend(loc="upper left", fontsize=7.5)
    figure.suptitle(f"smallest first; {SEEDS}")
    return figure


def _norms(axes: Axes, of: pd.DataFrame, of_null: pd.DataFrame) -> None:
    """How the norms of all neurons are distributed, and those of the null."""
    norms = np.concatenate(list(of["norms"]))
    bins = np.histogram_bin_edges(norms, 60).tolist()
    axes.hist(
        norms,
        bins=bins,
        color=BLUE,
        alpha=0.75,
        weights=np.full(len(norms), 1 / len(norms)),
        label=f"bimodality {of['bimodality'].mean():.2f}, large / small "
        f"{(of['large_norm'] / of['small_norm']).mean():.2f}",
    )
    if len(of_null):
        null = np.concatenate(list(of_null["norms"]))
        axes.hist(
            null,
            bins=bins,
            histtype="step",
            color=PERMUTED_COLOR,
            weights=np.full(len(null), 1 / len(null)),
            label=f"permuted labels: bimodality {of_null['bimodality'].mean():.2f}",
        )
    axes.axvline(
        of["threshold"].mean(),
        color="black",
        ls="--",
        lw=1.4,
        ymax=0.62,
        label=f"Otsu's threshold: {of['small_share'].mean():.0%} are small",
    )
    kept = (of["small_norm"] / of["initial_norm"]).mean()
    axes.axvline(
        of["initial_norm"].mean(),
        color=NULL_COLOR,
        ls=":",
        lw=1.4,
        ymax=0.62,
        label=f"mean norm at the start; the small have {kept:.2f} of it",
    )
    axes.set(xlabel="norm of a neuron, a row of $W_O$")
    axes.locator_params(axis="x", nbins=6)
    axes.legend(loc="upper right", fontsize=7)
    axes.set_ylim(top=1.65 * axes.get_ylim()[1])
