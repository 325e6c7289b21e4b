"""What rises second in heads with full matrices: how long W_KQ waits, and in which order by scale.

Dashed lines are what theory says. A point is a head.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar
from lib.pages.marks import THEORY, where
from lib.pages.panels import power
from lib.pages.style import GREEN, MATRIX_COLORS, MATRIX_NAMES, NULL_COLOR, READ_WIDTH, number_panel

CASE = "full"  # the line of the table of cases whose orders and course are drawn
MARKERS = {CASE: ("o", "teacher of full rank"), "rank_one": ("s", "of rank one")}
LEAST = 1e-6  # the singular value from which a course is drawn
SECOND = GREEN  # the second direction of W_VO
KEYS = MATRIX_COLORS["W_KQ"]
VALUES = MATRIX_COLORS["W_VO"]


def what_rises_second(
    heads: pd.DataFrame,
    rises: pd.DataFrame,
    waits: pd.DataFrame,
    courses: pd.DataFrame,
    bar: Bar | None = None,
) -> Figure:
    """The added waits, a head from a large and a small scale, and the order by scale.

    The large scale is the largest, and the small one the largest from which W_KQ rises second. The
    bar is of the added wait over what theory says.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.7))
    draw_waits(panels[0], waits, bar)
    number_panel(panels[0])
    scales = courses["log10_init_scale"]
    own = where(rises, case=CASE, seed=courses["seed"].iloc[0])
    keys_first = own.loc[own["keys"] < own["values"], "log10_init_scale"]
    small = keys_first.max() if len(keys_first) else scales.min()
    for axes, scale in zip(panels[1:3], (scales.max(), small), strict=True):
        draw_course(axes, courses[scales == scale], rises)
    panels[2].get_legend().remove()
    draw_orders(panels[3], where(heads, case=CASE), where(rises, case=CASE))
    return figure


def draw_waits(axes: Axes, waits: pd.DataFrame, bar: Bar | None) -> None:
    """The wait of W_KQ that a smaller start adds, beside what both saddles say, at the smallest
    scale of every case.
    """
    least = waits.groupby("case")["log10_init_scale"].transform("min")
    drawn = where(waits, log10_init_scale=least)
    for case, (marker, said) in MARKERS.items():
        own = where(drawn, case=case)
        if case == CASE:
            label = "saddle of the second pair"
            axes.plot(own["added_pair"], own["added"], "x", color=NULL_COLOR, ms=5, label=label)
        axes.plot(own["added_said"], own["added"], marker, color=KEYS, ms=4.5, label=said)
    low = drawn["added"].min() / 5
    high = drawn["added"].max() * 2
    ends = np.array([low, high])
    axes.plot(ends, ends, **THEORY, lw=1.1, label="theory", zorder=0)
    own = where(drawn, case=CASE)
    ratio = float((own["added"] / own["added_said"]).median())
    scale = power(float(own["log10_init_scale"].min()))
    title = f"from {scale}: {ratio:.4f} of what is said"
    axes.set_title(f"{title}\n({bar.words()})" if bar else title, fontsize=9)
    axes.set(xscale="log", yscale="log", ylim=(low, high))
    axes.set(
        xlabel="added wait, as a saddle says it", ylabel=f"added wait of {MATRIX_NAMES['W_KQ']}"
    )
    axes.legend(loc="lower right", fontsize=7.5)


def draw_course(axes: Axes, course: pd.DataFrame, rises: pd.DataFrame) -> None:
    """Singular values of a head by rescaled time, with the times of rises that its start says."""
    case, seed, scale = course.iloc[0][["case", "seed", "log10_init_scale"]]
    waited = -scale * math.log(10)
    [said] = where(rises, case=case, seed=seed, log10_init_scale=scale).to_dict("records")
    name = MATRIX_NAMES["W_VO"]
    for column, color, label, time in (
        ("sigma_values", VALUES, rf"$\sigma_1$ of {name}", "first_said"),
        ("sigma_values_2", SECOND, rf"$\sigma_2$ of {name}", "values_said"),
        ("sigma_keys", KEYS, rf"$\sigma_1$ of {MATRIX_NAMES['W_KQ']}", "keys_said"),
    ):
        axes.plot(course["time"] / waited, course[column], "-", color=color, lw=1.8, label=label)
        axes.axvline(said[time] / waited, color=color, ls="--", lw=1.1)
    keys_first = said["keys"] < said["values"]
    second = MATRIX_NAMES["W_KQ"] if keys_first else f"a direction of {name}"
    axes.set_title(f"from {power(float(scale))}: {second}\nrises second", fontsize=9)
    axes.set(yscale="log", ylim=(LEAST, 30.0), xlabel="time / log(1 / init scale)")
    begin = course.loc[course["sigma_values"] > LEAST, "time"].min() / waited
    end = max(course["time"].max(), min(said["values_said"], 1.02 * course["time"].max()))
    axes.set_xlim(begin, 1.01 * end / waited)
    axes.set_ylabel("singular value")
    axes.legend(loc="upper left", fontsize=7.5)


def draw_orders(axes: Axes, heads: pd.DataFrame, rises: pd.DataFrame) -> None:
    """What rose second in every head from every scale, and where theory has the order change."""
    # no crossing is one at a larger scale than any here, or at none: before and behind all
    last = np.where(heads["before"] > 1, math.inf, 0.0)
    turns = heads.assign(turn=(-heads["crossing"]).fillna(pd.Series(last, heads.index)))
    rows = {seed: row for row, seed in enumerate(turns.sort_values("turn")["seed"])}
    place = -rises["log10_init_scale"]
    row = rises["seed"].map(rows)
    keys = rises["keys"] < rises["values"]
    for chosen, color, label in (
        (keys, KEYS, MATRIX_NAMES["W_KQ"]),
        (~keys, SECOND, rf"$\sigma_2$ of {MATRIX_NAMES['W_VO']}"),
    ):
        axes.plot(place[chosen], row[chosen], "o", color=color, ms=5, label=label)
    seen = turns[np.isfinite(turns["turn"]) & (turns["turn"] > 0)]
    middle = seen["seed"].map(rows)
    axes.vlines(seen["turn"], middle - 0.4, middle + 0.4, **THEORY, lw=1.1, label="theory")
    scales = sorted(place.unique())
    axes.set(
        xscale="log", xlim=(min(scales) / 1.6, max(scales) * 1.3), ylim=(-0.7, len(rows) + 1.7)
    )
    labels = [power(-float(scale)) if n % 2 == 0 else "" for n, scale in enumerate(scales)]
    axes.set_xticks(scales, labels=labels, fontsize=7.5)
    axes.minorticks_off()
    axes.set_yticks([])
    axes.set(xlabel="init scale", ylabel="head")
    axes.set_title("what rises second", fontsize=9)
    axes.legend(loc="upper center", ncols=3, fontsize=7, columnspacing=0.6, handlelength=1.2)
