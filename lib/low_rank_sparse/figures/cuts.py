"""What a model is worth when its updates are cut to a low rank (figure 1); adapters beside it."""

from collections.abc import Callable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lib.low_rank_sparse.figures.panels import SEEDS, dotted
from lib.pages.marks import ranged, where
from lib.pages.panels import grid
from lib.pages.style import (
    BLUE,
    CUT_COLOR,
    GREEN,
    HINGE_COLOR,
    MAGENTA,
    NULL_COLOR,
    ORANGE,
    TEAL,
    frame,
    number_panel,
)

COLORS = (BLUE, ORANGE, GREEN, MAGENTA, TEAL)  # of configurations, in turn
POINTS = "one point per seed, a bar at their mean"
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
PARTS = {  # the kind of a cut and its rank, by what is written below
    "all, r = 1": {"kind": "all", "rank": 1},
    "all, r = 2": {"kind": "all", "rank": 2},
    "$W_Q, W_K$: r = 0": {"kind": "W_Q and W_K", "rank": 0},
    "$W_Q, W_K$: r = 1": {"kind": "W_Q and W_K", "rank": 1},
    "$W_V$: r = 1": {"kind": "W_V", "rank": 1},
    "$W_O$: r = 1": {"kind": "W_O", "rank": 1},
    "weights, not\nupdates: r = 2": {"kind": "weights, not updates", "rank": 2},
    "singular pairs 3, 4\ninstead of 1, 2": {"kind": "pairs 3 and 4", "rank": 2},
    "two random\ndirections of each": {"kind": "random directions", "rank": 2},
    "Gaussian updates\nof equal norm": {"kind": "gaussian"},
}


def hinge_and_attention_against_rank(table: pd.DataFrame, configurations: Sequence[str]) -> Figure:
    """Figure 1: all four updates cut to rank r, beside two random directions of each."""
    ranks = sorted(where(table, kind="all")["rank"].unique())
    table = table.assign(place=table["rank"].map({rank: place for place, rank in enumerate(ranks)}))
    figure, panels = plt.subplots(1, 3, figsize=(10.6, 3.4))
    for axes, (column, name) in zip(panels, QUANTITIES.items(), strict=True):
        for configuration, color, mark in zip(configurations, COLORS, "x+*", strict=False):
            rows = where(table, configuration=configuration)
            label = f"{configuration} readout ({rows['seed'].nunique()} seeds)"
            dotted(axes, where(rows, kind="all"), "place", column, color, label)
            null = where(rows, kind="random directions")[["place", column]].mean()
            label = f"two random directions of each, {configuration}"
            style = {"color": NULL_COLOR, "ms": 7, "mew": 1.8, "label": label}
            axes.plot(null["place"], null[column], mark, **style)
        _ranks(axes, ranks)
        axes.set(xlabel="rank r of every update", title=name)
    panels[0].legend(loc="center right", fontsize=7.5)
    number_panel(panels[0])
    figure.suptitle(rf"$W(0) + $SVD$_r(W(T) - W(0))$ for all of $W_Q, W_K, W_V, W_O$; {SEEDS}")
    return figure


def cut_frames(
    truncate: pd.DataFrame, spectra: pd.DataFrame, matrix: str, configuration: str
) -> Figure:
    """A frame per rank: the singular values of a matrix's update that a cut keeps, and the loss
    that is left when all updates are cut alike; means over seeds.
    """
    rows = where(truncate, configuration=configuration, kind="all")
    losses = rows.groupby("rank")["hinge"].mean()
    final = where(spectra, configuration=configuration, matrix=matrix, of="update")
    final = where(final, step=final["step"].max())
    sigma = np.stack(list(final["singular_values"])).astype(float).mean(0)
    index = np.arange(1, len(sigma) + 1)
    size = (8.6, 2.9 * len(losses))
    apart = {"hspace": 0.08}  # frames do not touch
    figure, panels = grid(len(losses), 2, size, gridspec_kw=apart)
    for (values, loss), rank in zip(panels, losses.index, strict=True):
        colors = [BLUE if i <= rank else CUT_COLOR for i in index]
        values.bar(index, sigma, color=colors)
        name = rf"$\Delta {matrix[0]}_{matrix[2:]}$"
        kept = min(int(rank), len(sigma))
        values.set(yscale="log", ylim=(1e-7, 10), xlabel="index i")
        values.set(ylabel=rf"$\sigma_i$ of {name}", title=f"{kept} of {len(sigma)} kept")
        places = range(len(losses))
        loss.plot(places, losses, color=CUT_COLOR, marker=".", lw=1.2)
        place = list(losses.index).index(rank)
        loss.plot([place], [losses[rank]], "o", color=BLUE, ms=10)
        loss.set(title=f"cut to rank {rank}: test hinge loss {losses[rank]:.2f}")
        loss.set(xlabel="rank r of every update", ylabel=QUANTITIES["hinge"])
        _ranks(loss, list(losses.index))
        loss.set_ylim(-0.06, 1.06)
        values.set_xticks([1, 2, *range(5, len(sigma) + 1, 5)])
        frame(f"{rank}", values, loss)
    return figure


