"""What comes back after a disturbance.

These are figures 9 and 10 of Boix-Adserà et al. (2023, v1), and checks of Assumptions 4.2 to 4.4.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.gradual_rank.figures.greedy_limit import label
from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import BOUND, THEORY, shade, where, write_beside
from lib.pages.panels import shared_legend, sized
from lib.pages.style import (
    GREEN,
    LOST_COLOR,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    READ_WIDTH,
    number_panel,
)

NOISE_COLORS = {
    "balanced": MATRIX_COLORS["W_KQ"],
    "independent": MATRIX_COLORS["W_VO"],
    "none": NULL_COLOR,
}

GAP_COLOR = MATRIX_COLORS["W_KQ"]
WEIGHTS_COLOR = GREEN
TICK = 0.15  # half of the height of a stage's line, in rows
SMALLEST = 1e-6  # a tie is drawn as this gap
HIGH = 1.6  # the height of panels of shares
LEAST_APART = 1e-6  # two products that are nearer are drawn at this distance


def disturbed_at_random(paths: pd.DataFrame, d: int, bar: Bar | None = None) -> Figure:
    """Figure 9 of a head of width d: how far the disturbed products are from the undisturbed ones.

    Each panel has the largest distance of one matrix, with a line per disturbance. A bar is drawn
    at the end of the time, where the distance has to meet it.
    """
    rows = where(paths, kind="random")
    times = sorted(rows["time"].unique())
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.6), sharey=True)
    for axes, (matrix, name) in zip(panels, MATRIX_NAMES.items(), strict=True):
        for n, time in enumerate(times):
            own = where(rows, time=time).sort_values("after")
            held = np.asarray(own["coordinates"].iloc[0])
            chosen = held < d if matrix == "W_KQ" else held >= d
            apart = np.abs(np.stack(list(own["p"])) - np.stack(list(own["p_undisturbed"])))
            color = shade(n, len(times))
            if chosen.any():
                far = apart[:, chosen].max(1).clip(min=LEAST_APART)
                axes.plot(own["after"], far, color=color, label=f"{time:.0f}")
        axes.set_xscale("symlog", linthresh=10, linscale=0.5)
        axes.set(yscale="log", xlabel="time since the disturbance", title=f"entries of {name}")
    panels[0].set_ylabel("largest distance from the undisturbed")
    for axes in panels:
        draw_bar(axes, bar)
    panels[1].legend(title="disturbed at time", fontsize=8, title_fontsize=8)
    if bar:
        number_panel(*panels)
    return figure


def disturbed_at_a_rise(paths: pd.DataFrame, d: int, bar: Bar | None = None) -> Figure:
    """Figure 10 of a head of width d: each disturbed product, and dashed the undisturbed one.

    A coordinate has one colour in all panels. Where there is a bar, a panel has the largest
    distance between both, with a line per disturbance.
    """
    rows = where(paths, kind="rise")
    points = sorted(rows["point"].unique())
    every = sorted({int(i) for held in rows["coordinates"] for i in held})
    colors = {i: shade(n, len(every), 0.95) for n, i in enumerate(every)}
    n_panels = len(points) + (bar is not None)
    columns = max(1, min(4 if bar else 3, n_panels))
    lines = max(1, -(-n_panels // columns))
    figure, panels = plt.subplots(
        lines, columns, figsize=sized(3.5 * columns, 0.5 + 2.5 * lines), sharex=True, squeeze=False
    )
    for axes in panels.flat[len(points) :]:
        axes.axis("off")
    for axes, point in zip(panels.flat, points, strict=False):
        own = where(rows, point=point).sort_values("after")
        moved, still = (np.stack(list(own[name])) for name in ("p", "p_undisturbed"))
        for n, i in enumerate(own["coordinates"].iloc[0]):
            axes.plot(own["after"], moved[:, n], color=colors[int(i)], lw=1.3)
            axes.plot(own["after"], still[:, n], **THEORY, lw=0.8)
        axes.set_xscale("symlog", linthresh=10, linscale=0.5)
        axes.set_title(f"disturbed at time {own['time'].iloc[0]:.0f}", fontsize=9)
    if bar:
        _distances(panels.flat[len(points)], rows, bar)
        panels.flat[len(points)].axis("on")
    for axes in panels.flat[max(0, n_panels - columns) : n_panels]:
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("time since the disturbance")
    for row in panels:
        row[0].set_ylabel("products p = u ⊙ v")
    for i, color in colors.items():
        panels[0][0].plot([], [], color=color, label=f"{'KQ' if i < d else 'VO'} {i % d}")
    panels[0][0].plot([], [], **THEORY, lw=0.8, label="undisturbed")
    shared_legend(figure, panels[0][0], ncols=9)
    return figure


def _distances(axes: Axes, rows: pd.DataFrame, bar: Bar) -> None:
    """The largest distance of disturbed products from the undisturbed, with a line per disturbance,
    which has to meet the bar at the end.
    """
    for _, own in rows.sort_values("after").groupby("time"):
        apart = np.abs(np.stack(list(own["p"])) - np.stack(list(own["p_undisturbed"])))
        far = apart.max(1).clip(min=LEAST_APART)
        axes.plot(own["after"], far, color=GREEN, lw=1)
    axes.set_xscale("symlog", linthresh=10, linscale=0.5)
    axes.set(yscale="log")
    axes.set_title("largest distance of each", fontsize=9)
    draw_bar(axes, bar)
    axes.legend(fontsize=7.5, loc="lower left")
    number_panel(axes)


def assumption_checks(
    stages: pd.DataFrame,
    returns: pd.DataFrame,
    kicks: pd.DataFrame,
    ends: pd.DataFrame,
    problems: pd.DataFrame,
    returned: float,
    near: float,
) -> Figure:
    """Assumption 4.2 by gaps, 4.3 by strictness and by what comes back, 4.4 by stages begun
    elsewhere.

    Gaps and strictness have a row per problem, with a line per stage and a point at their median.
    Dashed lines are the share of a disturbance at which products are back, and the error of
    products on the same plateau.
    """
    layout: Any = [["gaps"] * 3 + ["strict"] * 3, ["back"] * 2 + ["risen"] * 2 + ["begun"] * 2]
    figure, panels = plt.subplot_mosaic(layout, figsize=(READ_WIDTH, 8.2), height_ratios=[1.25, 1])
    gaps, strict, back, risen, begun = panels.values()
    finite = stages[np.isfinite(stages["next_time"]) & np.isfinite(stages["gap"])]
    names = list(dict.fromkeys(stages["problem"]))
    for y, problem in enumerate(names):
        followed, later = (where(t, problem=problem) for t in (finite, stages[stages["stage"] > 0]))
        gap = (followed["gap"] / followed["next_time"]).to_numpy(float)
        tied = gap < SMALLEST
        _row(gaps, gap[~tied], y, GAP_COLOR, median=np.median(gap).clip(min=SMALLEST))
        if tied.any():
            gaps.plot([SMALLEST], [y], "X", color=LOST_COLOR, ms=9)
            look: Any = {"ha": "left", "fontsize": 8, "color": LOST_COLOR}
            write_beside(gaps, f"{tied.sum()} of {len(gap)}", (SMALLEST, y), (9, 4), **look)
        _row(strict, later["strictness_products"].to_numpy(float), y - 0.18, GAP_COLOR)
        _row(strict, later["strictness_weights"].to_numpy(float), y + 0.18, WEIGHTS_COLOR)
    labels = [label(name, problems).replace(": ", ",\n", 1) for name in names]
    gaps.set_yticks(range(len(names)), labels=labels, fontsize=8)
    strict.set_yticks(range(len(names)), labels=[])
    gaps.plot([], [], "X", color=LOST_COLOR, ms=9, ls="", label="stages with no gap: a tie")
    gaps.plot([], [], "o", color=GAP_COLOR, label="median; a line is a stage")
    strict.plot([], [], "o", color=GAP_COLOR, label="in the products")
    strict.plot([], [], "o", color=WEIGHTS_COLOR, label="in the weights (u, v)")
    for axes in (gaps, strict):
        axes.set(xscale="log", ylim=(len(names) - 0.5, -0.6))
        axes.grid(visible=False, axis="y")
    above: Any = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "fontsize": 8}
    gaps.legend(**above)
    strict.legend(**above)
    gaps.set_xlabel("gap to the second candidate / its time")
    gaps.set_title("4.2: one coordinate at a time", pad=24)
    strict.set_xlabel("least curvature on the plateau")
    strict.set_title("4.3: every plateau is a strict minimum", pad=24)
    for noise in ("balanced", "independent"):
        rows = where(returns, kind="random", noise=noise)
        color = NOISE_COLORS[noise]
        _shares(back, rows["ratio_products"], returned, color, f"products, {noise} noise")
        _shares(back, rows["ratio_weights"], returned, color, f"(u, v), {noise} noise", ls=":")
        rows = where(ends, kind="rise", noise=noise)
        _shares(risen, rows["distance"].clip(lower=1e-8), near, color, f"{noise} noise")
    back.set(
        xlabel="distance from the undisturbed, end / start",
        title="4.3: what is disturbed comes back",
    )
    risen.set(
        xlabel="distance of the disturbed products at the end",
        title="4.3, where a coordinate rises",
    )
    for noise in ("none", "balanced", "independent"):
        error = where(kicks, noise=noise)["error"].clip(lower=1e-8)
        said = f"{noise} noise".replace("none", "no")
        _shares(begun, error, near, NOISE_COLORS[noise], said)
    begun.set(
        xlabel="error of the products at the end", title="4.4: a stage begun nearby ends the same"
    )
    for axes, bar in ((back, returned), (risen, near), (begun, near)):
        axes.axvline(bar, ymax=1 / HIGH, **BOUND, lw=1, label=f"share up to {bar:g}")
    back.set_ylabel("share of cases below")
    for axes in (back, risen, begun):
        axes.set(xscale="log")
        axes.legend(fontsize=7.5, loc="upper left")
        axes.set_ylim(0, HIGH)  # legends stand above the curves
        axes.set_yticks(np.arange(0, 1.01, 0.2))
    return figure


def _row(axes: Axes, values: np.ndarray, y: float, color: str, median: float | None = None) -> None:
    """A short line for each value at a height, and a point at their median, or another one."""
    places = np.repeat(values, 3)
    heights = np.tile([y - TICK, y + TICK, np.nan], len(values))  # one broken line for all
    axes.plot(places, heights, color=color, lw=0.8, alpha=0.5)
    middle = np.median(values) if median is None and len(values) else median
    if middle is not None:
        axes.plot([middle], [y], "o", color=color, ms=5.5)


def _shares(
    axes: Axes, values: pd.Series, bar: float, color: str, label: str, ls: str = "-"
) -> None:
    """The empirical distribution of positive values, and in the legend the share up to the bar."""
    ordered = np.sort(values.to_numpy(float))
    axes.step(
        ordered,
        np.arange(1, len(ordered) + 1) / max(1, len(ordered)),
        where="post",
        color=color,
        ls=ls,
        label=f"{label}: {np.mean(ordered <= bar):.0%}" if len(ordered) else label,
    )
