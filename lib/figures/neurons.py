"""The norms of neurons, and what remains when some are removed (figure 3 of Li et al. 2024, corollary 1)."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import INITIAL_COLOR, NULL_COLOR, band

ORDERS = {
    "smallest": ("#276749", "smallest first"),
    "random": (NULL_COLOR, "at random"),
    "largest": (INITIAL_COLOR, "largest first"),
}


def norms_and_pruning(neurons: pd.DataFrame, prune: pd.DataFrame) -> Figure:
    """Figure 3: the norms of the rows of W_O; hinge loss and margins against the share of neurons removed."""
    configurations = sorted(neurons["configuration"].unique())
    figure, panels = plt.subplots(len(configurations), 3, figsize=(10.6, 3.1 * len(configurations)), squeeze=False)
    for line, configuration in zip(panels, configurations, strict=True):
        of = neurons[neurons["configuration"] == configuration]
        norms = np.concatenate(list(of["norms"]))
        line[0].hist(norms, bins=60, color="#2b6cb0", alpha=0.75, weights=np.full(len(norms), 1 / len(norms)))
        line[0].axvline(of["threshold"].mean(), color=INITIAL_COLOR, ls="--", lw=1.4,
                        label=f"Otsu's threshold: {of['small_share'].mean():.0%} are small")  # fmt: skip
        line[0].axvline(of["initial_norm"].mean(), color=NULL_COLOR, ls=":", lw=1.4, label="mean norm at the start")
        line[0].set(xlabel="norm of a neuron, a row of $W_O$", ylabel=f"{configuration} readout\nshare of the neurons")
        line[0].locator_params(axis="x", nbins=6)
        line[0].legend(loc="upper right", fontsize=7.5)
        line[0].set_ylim(top=1.35 * line[0].get_ylim()[1])
        rows = prune[(prune["configuration"] == configuration) & (prune["what"] == "neurons")]
        for order, (color, name) in ORDERS.items():
            chosen = rows[rows["order"] == order].groupby("rate")
            for axes, column, style in (
                (line[1], "hinge", "-"),
                (line[2], "margin", "-"),
                (line[2], "least_margin", ":"),
            ):
                by = chosen[column].agg(["mean", "std"]).fillna(0)
                label = name if column == "hinge" else None
                band(axes, by.index, by["mean"], by["std"], color=color, ls=style, label=label)
        line[1].set(xlabel="share of the neurons removed", ylabel="test hinge loss", ylim=(-0.02, 1.04))
        line[2].axhline(1, color="black", lw=0.8)
        line[2].text(0.98, 0.97, "solid: mean of the samples\ndotted: the least", fontsize=8, ha="right", va="top",
                     transform=line[2].transAxes)  # fmt: skip
        line[2].set(xlabel="share of the neurons removed", ylabel="margin y F (loss below 1)")
    panels[0][1].legend(loc="upper left")
    figure.suptitle("mean ± sd over seeds; slack comes from margins above 1")
    return figure


def corollary(prune: pd.DataFrame) -> Figure:
    """Corollary 1: all small neurons gone, a share R of the large ones removed at random; the scale law dashed."""
    configurations = sorted(prune["configuration"].unique())
    figure, panels = plt.subplots(
        1, len(configurations), figsize=(4.4 * len(configurations), 3.5), sharey=True, squeeze=False
    )
    for axes, configuration in zip(panels[0], configurations, strict=True):
        rows = prune[(prune["configuration"] == configuration) & (prune["what"] == "large neurons")]
        start = rows[rows["rate"] == 0]["margin"].mean()
        R = np.linspace(0, 1, 200)
        axes.plot(R, np.maximum(0, 1 - (1 - R) * start), color="black", ls="--", lw=1.3,
                  label=rf"max(0, 1 − (1 − R) |F$_0$|), F$_0$ = {start:.2f}")  # fmt: skip
        for column, color, name in (
            ("hinge", INITIAL_COLOR, "measured"),
            ("rescaled_hinge", "#276749", "with one factor on the output"),
        ):
            by = rows.groupby("rate")[column].agg(["mean", "std"]).fillna(0)
            band(axes, by.index, by["mean"], by["std"], color=color, marker="o", ms=3.5, label=name)
        axes.set(title=f"{configuration} readout", xlabel="share R of the large neurons removed", ylim=(-0.02, 1.04))
    panels[0][0].set_ylabel("test hinge loss")
    panels[0][0].legend(loc="upper left")
    figure.suptitle("all small neurons are gone; mean ± sd over seeds")
    return figure


def what_to_prune(prune: pd.DataFrame) -> Figure:
    """Hinge loss against the share of W_O that is left: neurons, single weights, N:M; dotted: the output rescaled."""
    configurations = sorted(prune["configuration"].unique())
    figure, panels = plt.subplots(
        1, len(configurations), figsize=(4.6 * len(configurations), 3.6), sharey=True, squeeze=False
    )
    kinds = {"neurons": ("#276749", "neurons: they save operations"), "weights": ("#2b6cb0", "single weights")}
    for axes, configuration in zip(panels[0], configurations, strict=True):
        rows = prune[(prune["configuration"] == configuration) & (prune["order"] == "smallest")]
        for what, (color, name) in kinds.items():
            chosen = rows[rows["what"] == what].groupby("rate")
            for column, style in (("hinge", "-"), ("rescaled_hinge", ":")):
                by = chosen[column].agg(["mean", "std"]).fillna(0)
                label = name if column == "hinge" else f"{name.split(':')[0]}, output rescaled"
                band(axes, 1 - by.index.to_numpy(), by["mean"], by["std"], color=color, ls=style, label=label)
        grouped = rows[rows["what"].astype(str).str.contains(":")]
        for what, of in grouped.groupby(grouped["what"].astype(str)):
            left = of["weights"].mean()
            axes.errorbar([left], [of["hinge"].mean()], [of["hinge"].std()], color="#dd7b1a", marker="D", ms=5,
                          capsize=3, lw=1.4, ls="none", label=f"{what} in each row")  # fmt: skip
        axes.set(title=f"{configuration} readout", xlabel="share of $W_O$ that is left", ylim=(-0.02, 1.04))
        axes.set_xlim(1.02, 0)
    panels[0][0].set_ylabel("test hinge loss")
    panels[0][0].legend(loc="upper left")
    figure.suptitle("smallest first; mean ± sd over seeds")
    return figure
