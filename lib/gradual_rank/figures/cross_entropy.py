"""Cross-entropy with weight decay and without: supports by scale, a head's course, and its size.

Dashed lines are Algorithm 1; a thin line is a network.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.gradual_rank.figures.staircase import draw_products
from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import THEORY, where
from lib.pages.panels import numbers_below, power
from lib.pages.style import BLUE, GREEN, LOST_COLOR, NULL_COLOR, ORANGE, READ_WIDTH, number_panel

NAMES = {"linear": ("linear classifiers", BLUE), "head": ("attention heads", ORANGE)}
SHOWN = "head"  # the line of the table of cases whose first network has its course drawn


def cross_entropy_plateaus(
    agreed: pd.DataFrame, courses: pd.DataFrame, stages: pd.DataFrame, bar: Bar | None = None
) -> Figure:
    """The shares of supports by scale, the products of a head, and the sizes of all networks.

    The bar is of the mean share from the smallest scale.
    """
    figure, panels = plt.subplots(1, 3, figsize=(READ_WIDTH, 3.9), width_ratios=[1, 1.2, 1])
    draw_supports(panels[0], agreed, bar)
    number_panel(panels[0])
    decayed = courses[(courses["case"] == SHOWN) & (courses["share"] > 0)]
    if len(decayed):
        seed = decayed["seed"].min()
        own = stages[(stages["case"] == SHOWN) & (stages["share"] > 0) & (stages["seed"] == seed)]
        draw_course(panels[1], where(decayed, seed=seed), own.sort_values("stage"))
    draw_sizes(panels[2], courses, stages)
    return figure


def draw_supports(axes: Axes, agreed: pd.DataFrame, bar: Bar | None) -> None:
    """The share of plateaus with the predicted support, of each network and in the mean."""
    scales = sorted(map(float, agreed["log10_init_scale"].unique()), reverse=True)
    places = np.arange(len(scales))
    axes.axhline(1, **THEORY, lw=1, label="Algorithm 1: all plateaus")
    null = None
    for name, (said, color) in NAMES.items():
        own = where(agreed, case=name)
        shares = own.pivot(index="seed", columns="log10_init_scale", values="supports")[scales]
        by_gradient = own.groupby("log10_init_scale")["supports_by_gradient"].mean()
        for _, row in shares.iterrows():
            axes.plot(places, row, color=color, lw=0.6, alpha=0.4)
        axes.plot(places, shares.mean(), "o-", color=color, lw=2, ms=5, label=said)
        null = "products by their gradient at 0" if null is None else "_"
        axes.plot(places, by_gradient[scales], "o-", color=NULL_COLOR, lw=1.3, ms=3, label=null)
    last = where(agreed, log10_init_scale=scales[-1]).groupby("case")["supports"].mean()
    said = ", ".join(f"{NAMES[str(name)][0]} {share:.0%}" for name, share in last.items())
    words = f"\n({bar.words()})" if bar else ""
    axes.set_title(f"from {power(scales[-1])}: {said}{words}", fontsize=8.5)
    if bar:
        draw_bar(axes, bar)
    axes.set(xlabel="init scale", ylabel="plateaus with the predicted support", ylim=(-0.03, 1.55))
    axes.set_xticks(places, labels=[power(scale) for scale in scales])
    axes.set_yticks(np.linspace(0, 1, 6), labels=[f"{share:.0%}" for share in np.linspace(0, 1, 6)])
    axes.legend(loc="upper left", fontsize=7.5)


def draw_course(axes: Axes, course: pd.DataFrame, stages: pd.DataFrame) -> None:
    """The products of one network, and those of Algorithm 1 with decay."""
    course = course.sort_values("rescaled_time")
    begin = 0.6 * float(stages["time"].iloc[1])
    end = 3 * float(stages["time"].iloc[-1])
    look: Any = {"widths": (1.6, 0.8), "label": "Algorithm 1 with decay"}
    draw_products(axes, course, stages.assign(next_time=end), end, **look)
    scale = power(float(course["log10_init_scale"].iloc[0]))
    axes.set_title(f"the products of a head with decay, init scale {scale}", fontsize=8.5)
    axes.set(xscale="log", xlabel="time / log(1 / init scale)", ylabel="products")
    axes.set_xlim(begin, end)
    plain_ticks(axes, begin, end)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.12 * (high - low))
    axes.legend(loc="upper left", fontsize=7.5)


def draw_sizes(axes: Axes, courses: pd.DataFrame, stages: pd.DataFrame) -> None:
    """The sum of the sizes of the products of each network, over that of Algorithm 1's last."""
    labels = {True: "with weight decay", False: "without decay"}
    for (case, seed), own in courses.groupby(["case", "seed"], sort=False):
        theory = stages[(stages["case"] == case) & (stages["seed"] == seed) & (stages["share"] > 0)]
        last = theory.sort_values("stage").iloc[-1]
        unit = np.abs(last["p"]).sum()
        for decays in (True, False):
            rows = own[(own["share"] > 0) == decays].sort_values("rescaled_time")
            size = [np.abs(p).sum() / unit for p in rows["p"]]
            color = GREEN if decays else LOST_COLOR
            time = rows["rescaled_time"] / last["time"]
            axes.plot(time, size, color=color, lw=0.9, label=labels.pop(decays, None))
    axes.axhline(1, **THEORY, lw=1, label="Algorithm 1's end with decay")
    axes.set_title("with decay they come to rest, without they grow on", fontsize=8.5)
    axes.set(xscale="log", yscale="log", xlim=(0.03, None), ylim=(0.1, None))
    axes.set(xlabel="time / that of the last stage", ylabel="sum of their sizes / that at the end")
    low, high = axes.get_ylim()
    axes.set_ylim(low, 12 * high)
    axes.legend(loc="upper left", fontsize=7.5)


def plain_ticks(axes: Axes, begin: float, end: float) -> None:
    """Write the times below a short logarithmic axis as plain numbers."""
    every = [m * 10.0**k for k in range(-3, 9) for m in (1, 2, 5)]
    shown = [time for time in every if begin <= time <= end]
    numbers_below(axes, shown)
