"""What a model is worth when its updates are cut to a low rank (figure 1 of Li et al. 2024), and adapters beside it."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.figures.style import INITIAL_COLOR, NULL_COLOR, band

READOUT_COLORS = {"tied": "#2b6cb0", "untied": "#dd7b1a"}
QUANTITIES = {
    "hinge": "test hinge loss",
    "attention": "attention on label-relevant tokens,\nall queries",
    "attention_of_relevant": "attention on label-relevant tokens,\nlabel-relevant queries",
}


def hinge_and_attention_against_rank(table: pd.DataFrame) -> Figure:
    """Figure 1: all four updates cut to rank r; mean ± sd over seeds, the uncut model dashed."""
    rows = table[table["kind"] == "all"]
    ranks = sorted(rows["rank"].unique())
    figure, panels = plt.subplots(1, 3, figsize=(10.6, 3.4))
    for axes, (column, name) in zip(panels, QUANTITIES.items(), strict=True):
        for configuration, color in READOUT_COLORS.items():
            by = rows[rows["configuration"] == configuration].groupby("rank")[column].agg(["mean", "std"]).fillna(0)
            n = rows[rows["configuration"] == configuration]["seed"].nunique()
            band(axes, range(len(by)), by["mean"], by["std"], color=color, marker="o", ms=4,
                 label=f"{configuration} readout ({n} seeds)")  # fmt: skip
        axes.set_xticks(range(len(ranks)), labels=[str(rank) for rank in ranks])
        axes.set(xlabel="rank r of every update", title=name)
        axes.set_ylim(0, 1.04)
    panels[0].legend(loc="upper right")
    figure.suptitle(r"$W(0) + $SVD$_r(W(T) - W(0))$ for all of $W_Q, W_K, W_V, W_O$; mean ± sd over seeds")
    return figure


def cuts_of_parts(table: pd.DataFrame) -> Figure:
    """The hinge loss when only a part is cut, and controls: one point per seed, a bar at the mean."""
    parts = [
        ("all", 1, "all, r = 1"),
        ("all", 2, "all, r = 2"),
        ("W_Q and W_K", 0, "$W_Q, W_K$: r = 0"),
        ("W_Q and W_K", 1, "$W_Q, W_K$: r = 1"),
        ("W_V", 1, "$W_V$: r = 1"),
        ("W_O", 1, "$W_O$: r = 1"),
        ("weights, not updates", 2, "weights, not\nupdates: r = 2"),
        ("pairs 3 and 4", 2, "singular pairs 3, 4\ninstead of 1, 2"),
    ]
    figure, axes = plt.subplots(figsize=(8.6, 3.6))
    for i, (configuration, color) in enumerate(READOUT_COLORS.items()):
        rows = table[table["configuration"] == configuration]
        for place, (kind, rank, _) in enumerate(parts):
            values = rows[(rows["kind"] == kind) & (rows["rank"] == rank)]["hinge"].to_numpy()
            x = place + 0.36 * (i - 0.5)
            axes.bar(x, values.mean(), 0.32, color=color, alpha=0.35, lw=0)
            spread = np.linspace(-0.1, 0.1, len(values)) if len(values) > 1 else np.zeros(len(values))
            axes.plot(
                x + spread, values, ".", color=color, ms=3.5, label=f"{configuration} readout" if not place else None
            )
    axes.set_xticks(range(len(parts)), labels=[name for *_, name in parts], fontsize=8, rotation=20, ha="right")
    axes.set(ylabel="test hinge loss", ylim=(0, 1.08), title="what is cut; one point per seed, a bar at their mean")
    axes.legend(loc="upper center", markerscale=2)
    return figure


def adapters_against_cuts(adapt: pd.DataFrame, truncate: pd.DataFrame) -> Figure:
    """Adapters trained at rank r beside full training cut to rank r: hinge loss and attention; mean ± sd over seeds."""
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.4))
    for axes, column in zip(panels, ("hinge", "attention_of_relevant"), strict=True):
        for configuration, color in READOUT_COLORS.items():
            trained = adapt[adapt["configuration"] == configuration]
            cut = truncate[(truncate["configuration"] == configuration) & (truncate["kind"] == "all")]
            cut = cut[(cut["rank"] > 0) & (cut["rank"] <= max(5, int(adapt["rank"].max())))]
            for rows, style, name in ((cut, ":", "full training, cut"), (trained, "-", "adapters of rank r (LoRA)")):
                by = rows.groupby("rank")[column].agg(["mean", "std"]).fillna(0)
                band(axes, by.index, by["mean"], by["std"], color=color, ls=style, marker="o", ms=4,
                     label=f"{configuration}: {name}")  # fmt: skip
        axes.set(xlabel="rank r", title=QUANTITIES[column], ylim=(-0.02, None))
        axes.set_xticks(range(1, 6))
    panels[0].legend(loc="upper right")
    panels[1].set_ylim(0, 1.04)
    return figure


def attention_through_training(training: pd.DataFrame) -> Figure:
    """The attention on label-relevant tokens, and the test hinge loss, against the step; mean ± sd over seeds."""
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.3), sharey=True)
    for axes, (configuration, color) in zip(panels, READOUT_COLORS.items(), strict=True):
        rows = training[training["configuration"] == configuration]
        lines: list[tuple[str, str, str, str]] = [
            ("attention_of_relevant", color, "-", "attention, label-relevant queries"),
            ("attention", color, "-.", "attention, all queries"),
            ("hinge", INITIAL_COLOR, "-", "test hinge loss"),
        ]
        for column, shade, style, name in lines:
            by = rows.groupby("step")[column].agg(["mean", "std"]).fillna(0)
            band(axes, by.index, by["mean"], by["std"], color=shade, ls=style, marker="o", ms=3, label=name)
        fitted = rows[rows["step"] == rows["step"].max()]["fitted_step"].to_numpy()
        _mark(axes, fitted)
        axes.set(title=f"{configuration} readout", xlabel="step t", ylim=(0, 1.04))
    panels[0].legend(loc="center right", bbox_to_anchor=(1, 0.46), fontsize=7.5)
    return figure


def _mark(axes: Axes, fitted: np.ndarray) -> None:
    """A grey line where the seeds' training loss first vanished, on average."""
    reached = fitted[fitted >= 0]
    if len(reached):
        axes.axvline(reached.mean(), color=NULL_COLOR, lw=1, ls=(0, (1, 2)))
        axes.text(reached.mean(), 1.01, " training loss ≈ 0", color=NULL_COLOR, fontsize=7.5, va="top")
