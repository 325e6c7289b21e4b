"""What the figures of trained transformers share: panels, points, and axes."""

from collections.abc import Sequence
from typing import Any, Literal

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lib.pages.style import MATRIX_NAMES

PERMUTED = "labels=permuted"
FIRST_STEP_COLOR = "black"  # the update of the first step of training


def by_product(
    titles: Sequence[str],
    size: tuple[float, float],
    *,
    quantity: str = "stable rank",
    xlabel: str = "",
    share_y: bool | Literal["row"] = "row",
    widths: Sequence[float] | None = None,
) -> tuple[Figure, dict[str, Sequence[Axes]]]:
    """A row of panels for each product of weights, a column for each title; rows by their names.

    Columns have these widths, each for itself, or else one x axis.
    """
    figure, panels = plt.subplots(
        2,
        len(titles),
        figsize=size,
        sharex="col" if widths else True,
        sharey=share_y,
        squeeze=False,
        width_ratios=widths,
    )
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title)
    for axes in panels[1]:
        axes.set_xlabel(xlabel)
    for row, name in zip(panels, MATRIX_NAMES.values(), strict=True):
        row[0].set_ylabel(rf"{quantity} of $\Delta$ {name}")
    return figure, dict(zip(MATRIX_NAMES, (list(row) for row in panels), strict=True))


def points(
    axes: Axes,
    x: float,
    values: Any,
    color: str | tuple[float, ...],
    *,
    width: float,
    ms: float = 4,
) -> None:
    """A point for each value, and a bar at their mean."""
    if len(values):
        axes.hlines(values.mean(), x - width, x + width, color=color, lw=2.5)
        axes.plot([x] * len(values), values, "o", ms=ms, mfc="none", color=color)


def cut_axis(axes: Axes, cut: pd.DataFrame) -> None:
    """The ranks that updates are cut to, zero among them, on a scale of powers of two."""
    ranks = sorted(cut["rank"].unique())
    axes.set_xscale("symlog", base=2, linthresh=1)
    axes.set_xticks(ranks, labels=[str(rank) for rank in ranks])
    axes.minorticks_off()


def rank_axis(axes: Axes) -> None:
    """Stable ranks on a scale of powers of two, as far as they go."""
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()


def loss_axis(axes: Axes, ticks: Sequence[float] = (1,)) -> None:
    """Training losses on a logarithmic scale, with ticks at these numbers times powers of ten."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