def cuts_of_parts(
    truncate: pd.DataFrame, prune: pd.DataFrame, configurations: Sequence[str]
) -> Figure:
    """The hinge loss when only a part is cut, and controls."""
    of_values = where(prune, what="rows of W_V")
    n = len(configurations)
    figure, axes = plt.subplots(figsize=(10.4, 3.9))
    for i, (configuration, color) in enumerate(zip(configurations, COLORS, strict=False)):
        rows = where(truncate, configuration=configuration)
        shown = [where(rows, **part) for part in PARTS.values()]
        shown.append(where(of_values, configuration=configuration))
        for place, of in enumerate(shown):
            x = place + 0.72 / n * (i - 0.5 * (n - 1))
            label = None if place else f"{configuration} readout"
            _points(axes, x, of["hinge"].to_numpy(), color, 0.64 / n, label)
    names = [*PARTS, f"without {of_values['rate'].max():.0%}\nof $W_V$'s rows"]
    axes.set_xticks(range(len(names)), labels=names, fontsize=7.5, rotation=25, ha="right")
    axes.set(ylabel="test hinge loss", ylim=(0, 1.08), title=f"what is cut; {POINTS}")
    axes.legend(loc="upper center", markerscale=2)
    return figure


def adapters_against_cuts(
    adapt: pd.DataFrame, truncate: pd.DataFrame, configurations: Sequence[str]
) -> Figure:
    """The loss of adapters that were trained at rank r, beside full training that is cut to it."""
    shown = [name for name in configurations if name in set(adapt["configuration"])]
    n = max(1, len(shown))
    figure, [panels] = grid(1, n, (4.4 * n, 3.4), sharey=True)
    for axes, configuration in zip(panels, shown, strict=False):
        own = where(adapt, configuration=configuration)
        ranks = sorted(own["rank"].unique())
        cut = where(truncate, configuration=configuration, kind="all")
        for rows, color, side, label in (
            (cut, BLUE, -0.18, "full training, cut to rank r"),
            (own, GREEN, 0.18, "adapters of rank r (LoRA)"),
        ):
            for place, rank in enumerate(ranks):
                values = where(rows, rank=rank)["hinge"].to_numpy()
                if len(values):
                    _points(axes, place + side, values, color, 0.32, label, np.median)
                    label = None
        _ranks(axes, ranks)
        axes.set(xlabel="rank r", title=f"{configuration} readout")
    panels[0].set_ylabel(QUANTITIES["hinge"])
    panels[0].legend(loc="upper right", fontsize=7.5)
    figure.suptitle("one point per seed, a bar at their median")
    return figure


def attention_through_training(
    training: pd.DataFrame, losses: pd.DataFrame, configurations: Sequence[str], fitted_loss: float
) -> Figure:
    """The training loss of every step, and attention, test hinge loss and accuracy where saved."""
    n = len(configurations)
    figure, panels = grid(2, n, (4.6 * n, 5.6))
    floor = fitted_loss / 100
    losses = losses.assign(loss=losses["loss"].clip(lower=floor))
    for (upper, lower), configuration, color in zip(panels.T, configurations, COLORS, strict=False):
        rows = where(training, configuration=configuration)
        shown = where(losses, configuration=configuration)
        ranged(upper, shown, "step", "loss", color=color, label="training loss of the batch")
        label = f"fitted: below {fitted_loss:g}"
        upper.axhline(fitted_loss, color="black", lw=0.8, label=label)
        for column, (shade, style, _) in COURSES.items():
            dotted(lower, rows, "step", column, shade or color, ls=style, ms=3)
        for axes in (upper, lower):
            _mark(axes, where(rows, step=rows["step"].max())["fitted_step"].to_numpy())
            axes.set(xlabel="step t")
        upper.set(title=f"{configuration} readout", yscale="log", ylim=(0.7 * floor, 2))
        lower.set(ylim=(0, 1.04))
    panels[0][0].set_ylabel(f"training loss (below {floor:g} as that)")
    panels[0][0].legend(loc="lower left", fontsize=7.5)
    lines = [Line2D([], [], color=shade or "black", ls=ls) for shade, ls, _ in COURSES.values()]
    names = [name for *_, name in COURSES.values()]
    figure.legend(lines, names, loc="outside lower center", ncols=4)
    figure.suptitle(f"{SEEDS}; shaded orange: where the seeds' batches are first fitted")
    return figure


def _ranks(axes: Axes, ranks: list[Any]) -> None:
    """Set ticks at ranks, at equal distances, below scores from 0 to 1."""
    axes.set_xticks(range(len(ranks)), labels=[str(rank) for rank in ranks])
    axes.set_ylim(0, 1.04)


def _points(
    axes: Axes,
    x: float,
    values: np.ndarray,
    color: str,
    width: float,
    label: str | None,
    middle: Callable[[np.ndarray], Any] = np.mean,
) -> None:
    """Draw one point per seed, and a bar at their mean, or another middle."""
    height = middle(values) if len(values) else 0.0
    axes.bar(x, height, width, color=color, alpha=0.35, lw=0)
    reach = 0.3 if len(values) > 1 else 0.0
    spread = np.linspace(-reach, reach, len(values)) * width
    axes.plot(x + spread, values, ".", color=color, ms=3.5, label=label)


def _mark(axes: Axes, fitted: np.ndarray) -> None:
    """A band over the steps at which the seeds' batches were first fitted."""
    reached = fitted[fitted >= 0]
    if len(reached):
        axes.axvspan(reached.min(), reached.max(), color=ORANGE, alpha=0.25, lw=0)
