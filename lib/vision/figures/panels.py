"""What the figures of trained transformers share: panels, points, and axes."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lib.pages.marks import Color, unit_points, where
from lib.pages.panels import numbers_below
from lib.pages.style import MATRIX_COLORS, MATRIX_NAMES, PERMUTED_COLOR

PERMUTED = "labels=permuted"
SCALE = "init scale (1 = library default)"
RINGS: Any = {"middle": np.mean, "ms": 4, "mfc": "none"}  # units, and a bar at their mean
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


def beside_each_other(axes: Axes, kinds: Mapping[str, tuple[pd.Series, Color]]) -> None:
    """A column for each init scale, with a point for each seed of each kind and a bar at the mean.

    A kind is a series by `init_scale` and `seed`, and its colour.
    """
    finite = {label: values[np.isfinite(values)] for label, (values, _) in kinds.items()}
    scales = sorted(
        {scale for values in finite.values() for scale in values.index.unique("init_scale")}
    )
    width = 0.7 / max(1, len(kinds))
    for i, (label, (_, color)) in enumerate(kinds.items()):
        shift = width * (i - 0.5 * (len(kinds) - 1))
        of_scale = finite[label].index.get_level_values("init_scale")
        for x, scale in enumerate(scales):
            own = finite[label][of_scale == scale]
            unit_points(axes, x + shift, own, color, **RINGS, width=0.4 * width)
        axes.plot([], [], "o", ms=4, mfc="none", color=color, label=label)
    axes.set_xticks(range(len(scales)), labels=[f"{scale:g}" for scale in scales])
    axes.set_xlim(-0.6, max(1, len(scales)) - 0.4)
    axes.set_xlabel(SCALE)
    axes.grid(visible=False, axis="x")


def with_permuted(by_seed: pd.Series) -> dict[str, tuple[pd.Series, Color]]:
    """What `beside_each_other` takes of a series by matrix, control, init scale and seed: updates
    of both products, under true and under permuted labels, where there are any.
    """
    levels = by_seed.index.get_level_values
    kinds: dict[str, tuple[pd.Series, Color]] = {}
    for matrix, name in MATRIX_NAMES.items():
        for control, color, more in (
            ("none", MATRIX_COLORS[matrix], ""),
            (PERMUTED, PERMUTED_COLOR, ", permuted labels"),
        ):
            own = by_seed[(levels("matrix") == matrix) & (levels("control") == control)]
            if len(own):
                kinds[rf"$\Delta$ {name}{more}"] = own.droplevel(["matrix", "control"]), color
    return kinds


def named_scales(table: pd.DataFrame) -> pd.DataFrame:
    """The table with init scales as they are named, without what single precision adds."""
    return table.assign(init_scale=[float(f"{scale:g}") for scale in table["init_scale"]])


def own_panel(figure: Figure, axes: Axes) -> Axes:
    """A panel in the place of another, whose axes it shares with none."""
    place = axes.get_subplotspec()
    assert place is not None
    axes.remove()
    return figure.add_subplot(place)


def growth_between(axes: Axes, values: pd.Series, color: str, *, above: bool, label: str) -> None:
    """The mean by init scale, a marker for each seed, and by how much each scale has more than the
    one before: the median over seeds of the ratio, above or below the line.
    """
    by_seed = values.unstack("init_scale").sort_index(axis="columns")
    means = by_seed.mean()
    axes.plot(means.index, means, color=color, lw=2, label=label)
    for _, own in by_seed.iterrows():
        axes.plot(own.index, own, "o", ms=3.5, mfc="none", color=color)
    ratios = (by_seed / by_seed.shift(axis="columns")).median()
    beside: Any = {"textcoords": "offset points", "ha": "center", "va": "center"}
    beside |= {"xytext": (-12, 15) if above else (12, -15), "fontsize": 9, "weight": "bold"}
    scales = list(means.index)
    for low, high in pairwise(scales):
        middle = np.sqrt(low * high), np.sqrt(means[low] * means[high])
        if np.isfinite(ratios[high]) and np.isfinite(middle[1]):
            axes.annotate(f"× {ratios[high]:.2f}", middle, color=color, **beside)
    axes.set(xscale="log", xlabel=SCALE)
    numbers_below(axes, scales)
    rank_axis(axes)


def final_ranks(ranks: pd.DataFrame, of: str = "update", control: str = "none") -> pd.Series:
    """Stable ranks at the last step, means over layers and heads, by matrix, init scale and seed;
    a matrix that has one step alone, as at the start, has it there.
    """
    rows = where(ranks, of=of, control=control)
    rows = where(rows, step=rows["step"].max())
    rows = named_scales(rows.assign(matrix=rows["matrix"].astype(str)))
    return rows.groupby(["matrix", "init_scale", "seed"])["stable_rank"].mean()


def of_matrix(values: pd.Series, matrix: str) -> pd.Series:
    """The part of a series by matrix, init scale and seed that is of a matrix, or none of it."""
    return values[values.index.get_level_values("matrix") == matrix].droplevel("matrix")


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
