"""Weight decay: what is learned, when it begins, and the rank at rest.

Decays are shares of the largest with which anything rises. Dashed lines are what theory says.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.gradual_rank.figures.staircase import draw_products
from lib.pages.marks import THEORY, unit_lines, where
from lib.pages.panels import power
from lib.pages.style import (
    GREEN,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    READ_WIDTH,
    SEED_MARKERS,
    number_panel,
)

SHARE = r"$\lambda$ (1: nothing rises)"


def weight_decay(
    course: pd.DataFrame,
    stages: pd.DataFrame,
    heads: pd.DataFrame,
    rises: pd.DataFrame,
    joins: pd.DataFrame,
    rests: pd.DataFrame,
) -> Figure:
    """The products of a head, the first rise and the rank at rest by decay, and all activations.

    `heads` is of diagonal heads, `rises` and `rests` are of full matrices.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.7), width_ratios=[1.2, 1, 1, 1])
    cell = course.iloc[0]
    own = where(stages, seed=cell["seed"], share=cell["share"])
    draw_course(panels[0], course.sort_values("rescaled_time"), own.sort_values("stage"))
    draw_first(panels[1], heads, rises)
    number_panel(panels[1])
    draw_joins(panels[2], joins)
    draw_ranks(panels[3], heads, rests)
    return figure


def draw_course(axes: Axes, course: pd.DataFrame, stages: pd.DataFrame) -> None:
    """The products of one head, and those of Algorithm 1 with decay."""
    cell = course.iloc[0]
    end = float(course["rescaled_time"].max())
    draw_products(axes, course, stages.assign(next_time=end), end, widths=(1.3, 0.7))
    axes.set_title(
        f"init scale {power(float(cell['log10_init_scale']))}, $\\lambda$ = {cell['share']:g}",
        fontsize=9,
    )
    axes.set(xscale="log", xlabel="time / log(1 / init scale)", ylabel="products of a head")
    axes.set_xlim(0.5 * float(stages["time"].iloc[1:2].max()), end)


def draw_first(axes: Axes, heads: pd.DataFrame, rises: pd.DataFrame) -> None:
    """The first rise over its forecast without decay, with a point per seed and scale."""
    for rows, name, color, marker in (
        (heads, "diagonal heads", GREEN, "o"),
        (rises, "full matrices", MATRIX_COLORS["W_VO"], "x"),
    ):
        own = rows[np.isfinite(rows["first_rise"])]
        later = own["first_rise"] / own["undecayed"]
        axes.plot(own["share"], later, marker, color=color, ms=5, label=name)
    share = np.linspace(0, float(heads.loc[heads["share"] < 1, "share"].max()), 100)
    axes.plot(share, 1 / (1 - share), **THEORY, lw=1, label=r"$1 / (1 - \lambda)$")
    axes.set(xlabel=SHARE, ylabel="first rise / forecast without decay", yscale="log")
    axes.set_yticks([1, 1.5, 2, 2.5], labels=["1", "1.5", "2", "2.5"])
    axes.minorticks_off()
    axes.legend(loc="upper left")


def draw_joins(axes: Axes, joins: pd.DataFrame) -> None:
    """When each product rises from the smallest scale, by Algorithm 1 with decay and without."""
    scale = float(joins["log10_init_scale"].min())
    own = where(joins, log10_init_scale=scale)
    for column, name, color in (
        ("without", "without decay", NULL_COLOR),
        ("predicted", "with decay", GREEN),
    ):
        axes.plot(own[column], own["measured"], ".", color=color, ms=5, label=name)
    ends = [float(own["predicted"].min()), float(own["predicted"].max())]
    axes.plot(ends, ends, **THEORY, lw=1)
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="activation by Algorithm 1", ylabel=f"activation in the flow, {power(scale)}")
    axes.legend(loc="lower right")


def draw_ranks(axes: Axes, heads: pd.DataFrame, rests: pd.DataFrame) -> None:
    """The rank at rest, with a line per seed."""
    smallest = where(heads, log10_init_scale=heads["log10_init_scale"].min())
    for rows, column, name, color in (
        (smallest, "rank", "diagonal head", GREEN),
        (rests, "rank_KQ", MATRIX_NAMES["W_KQ"], MATRIX_COLORS["W_KQ"]),
        (rests, "rank_VO", MATRIX_NAMES["W_VO"], MATRIX_COLORS["W_VO"]),
    ):
        look: Any = {"label": name, "markers": SEED_MARKERS, "color": color}
        unit_lines(axes, rows.sort_values("share"), "share", column, **look, ms=4, lw=0.9)
    axes.set(xlabel=SHARE, ylabel="rank at rest", ylim=(-0.5, None))
    axes.legend(loc="upper right")
