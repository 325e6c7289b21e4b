"""Descents at the paper's size: batches beside the flow, and full matrices with and without
batches.

Tables have a row per activation, direction, or look at a loss; `name` says which descent it is, and
`batches` the seed of its batches.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar
from lib.pages.marks import THEORY, unit_lines, where
from lib.pages.style import MATRIX_COLORS, MATRIX_NAMES, NULL_COLOR, READ_WIDTH, number_panel

LINES = ("-", "--", ":")  # the lines of descents


def descents_on_batches(
    activated: pd.DataFrame,
    rises: pd.DataFrame,
    losses: pd.DataFrame,
    flow: pd.DataFrame,
    bar: Bar | None = None,
) -> Figure:
    """The diagonal head on batches beside its flow, and full matrices on batches and without.

    For the head, panels show activation times against the flow's, and the losses of both. For full
    matrices they show how many directions have risen by when, and the losses. `flow` has the
    trajectories of the head from the scales of the descents. The bar is of how far from the flow's
    the times are, as a share of them, in the median.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.6))
    times, diagonal, ranks, full = panels
    ends = [activated["flow"].min(), activated["flow"].max()]
    for column, beside, color, said in (
        ("predicted", "predicted", NULL_COLOR, "Algorithm 1"),
        ("measured", "flow", MATRIX_COLORS["W_VO"], "on batches"),
    ):
        off = (activated["measured"] / activated[beside] - 1).abs().median()
        label = f"{said}: {100 * off:.2g} % off, median"
        times.plot(activated["flow"], activated[column], ".", color=color, label=label, ms=5)
    times.plot(ends, ends, **THEORY, lw=1)
    times.set(xlabel="activation in the flow", ylabel="activation", title="diagonal head")
    if bar:
        times.set_title(f"diagonal head\n({bar.words(' of the times')})", fontsize=9)
    times.legend(fontsize=7.5)
    number_panel(times)
    own = flow[flow["log10_init_scale"].isin(activated["log10_init_scale"].unique())]
    diagonal.plot(own["rescaled_time"], own["loss"], color="black", lw=2.5, label="flow")
    on_batches = losses["name"].isin(activated["name"].unique())
    _losses(diagonal, losses[on_batches], "diagonal head")
    _losses(full, losses[~on_batches], "full matrices")
    end = losses.loc[~on_batches, "rescaled_time"].max()
    for line, (name, of_one) in zip(LINES, rises.groupby("name", sort=False), strict=False):
        unit = -of_one["log10_init_scale"].iloc[0] * np.log(10)
        for matrix, color in MATRIX_COLORS.items():
            for k, (_, rows) in enumerate(where(of_one, matrix=matrix).groupby("batches")):
                risen = np.sort(rows["rise"][np.isfinite(rows["rise"])]) / unit
                said = f"{MATRIX_NAMES[matrix]}, {named(name)}" if k == 0 else None
                ranks.step(
                    [0, *risen, end],
                    [*range(len(risen) + 1), len(risen)],
                    line,
                    where="post",
                    color=color,
                    lw=1.2,
                    label=said,
                )
    ranks.set(ylabel="directions that have risen", title="full matrices")
    ranks.set_ylim(top=1.5 * ranks.get_ylim()[1])  # the legend stands above the curves
    ranks.legend(fontsize=7.5, loc="upper left")
    for axes in (diagonal, ranks, full):
        axes.set_xlabel("time / log(1 / init scale)")
    return figure


def named(name: object) -> str:
    """A descent as the figure names it."""
    return str(name).replace("_", " on ")


def _losses(axes: Axes, losses: pd.DataFrame, title: str) -> None:
    """The loss of every descent, with a line per seed of its batches."""
    for line, (name, of_one) in zip(LINES, losses.groupby("name", sort=False), strict=False):
        look: Any = {"label": named(name), "color": MATRIX_COLORS["W_VO"], "ls": line, "lw": 1}
        unit_lines(axes, of_one, "rescaled_time", "loss", by="batches", **look)
    axes.set(ylabel="loss / loss at 0", ylim=(0, None), title=title)
    axes.legend(fontsize=7.5)
