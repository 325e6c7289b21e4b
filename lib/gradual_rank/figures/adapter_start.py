"""LoRA's start: when an adapter learns which direction, by flow and by the start's forecast.

Dashed lines are what the start says. Tables have a row per direction of an adapter.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import THEORY, shade, where, write_beside
from lib.pages.panels import power
from lib.pages.style import GREEN, MATRIX_COLORS, NULL_COLOR, READ_WIDTH, number_panel

USUAL = 3**-0.5  # that of entries that are uniform on ±1 / √d, as the PEFT library draws them
SHOWN = -2.0  # log10 of the scale of A in the panels that show one


def adapter_start(
    learned: pd.DataFrame, course: pd.DataFrame, orders: pd.DataFrame, asked: dict[str, Bar]
) -> Figure:
    """One adapter's course, the errors of times by scale, the last direction by rank, and orders.

    `asked` are the bars of claims by their names.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.8), width_ratios=[1.25, 1, 1, 0.8])
    draw_course(panels[0], course)
    draw_errors(panels[1], learned, asked.get("adapter_times"))
    number_panel(panels[1])
    draw_last(panels[2], learned, asked.get("adapter_crowding"))
    draw_orders(panels[3], orders, asked.get("adapter_order"))
    return figure


def draw_course(axes: Axes, course: pd.DataFrame) -> None:
    """How much of each direction one adapter has learned, and what its start says."""
    n = course["direction"].nunique()
    for direction, own in course.groupby("direction"):
        k = int(str(direction))
        color = shade(k, n, 0.95)
        axes.plot(own["time"], own["learned"], color=color, lw=2.2)
        said = own[np.isfinite(own["expected"])]
        label = "said by the start" if k == 0 else None
        axes.plot(said["expected"], said["learned"], **THEORY, lw=1, label=label)
        [end] = own.nlargest(1, "time").to_dict("records")
        look: Any = {"ha": "right", "fontsize": 7.5, "color": color}
        write_beside(axes, f"direction {k + 1}", (end["time"], end["learned"]), (0, 4), **look)
    axes.set(xlabel="time of the flow", ylabel="learned of each direction")
    axes.set_title(f"an adapter from B = 0, A of {power(SHOWN)}", fontsize=9)
    axes.legend(loc="upper left", fontsize=7.5)


def draw_errors(axes: Axes, learned: pd.DataFrame, bar: Bar | None) -> None:
    """The largest error of a direction's time in each adapter, and that of a shuffled forecast."""
    for case, name, color, marker in (
        ("apart", "matrices", GREEN, "o"),
        ("head", r"heads, $W_V W_O^\top$", MATRIX_COLORS["W_VO"], "x"),
    ):
        own = where(learned, case=case)
        axes.plot(*worst(own, "forecast"), marker, color=color, ms=4, label=name)
        if case == "apart":
            label = "σ of another direction"
            axes.plot(*worst(own, "shuffled"), ".", color=NULL_COLOR, ms=4, label=label)
    axes.axvline(USUAL, ls=":", color=NULL_COLOR, lw=1.2, label="usual scale of LoRA")
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="scale of A at the start", ylabel="largest error of a time")
    draw_bar(axes, bar)
    axes.legend(loc="lower right", fontsize=7.5)


def worst(rows: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """The scale of A of each adapter, and its largest relative error by a forecast."""
    error = (rows["measured"] / rows[column] - 1).abs()
    each = rows.assign(error=error).groupby(["log10_init_scale", "rank", "seed"])["error"].max()
    scales = each.index.get_level_values("log10_init_scale").to_numpy(float)
    return 10.0**scales, each.to_numpy()


def draw_last(axes: Axes, learned: pd.DataFrame, bar: Bar | None) -> None:
    """The last direction's time over its forecast, with and without what others take, by rank."""
    rows = where(learned, case="apart", log10_init_scale=SHOWN)
    last = rows.sort_values("measured").drop_duplicates(["rank", "seed"], keep="last")
    ranks = sorted(last["rank"].unique())
    place = np.array([ranks.index(rank) for rank in last["rank"]])
    for column, name, color, marker, shift in (
        ("alone", "each direction alone", NULL_COLOR, ".", -0.12),
        ("forecast", "less what others take", GREEN, "o", 0.12),
    ):
        ratio = last["measured"] / last[column]
        axes.plot(place + shift, ratio, marker, color=color, ms=5, label=name)
    axes.set_xticks(range(len(ranks)), [f"{rank}" for rank in ranks])
    n = int(last["direction"].max()) + 1 if len(last) else 0
    axes.set(xlabel="rank of the adapter", ylabel="last direction / forecast", xlim=(-0.5, None))
    axes.set_title(f"the last of {n} directions, A of {power(SHOWN)}", fontsize=9)
    draw_bar(axes, bar)
    axes.legend(loc="upper right", fontsize=7.5)


def draw_orders(axes: Axes, orders: pd.DataFrame, bar: Bar | None) -> None:
    """Kendall's tau of the order in which directions of nearly one σ are learned, by rank."""
    ranks = sorted(orders["rank"].unique())
    place = np.array([ranks.index(rank) for rank in orders["rank"]])
    for column, name, color, marker, shift in (
        ("order_sigma", "by σ alone", NULL_COLOR, ".", -0.12),
        ("order", "by the forecast", GREEN, "o", 0.12),
    ):
        axes.plot(place + shift, orders[column], marker, color=color, ms=5, label=name)
        means = orders.groupby("rank")[column].mean()
        axes.plot(np.arange(len(ranks)) + shift, means, "_", color=color, ms=22, mew=2)
    axes.set_xticks(range(len(ranks)), [f"{rank}" for rank in ranks])
    axes.set(xlabel="rank of the adapter", ylabel="Kendall's tau of the order", ylim=(None, 1.05))
    axes.set(xlim=(-0.5, len(ranks) - 0.5))
    axes.set_title("directions of nearly one σ", fontsize=9)
    draw_bar(axes, bar)
    axes.legend(loc="lower right", fontsize=7.5)
