"""Where Transformers depart from Algorithm 1, seed by seed."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import BOUND, THEORY, shade
from lib.pages.panels import power
from lib.pages.style import BLUE, LOST_COLOR, NULL_COLOR, ORANGE, READ_WIDTH, number_panel

KINDS = {  # the colour, and what the legend says
    "follows": (NULL_COLOR, "follows from 1e-32"),
    "late": (ORANGE, "the same products, late"),
    "not gone": (BLUE, "a product not gone"),
    "another": (LOST_COLOR, "another product"),
}
LEAST = 1e-6  # smaller errors are drawn here


def departures(
    ends: pd.DataFrame, plateaus: pd.DataFrame, orders: pd.DataFrame, near: float, bar: Bar
) -> Figure:
    """The products of Transformers beside Algorithm 1's, and when each product rises.

    The first panel has the error on the last plateau that lasts, by the init scale, with the bar
    that is asked of the errors from 1e-32; the second has that on every plateau, by how long it
    lasts. The third has the times of rises by the finite-scale form and by Algorithm 1. `ends` has
    a row per seed and scale, with the seed's `kind`, `plateaus` a row per stage besides, and
    `orders` a row per rise.
    """
    figure, (scales, lasts, times) = plt.subplots(1, 3, figsize=(READ_WIDTH, 4.2))
    for _, rows in ends.sort_values("log10_init_scale").groupby("seed"):
        color = KINDS[rows["kind"].iloc[0]][0]
        errors = rows["error"].clip(lower=LEAST)
        scales.plot(-rows["log10_init_scale"], errors, ".-", color=color, lw=1.2)
    for kind, (color, label) in KINDS.items():
        n = ends.loc[ends["kind"] == kind, "seed"].nunique()
        if n:
            scales.plot([], [], ".-", color=color, label=f"{label} ({n})")
    scales.set(xscale="log", yscale="log", xlabel="log10(1 / init scale)")
    scales.set(ylabel="error of the products, last lasting plateau")
    steps = sorted(plateaus["log10_init_scale"].unique(), reverse=True)
    for k, scale in enumerate(steps):
        rows = plateaus[(plateaus["log10_init_scale"] == scale) & (plateaus["relaxations"] > 0)]
        color = shade(k, len(steps))
        errors = rows["error"].clip(lower=LEAST)
        label = power(scale)
        lasts.plot(rows["relaxations"], errors, ".", color=color, ms=4, label=label)
    lasts.set(xscale="log", yscale="log", ylabel="error of the products, every plateau")
    lasts.set_xlabel("times that its slowest direction relaxes in a plateau")
    draw_bar(scales, bar, label=f"{bar.words()}, from 1e-32")
    number_panel(scales)
    lasts.axhline(near, **BOUND, lw=1.2)
    for axes in (scales, lasts):
        axes.legend(fontsize=7.5, loc="lower left")
    for name, color, label in (
        ("limit", NULL_COLOR, "Algorithm 1"),
        ("finite", ORANGE, "counted at the scale"),
    ):
        rows = orders.dropna(subset=["flow", name])
        times.plot(rows["flow"], rows[name] / rows["flow"], ".", color=color, ms=4, label=label)
    times.axhline(1, **THEORY, lw=1)
    times.set(xscale="log", xlabel="time of a rise in the flow / log(1 / init scale)")
    times.set_ylabel("predicted time / the flow's")
    times.legend(fontsize=7.5)
    return figure
