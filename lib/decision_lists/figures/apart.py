"""W_K and W_Q trained apart: when directions of W rise, and how many are large in the end."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.decision_lists.figures.lines import DASHED, LOG_LOG, SMALL, singular_values_in_time
from lib.pages.marks import shaded, where
from lib.pages.style import BLUE, GREEN, NULL_COLOR, ORANGE, PURPLE, READ_WIDTH, number_panel

SHOWN = 3  # the number of heads whose course is drawn, or the nearest
KINDS = {  # what descends: its name and its colour
    "factored": ("$W_K$ and $W_Q$ apart", BLUE),
    "whole": ("$W$ itself", ORANGE),
    "permuted": ("rare tokens head the lists", PURPLE),
}
# A legend above its panel, so that it hides no line.
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "fontsize": SMALL}


def keys_and_queries(factored: pd.DataFrame, staircases: pd.DataFrame) -> Figure:
    """Waits for the first rise, a course, ranks when all is right, and when that is."""
    figure, panels = plt.subplots(2, 2, figsize=(READ_WIDTH, 8.2))
    waits, course, ranks, times = panels.flat
    number_panel(waits)
    factored = factored.assign(
        init_scale=10.0 ** factored["log10_init_scale"],
        log=-np.log(10) * factored["log10_init_scale"],
    )
    with_heads = factored[factored["n_heads"] > 0]
    first = with_heads.groupby("n_heads")["task"].first()  # one task for each number of heads
    of_heads = with_heads[with_heads["task"].isin(first)]
    _waits(waits, factored)
    _course(course, of_heads, staircases)
    _ranks(
        ranks, with_heads[(with_heads["until"] != "first rise") & (with_heads["right"] < np.inf)]
    )
    _times(times, where(of_heads, of="factored"))
    return figure


def _waits(axes: Axes, factored: pd.DataFrame) -> None:
    for of in ("factored", "whole"):
        name, color = KINDS[of]
        rows = where(factored, of=of)
        wait = rows["first_rise"] * rows["sigma_1"] / rows["log"]
        points = {"ms": 3, "mfc": "none", "color": color, "label": name}
        axes.plot(rows["init_scale"], wait, "o", **points)
    axes.axhline(1, **DASHED, label="limit")
    axes.set(xscale="log", xlabel="init scale α", ylim=(0, 1.1))
    axes.set_ylabel(r"wait for the first rise, $t \cdot \sigma_1(G)\,/\,\log(1/\alpha)$")
    axes.legend(**ABOVE, ncols=3)


def _course(axes: Axes, of_heads: pd.DataFrame, staircases: pd.DataFrame) -> None:
    there = of_heads[of_heads["task"].isin(staircases["task"])]
    if there.empty:
        return
    nearest = (there["n_heads"] - SHOWN).abs().idxmin()
    task = there.loc[nearest, "task"]
    rows = staircases[(staircases["task"] == task) & (staircases["time"] > 0)]
    singular_values_in_time(axes, rows)
    run = where(there, task=task, of="factored")
    run = where(run, log10_init_scale=rows["log10_init_scale"].iloc[0]).iloc[0]
    axes.axvline(run["log"] / run["sigma_1"], **DASHED, label="limit of the first rise")
    if np.isfinite(run["right"]):
        axes.axvline(run["right"], color=GREEN, lw=1.2, label="all right")
    axes.set(**LOG_LOG, xlabel="time t", ylabel="singular values of W")
    axes.set_ylim(run["init_scale"] ** 2 / 10, None)
    said = f"{run['n_heads']} frequent heads, α = $10^{{{run['log10_init_scale']:g}}}$"
    axes.set_title(said, fontsize=9, loc="right")
    axes.legend(**ABOVE, ncols=2)


def _ranks(axes: Axes, right: pd.DataFrame) -> None:
    for i, (of, (name, color)) in enumerate(KINDS.items()):
        rows = where(right, of=of)
        points = {"ms": 4, "mfc": "none", "color": color, "label": name}
        axes.plot(rows["n_heads"] + 0.16 * (i - 1), rows["numerical_rank"], "o", **points)
    apart = where(right, of="factored")
    fewest = {"ms": 5, "color": NULL_COLOR, "label": "fewest that keep it right"}
    axes.plot(apart["n_heads"] + 0.32, apart["fewest"], "_", **fewest)
    heads = np.arange(1, 1 + max(right["n_heads"], default=1))
    axes.plot(heads, np.maximum(1, heads - 1), **DASHED, label="max(1, heads − 1)")
    axes.set(xlabel="frequent heads", ylabel="large directions when all is right")
    axes.set_ylim(0, None)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(**ABOVE, ncols=3)


def _times(axes: Axes, apart: pd.DataFrame) -> None:
    gone_on = apart[apart["until"] != "first rise"]
    for n_heads, rows, color in shaded(gone_on, "n_heads", ordered=True):
        medians = rows.groupby("init_scale")[["right", "next_rise", "log"]].median()
        right = medians["right"] / medians["log"]
        axes.plot(medians.index, right, "o-", ms=3.5, lw=1.2, color=color, label=_heads(n_heads))
        following = medians["next_rise"] / medians["log"]
        axes.plot(medians.index, following, "^:", ms=3.5, lw=1.2, color=color)
    axes.plot([], [], "o-", ms=3.5, color="black", label="all right")
    axes.plot([], [], "^:", ms=3.5, color="black", label="one more direction rises")
    axes.set(**LOG_LOG, xlabel="init scale α", ylabel=r"time $/ \log(1/\alpha)$")
    axes.legend(**ABOVE, ncols=3)


def _heads(n: int) -> str:
    return f"{n} frequent head{'s' if n > 1 else ''}"
