"""Adapters of two small language models: times, orders and what is learned first.

The table `learned` has a row for each direction of a module of an adapter and size p, `shares` one
for each module, and `orders` one for each adapter. Scales are those of A at the start, over the
library's own draw.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import THEORY, where
from lib.pages.panels import power
from lib.pages.style import BLUE, GREEN, NULL_COLOR, ORANGE, READ_WIDTH, SEED_MARKERS, number_panel

SCALE_COLORS = (GREEN, BLUE, ORANGE)  # from the library's own draw to smaller ones
FEW_DECADES = 100
ADAPTER = ["log10_init_scale", "model", "seed"]


def lora_start(
    learned: pd.DataFrame,
    shares: pd.DataFrame,
    orders: pd.DataFrame,
    size: float,
    asked: dict[str, Bar],
) -> Figure:
    """Times of one adapter a scale, errors, orders by descent and Adam, and the first direction.

    `asked` are the bars of claims by their names.
    """
    at = where(learned, size=size)
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.8), width_ratios=[1.2, 1, 1, 1])
    draw_times(panels[0], where(at, case="descent"), size)
    draw_errors(panels[1], where(at, case="descent"), asked.get("lora_start_times"))
    number_panel(panels[1])
    draw_orders(panels[2], orders, asked.get("lora_start_order"))
    draw_shares(panels[3], where(shares, size=size), asked.get("lora_start_outputs"))
    return figure


def scales_of(table: pd.DataFrame) -> list[float]:
    """The scales of A, as log10, from the largest on."""
    return sorted(table["log10_init_scale"].unique().tolist(), reverse=True)


def label_of(scale: float) -> str:
    """A scale in words."""
    return "LoRA's own A" if scale == 0 else f"A times $10^{{{scale:g}}}$"


def draw_times(axes: Axes, rows: pd.DataFrame, size: float) -> None:
    """The steps to the size, measured against forecast, of the first seed of each model."""
    first = where(rows, seed=rows["seed"].min())
    for scale, color in zip(scales_of(rows), SCALE_COLORS, strict=False):
        own = where(first, log10_init_scale=scale)
        small = own["forecast"] <= own["horizon"]
        for part, face, alpha in ((own[~small], "none", 0.6), (own[small], color, 1.0)):
            label = label_of(scale) if face != "none" else None
            look = {"mec": color, "mfc": face, "ms": 3.5, "alpha": alpha, "mew": 0.7}
            axes.plot(part["forecast"], part["measured"], "o", **look, label=label)
    axes.set(xscale="log", yscale="log")
    ends = np.array(axes.get_ylim())
    if ends[1] < FEW_DECADES * ends[0]:  # so few that minor ticks have labels, one over another
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.plot(ends, ends, **THEORY, lw=1, label="as the start says")
    axes.set(xlabel="steps, said by the start", ylabel=f"steps until p = {size:g}")
    axes.set_title("gradient descent; filled: update still small", fontsize=9)
    axes.legend(loc="upper left", fontsize=7.5)


def draw_errors(axes: Axes, rows: pd.DataFrame, bar: Bar | None) -> None:
    """The largest error of a time while the update is small, by scale, and of two nulls."""
    near = rows[rows["forecast"] <= rows["horizon"]]
    for column, name, color, marker, shift in (
        ("equal", "every A v equally long", ORANGE, "x", 0.0),
        ("shuffled", "σ of another module", NULL_COLOR, ".", 0.12),
        ("forecast", "the start's forecast", GREEN, "o", -0.12),
    ):
        error = (near["measured"] / near[column] - 1).abs()
        worst = near.assign(error=error).groupby(ADAPTER, observed=True)["error"].max()
        place = -worst.index.get_level_values("log10_init_scale").to_numpy(float)
        axes.plot(place + shift, worst.to_numpy(), marker, color=color, ms=4, label=name)
    axes.set(yscale="log", ylabel="largest error of a time", ylim=(None, 1e3))
    mark_scales(axes, scales_of(rows))
    axes.set_title("while the update is small", fontsize=9)
    draw_bar(axes, bar)
    axes.legend(loc="upper right", fontsize=7.5)


def draw_orders(axes: Axes, orders: pd.DataFrame, bar: Bar | None) -> None:
    """Kendall's tau of the measured order, by descent and by Adam, and with σ alone."""
    scales = scales_of(orders)
    for case, column, name, color, marker, shift in (
        ("descent", "order_sigma", "σ alone", NULL_COLOR, ".", 0.15),
        ("adam", "order_sigma", None, NULL_COLOR, ".", 0.15),
        ("descent", "order", "the start, by descent", GREEN, "o", -0.15),
        ("adam", "order_descent", None, GREEN, "o", -0.15),
        ("adam", "order", "the start, by signs", BLUE, "D", 0.0),
    ):
        own = where(orders, case=case)
        first = len(scales) if case == "adam" else 0
        place = [first + scales.index(scale) + shift for scale in own["log10_init_scale"]]
        axes.plot(place, own[column], marker, color=color, ms=3.5, label=name)
    axes.set(ylabel="Kendall's tau of the order", ylim=(None, 1.45))
    mark_scales(axes, [*scales, *scales])
    axes.axvline(len(scales) - 0.5, color="black", lw=0.6)
    axes.set_title("gradient descent | Adam", fontsize=9)
    draw_bar(axes, bar)
    axes.legend(loc="upper right", fontsize=7.5)


def draw_shares(axes: Axes, shares: pd.DataFrame, bar: Bar | None) -> None:
    """How much of the first learned direction lies in the gradient's first ones, by scale."""
    rows = where(shares, case="descent")
    for k, (column, null, name, color) in enumerate(
        (
            ("out", "random_out", "of outputs", GREEN),
            ("in", "random_in", "of inputs", ORANGE),
        )
    ):
        shift = 0.2 * k - 0.1
        means = rows.groupby(ADAPTER, observed=True)[[column, null]].mean()
        place = -means.index.get_level_values("log10_init_scale").to_numpy(float)
        axes.plot(place + shift, means[column], SEED_MARKERS[k], color=color, ms=4, label=name)
        label = "a random direction" if k == 0 else None
        axes.plot(place + shift, means[null], "_", color=NULL_COLOR, ms=8, label=label)
    axes.set(ylabel="share in the gradient's first directions", ylim=(0, 1.35))
    mark_scales(axes, scales_of(rows))
    axes.set_title("what each module learns first", fontsize=9)
    draw_bar(axes, bar)
    axes.legend(loc="upper right", fontsize=7.5)


def mark_scales(axes: Axes, scales: list[float]) -> None:
    """Name the scales of A under a panel in which they stand one beside another."""
    names = ["1" if scale == 0 else power(scale) for scale in scales]
    axes.set_xticks(range(len(scales)), names)
    axes.set(xlabel="A over LoRA's own draw", xlim=(-0.5, len(scales) - 0.5))
