"""What a model is worth when its updates are cut to a low rank (figure 1 of Li et al. 2024), and
adapters beside it.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lib.pages.style import BLUE, GREEN, HINGE_COLOR, MAGENTA, NULL_COLOR, ORANGE, TEAL, ranged

COLORS = (BLUE, ORANGE, GREEN, MAGENTA, TEAL)  # of configurations, in turn
QUANTITIES = {
    "hinge": "test hinge loss",
    "attention": "attention on label-relevant tokens,\nall queries",
    "attention_of_relevant": "attention on label-relevant tokens,\nlabel-relevant queries",
}
COURSES = {  # what is drawn through training: colour, or that of the configuration; line; name
    "attention_of_relevant": (None, "-", "attention, label-relevant queries"),
    "attention": (None, "-.", "attention, all queries"),
    "hinge": (HINGE_COLOR, "-", "test hinge loss"),
    "accuracy": (GREEN, ":", "test accuracy"),
}


def hinge_and_attention_against_rank(table: pd.DataFrame, configurations: Sequence[str]) -> Figure:
    """Figure 1: all four updates cut to rank r, beside two random directions of each; mean over
    seeds, least to largest shaded.
    """
    ranks = sorted(table[table["kind"] == "all"]["rank"].unique())
    table = table.assign(place=table["rank"].map({rank: place for place, rank in enumerate(ranks)}))
    figure, panels = plt.subplots(1, 3, figsize=(10.6, 3.4))
    for axes, (column, name) in zip(panels, QUANTITIES.items(), strict=True):
        for configuration, color in zip(configurations, COLORS, strict=False):
            rows = table[table["configuration"] == configuration]
            n = rows["seed"].nunique()
            ranged(
                axes,
                rows[rows["kind"] == "all"],
                "place",
                column,
                color=color,
                marker="o",
                ms=4,
                label=f"{configuration} readout ({n} seeds)",
            )
            null = rows[rows["kind"] == "random directions"]
            axes.plot(
                null["place"].mean(),
                null[column].mean(),
                "x",
                color=color,
                ms=7,
                mew=1.8,
                label="two random directions of each",
            )
        axes.set_xticks(range(len(ranks)), labels=[str(rank) for rank in ranks])
        axes.set(xlabel="rank r of every update", title=name)
        axes.set_ylim(0, 1.04)
    panels[0].legend(loc="center right", fontsize=7.5)
    figure.suptitle(
        r"$W(0) + $SVD$_r(W(T) - W(0))$ for all of $W_Q, W_K, W_V, W_O$; mean over seeds, least "
        r"to largest shaded"
    )
    return figure


def cuts_of_parts(
    truncate: pd.DataFrame, prune: pd.DataFrame, configurations: Sequence[str]
) -> Figure:
    """The hinge loss when only a part is cut, and controls: one point per seed, a bar at the
    mean.
    """
    parts = [
        ("all", 1, "all, r = 1"),
        ("all", 2, "all, r = 2"),
        ("W_Q and W_K", 0, "$W_Q, W_K$: r = 0"),
        ("W_Q and W_K", 1, "$W_Q, W_K$: r = 1"),
        ("W_V", 1, "$W_V$: r = 1"),
        ("W_O", 1, "$W_O$: r = 1"),
        ("weights, not updates", 2, "weights, not\nupdates: r = 2"),
        ("pairs 3 and 4", 2, "singular pairs 3, 4\ninstead of 1, 2"),
        ("random directions", 2, "two random\ndirections of each"),
        ("gaussian", None, "Gaussian updates\nof equal norm"),
    ]
    values_rate = prune[prune["what"] == "rows of W_V"]["rate"].max()
    figure, axes = plt.subplots(figsize=(10.4, 3.9))
    for i, (configuration, color) in enumerate(zip(configurations, COLORS, strict=False)):
        rows = truncate[truncate["configuration"] == configuration]
        removed = prune[
            (prune["configuration"] == configuration) & (prune["what"] == "rows of W_V")
        ]
        hinges = [
            rows[(rows["kind"] == kind) & ((rows["rank"] == r) | (r is None))]["hinge"]
            for kind, r, _ in parts
        ]
        for place, values in enumerate([*hinges, removed["hinge"]]):
            x = place + 0.72 / len(configurations) * (i - 0.5 * (len(configurations) - 1))
            label = f"{configuration} readout" if not place else None
            _points(
                axes,
                x,
                values.to_numpy(),
                color=color,
                width=0.64 / len(configurations),
                label=label,
            )
    names = [*(name for *_, name in parts), f"without {values_rate:.0%}\nof $W_V$'s rows"]
    axes.set_xticks(range(len(names)), labels=names, fontsize=7.5, rotation=25, ha="right")
    axes.set(
        ylabel="test hinge loss",
        ylim=(0, 1.08),
        title="what is cut; one point per seed, a bar at their mean",
    )
    axes.legend(loc="upper center", markerscale=2)
    return figure


def adapters_against_cuts(
    adapt: pd.DataFrame, truncate: pd.DataFrame, configurations: Sequence[str]
) -> Figure:
    """Adapters trained at rank r beside full training cut to rank r: hinge loss and attention of
    every seed.
    """
    shown = [name for name in configurations if name in set(adapt["configuration"])]
    figure, panels = plt.subplots(
        2, max(1, len(shown)), figsize=(4.2 * max(1, len(shown)), 5.2), squeeze=False
    )
    for column, line in zip(("hinge", "attention_of_relevant"), panels, strict=True):
        for axes, configuration in zip(line, shown, strict=False):
            own = adapt[adapt["configuration"] == configuration]
            ranks = sorted(own["rank"].unique())
            cut = truncate[
                (truncate["configuration"] == configuration) & (truncate["kind"] == "all")
            ]
            sources = [
                (cut, NULL_COLOR, "full training, cut to rank r"),
                (own, GREEN, "adapters of rank r (LoRA)"),
            ]
            for i, (rows, color, name) in enumerate(sources):
                for place, rank in enumerate(ranks):
                    values = rows[rows["rank"] == rank][column].to_numpy()
                    if len(values):
                        _points(
                            axes,
                            place + 0.36 * (i - 0.5),
                            values,
                            color=color,
                            width=0.32,
                            label=name,
                        )
                        name = None
            axes.set_xticks(range(len(ranks)), labels=[str(rank) for rank in ranks])
            axes.set(xlabel="rank r", ylim=(0, 1.04), title=f"{configuration} readout")
        line[0].set_ylabel(QUANTITIES[column])
    panels[0][0].legend(loc="upper right", fontsize=7.5)
    figure.suptitle("one point per seed, a bar at their mean")
    return figure


def attention_through_training(
    training: pd.DataFrame, losses: pd.DataFrame, configurations: Sequence[str], fitted_loss: float
) -> Figure:
    """The training loss of every step; attention on label-relevant tokens, test hinge loss and
    accuracy where saved.
    """
    figure, panels = plt.subplots(
        2, len(configurations), figsize=(4.6 * len(configurations), 5.6), squeeze=False
    )
    for (upper, lower), configuration, color in zip(panels.T, configurations, COLORS, strict=False):
        rows, every = (
            table[table["configuration"] == configuration] for table in (training, losses)
        )
        floor = fitted_loss / 100
        shown = every.assign(loss=every["loss"].clip(lower=floor))
        ranged(upper, shown, "step", "loss", color=color, label="training loss of the batch")
        upper.axhline(
            fitted_loss, color=NULL_COLOR, ls="--", lw=1, label=f"fitted: below {fitted_loss:g}"
        )
        for column, (shade, style, _) in COURSES.items():
            ranged(lower, rows, "step", column, color=shade or color, ls=style, marker="o", ms=3)
        for axes in (upper, lower):
            _mark(axes, rows[rows["step"] == rows["step"].max()]["fitted_step"].to_numpy())
            axes.set(xlabel="step t")
        upper.set(title=f"{configuration} readout", yscale="log", ylim=(0.7 * floor, 2))
        lower.set(ylim=(0, 1.04))
    panels[0][0].set_ylabel(f"training loss (below {fitted_loss / 100:g} as that)")
    panels[0][0].legend(loc="lower left", fontsize=7.5)
    lines = [
        Line2D([], [], color=shade or "black", ls=style) for shade, style, _ in COURSES.values()
    ]
    figure.legend(
        lines, [name for *_, name in COURSES.values()], loc="outside lower center", ncols=4
    )
    figure.suptitle(
        "mean over seeds, least to largest shaded; shaded grey: where the seeds' batches are "
        "first fitted"
    )
    return figure


def _points(
    axes: Axes, x: float, values: np.ndarray, *, color: str, width: float, label: str | None
) -> None:
    """One point per seed, and a bar at their mean."""
    axes.bar(x, values.mean() if len(values) else 0.0, width, color=color, alpha=0.35, lw=0)
    spread = (
        np.linspace(-0.3, 0.3, len(values)) * width if len(values) > 1 else np.zeros(len(values))
    )
    axes.plot(x + spread, values, ".", color=color, ms=3.5, label=label)


def _mark(axes: Axes, fitted: np.ndarray) -> None:
    """A grey band over the steps at which the seeds' batches were first fitted."""
    reached = fitted[fitted >= 0]
    if len(reached):
        axes.axvspan(reached.min(), reached.max(), color=NULL_COLOR, alpha=0.25, lw=0)
