"""Heads with normalised queries and keys: when keys turn and values rise, by init scale.

Dashed lines are what theory says. Times are of the flow; a thin line is a head.
"""

import math
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import THEORY, unit_lines, where
from lib.pages.panels import power, powers_below
from lib.pages.style import (
    BLUE,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    PERMUTED_COLOR,
    READ_WIDTH,
    number_panel,
)

NORMALIZED = "qk_norm"  # the lines of the table of cases that are drawn
PLAIN = "plain"
PERMUTED = "permuted"
FROM = -2.0  # log10 of the scale from which on the time of the turn is compared
LOOKS = {
    NORMALIZED: ("QK-norm", BLUE),
    PLAIN: ("plain attention", NULL_COLOR),
    PERMUTED: ("QK-norm, permuted labels", PERMUTED_COLOR),
}


def normalized_heads(
    heads: pd.DataFrame,
    limits: pd.DataFrame,
    courses: pd.DataFrame,
    change: Bar | None = None,
    angle: Bar | None = None,
) -> Figure:
    """The times of turns and rises by scale, angles when values have begun to rise, and a course.

    The bars are of how much the time of the turn changes from 1e-2 on, and of the angle.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.7))
    draw_turns(panels[0], heads, limits, change)
    number_panel(panels[0])
    draw_rises(panels[1], heads, limits)
    draw_angles(panels[2], heads, angle)
    draw_course(panels[3], courses)
    return figure


def draw_turns(
    axes: Axes, heads: pd.DataFrame, limits: pd.DataFrame, bar: Bar | None = None
) -> None:
    """When W_KQ has turned, and by how much that changes from 1e-2 on, in the median."""
    moved = {name: 100 * median_change(heads, name) for name in (NORMALIZED, PLAIN)}
    said = f"from {power(FROM)} on it changes by {moved[NORMALIZED]:.2g} %,\n"
    said += f"plain {moved[PLAIN]:.0f} %"
    axes.set_title(f"{said} ({bar.words(' of it')})" if bar else said, fontsize=9)
    for name in (PLAIN, PERMUTED, NORMALIZED):
        said, color = LOOKS[name]
        look: Any = {"label": said, "color": color, "marker": ".", "lw": 0.9, "ms": 5}
        unit_lines(axes, from_the_largest(heads, name), "smallness", "turn", **look)
    own = where(limits, case=NORMALIZED)
    for number, turn in enumerate(own["turn"]):
        label = "limit, no scale in it" if number == 0 else None
        axes.axhline(turn, **THEORY, lw=0.6, label=label)
    axes.set(yscale="log", ylabel="time until keys have turned")
    scales_below(axes, heads)
    room_above(axes, 12.0)
    axes.legend(loc="upper left", fontsize=7.5)


def draw_rises(axes: Axes, heads: pd.DataFrame, limits: pd.DataFrame) -> None:
    """When W_VO has risen, and the slope that growth under the attention of each case has."""
    for name in (PLAIN, NORMALIZED):
        said, color = LOOKS[name]
        rates = where(limits, case=name).set_index("seed")["growth"]
        for number, own in enumerate(by_seed(heads, name)):
            seed = own["seed"].iloc[0]
            label = said if number == 0 else None
            axes.plot(own.index, own["rise"], ".-", color=color, lw=0.9, ms=5, label=label)
            last = float(own["rise"].iloc[-1])
            slope = math.log(10) / float(rates[seed])
            ends = np.array([own.index[-1] - 2, own.index[-1]])
            theory = "theory" if number == 0 and name == NORMALIZED else None
            axes.plot(ends, last + slope * (ends - ends[-1]), **THEORY, lw=0.8, label=theory)
    axes.set(ylabel=f"time until {MATRIX_NAMES['W_VO']} has risen", ylim=(0, None))
    scales_below(axes, heads)
    room_above(axes, 1.25)
    axes.legend(loc="upper left", fontsize=7.5)


def draw_angles(axes: Axes, heads: pd.DataFrame, bar: Bar | None) -> None:
    """By how much W_K has turned when values begin to rise, with a point per head."""
    for name in (PLAIN, NORMALIZED):
        said, color = LOOKS[name]
        own = where(heads, case=name)
        axes.plot(-own["log10_init_scale"], own["angle"], "o", color=color, ms=4, label=said)
    axes.set(ylabel="turn of $W_K$ as values begin to rise, °", ylim=(-3, 95))
    scales_below(axes, heads)
    if bar:
        draw_bar(axes, bar, label=bar.words("°").replace("asked", "asked from $10^{-3}$"))
        axes.set_ylim(-3, 125)
    axes.legend(loc="upper left", fontsize=7.5)


def draw_course(axes: Axes, courses: pd.DataFrame) -> None:
    """One head from the smallest scale: the relative update of W_KQ, and the value of W_VO."""
    scale = courses["log10_init_scale"].min()
    own = where(courses, log10_init_scale=scale)
    end = 1.0
    for name, line in ((PLAIN, ":"), (NORMALIZED, "-")):
        rows = where(own, case=name)
        said, _ = LOOKS[name]
        for column, matrix, what in (
            ("turned", "W_KQ", f"update of {MATRIX_NAMES['W_KQ']}"),
            ("sigma", "W_VO", rf"$\sigma_1$ of {MATRIX_NAMES['W_VO']}"),
        ):
            axes.plot(
                rows["time"],
                rows[column],
                line,
                color=MATRIX_COLORS[matrix],
                lw=1.4,
                label=f"{what}, {said}",
            )
        end = max(end, float(rows["time"].max()))
    axes.set(xlabel="time", ylabel="relative update, singular value", xlim=(0, end), ylim=(0, 1.9))
    axes.set_title(f"one head, init scale {power(float(scale))}", fontsize=9)
    axes.legend(loc="center", bbox_to_anchor=(0.56, 0.5), fontsize=7)


def median_change(heads: pd.DataFrame, name: str) -> float:
    """The change of the turn's time from 1e-2 to the smallest scale, the median over heads."""
    changes = [
        abs(own["turn"].iloc[-1] / own["turn"].iloc[np.abs(own.index + FROM).argmin()] - 1)
        for own in by_seed(heads, name)
    ]
    return float(np.median(changes))


def from_the_largest(heads: pd.DataFrame, name: str) -> pd.DataFrame:
    """The heads of a case, each from its largest scale on; `smallness` is minus the scale's log."""
    own = where(heads, case=name)
    return own.assign(smallness=-own["log10_init_scale"]).sort_values("smallness")


def by_seed(heads: pd.DataFrame, name: str) -> list[pd.DataFrame]:
    """The rows of each head of a case, from its largest scale on, by minus the log of the scale."""
    of_seeds = from_the_largest(heads, name).groupby("seed", sort=True)
    return [rows.set_index("smallness") for _, rows in of_seeds]


def scales_below(axes: Axes, heads: pd.DataFrame) -> None:
    """Name the init scales below a panel."""
    powers_below(axes, heads["log10_init_scale"])
    axes.set_xlabel("init scale")


def room_above(axes: Axes, times: float) -> None:
    """Leave room for a legend above what is drawn."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * times)
