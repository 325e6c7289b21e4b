"""How close gradient flow is to its greedy limit (Theorem 4.5 of Boix-Adserà et al. 2023).

Tables have a row per problem, seed and scale, or stage; `problems` says how many of each there are,
of what width, and which problem is studied.
"""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.gradual_rank.figures.staircase import scale_axis
from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import THEORY, shade, unit_points, where, write_beside
from lib.pages.style import (
    INITIAL_COLOR,
    LOST_COLOR,
    MATRIX_COLORS,
    PROBLEM_COLORS,
    READ_WIDTH,
    number_panel,
)

LIMIT = MATRIX_COLORS["W_KQ"]
FINITE = MATRIX_COLORS["W_VO"]
MARKERS = ("D", "o", "s", "^", "v", "P", "X", "*")
WORDS = {  # what figures call the problems; one that only a user's table has keeps its name
    "paper": "paper's head, early",
    "whole": "paper's head, to its end",
    "small": "small head",
    "draws": "wide heads, fewer samples",
}
MARKED = 0.1  # a share of plateaus from which it is written beside its point
FRAMES = {"own": "own frames", "common": "one frame", "standard": "standard basis"}


def words(problem: str) -> str:
    """What figures call a problem."""
    return WORDS.get(problem, problem)


def label(problem: str, problems: pd.DataFrame) -> str:
    """A problem as figures name it: words and width, and a transformer's layers and heads."""
    row = problems.set_index("name").loc[problem].to_dict()
    if pd.isna(row["n_layers"]):
        return f"{words(problem)}: d = {row['d_model']:.0f}"
    frames = FRAMES.get(row["frames"], str(row["frames"]))
    parts = f"Transformer, {frames}: d = {row['d_model']:.0f}"
    n_layers = int(row["n_layers"])
    n_heads = int(row["n_heads"])
    plural = ["s" if n > 1 else "" for n in (n_layers, n_heads)]
    return f"{parts}, {n_layers} layer{plural[0]} of {n_heads} head{plural[1]}"


def errors_by_scale(
    errors: pd.DataFrame,
    problems: pd.DataFrame,
    log10_init_scale: float,
    bars: Mapping[str, Bar] = {},
) -> Figure:
    """Times, order, plateaus and final products against the init scale.

    A thin line is a seed, a thick one the median. The law, C / log(1 / init scale), has the C of
    the studied problem from this init scale on. The bars are those of the claims of these names.
    """
    figure, panels = plt.subplots(2, 3, figsize=(READ_WIDTH, 7.4))
    times, finite, order, products, losses, final = panels.flat
    number_panel(times, products)
    columns = {
        times: "time_error_median",
        order: "order_agreement",
        losses: "plateau_loss_error",
        products: "plateau_product_error",
        final: "final_product_error",
    }
    for axes, column in columns.items():
        _by_problem(axes, errors, problems, column)
    _by_problem(finite, errors, problems, "finite_error_median")
    _by_problem(finite, errors, problems, "finite_error_max", ls=":")
    studied = problems.loc[problems["studied"], "name"].iloc[0]
    tiny = errors[(errors["problem"] == studied) & (errors["log10_init_scale"] <= log10_init_scale)]
    constant = float((tiny["time_error_median"] * tiny["log_scale"]).median())
    logs = np.geomspace(2.3, errors["log_scale"].max(), 50)
    times.plot(
        logs / np.log(10),
        constant / logs,
        **THEORY,
        lw=1.2,
        label=f"C / log(1 / init scale), C = {constant:.2f} ({words(studied)})",
    )
    order.axhline(1, **THEORY, lw=1.2)
    times.set(yscale="log", ylabel="error of activation times, median", title="Algorithm 1")
    finite.set(
        yscale="log",
        ylabel="error of activation times",
        title="finite-scale form: median, and worst (dotted)",
    )
    order.set(ylabel="order: Kendall's τ", ylim=(None, 1.03), title="Algorithm 1")
    losses.set(yscale="log", ylabel="loss error, mid-plateau")
    products.set(yscale="log", ylabel="product error, mid-plateau")
    final.set(yscale="log", ylabel="product error, last lasting plateau")
    for axes in panels.flat:
        scale_axis(axes, -errors["log10_init_scale"], fontsize=7.5)
    asked = {
        products: "plateau_products_agree",
        order: "order_agrees",
        finite: "finite_times",
    }
    for axes, name in asked.items():
        bar = bars.get(name)
        said = bar.words(f", {words(studied)}") if bar else ""
        draw_bar(axes, bar, label=said)
    times.legend(loc="lower left", fontsize=7)
    bar_said = [line for line in products.lines if str(line.get_label()).startswith("asked")]
    products.legend(handles=bar_said, loc="lower left", fontsize=7.5)
    return figure


def supports_by_scale(
    errors: pd.DataFrame, stages: pd.DataFrame, departed: pd.DataFrame, problems: pd.DataFrame
) -> Figure:
    """How often the flow has Algorithm 1's support, what leaves it when, and what stays away.

    Two medians of the studied problem are written beside their points: from the least init scale,
    and from the largest at which more than a tenth of the plateaus have it.
    """
    figure, (share, stages_of, pull) = plt.subplots(
        1, 3, figsize=(READ_WIDTH, 5.0), width_ratios=[2.2, 1, 0.9]
    )
    number_panel(share)
    studied = problems.loc[problems["studied"], "name"].iloc[0]
    _by_problem(share, errors, problems, "same")
    medians = where(errors, problem=studied).groupby("log10_init_scale")["same"].median()
    right = medians[medians > MARKED]
    for scale in dict.fromkeys([right.index.max(), right.index.min()] if len(right) else []):
        look: Any = {"ha": "right", "weight": "bold", "fontsize": 11}
        write_beside(share, f"{medians[scale]:.0%}", (-scale, medians[scale]), (-6, 7), **look)
    share.set(ylabel="share of plateaus with Algorithm 1's support", ylim=(-0.02, 1.06))
    share.set_title("thick: the median over seeds, thin: a seed")
    below: Any = {"loc": "upper left", "bbox_to_anchor": (0, -0.14), "ncols": 2, "fontsize": 7.5}
    share.legend(**below, columnspacing=1.0, handlelength=1.6)
    scale_axis(share, -errors["log10_init_scale"], fontsize=7.5)
    left = [name for name in problems["name"] if (departed["problem"] == name).any()]
    row = 0
    for n, problem in enumerate(problems["name"]):
        own = where(stages, problem=problem)
        color = PROBLEM_COLORS[n % len(PROBLEM_COLORS)]
        for _, rows in own.sort_values("stage").groupby("seed"):
            lost = rows[rows["n_dropped"] > 0]
            cross = {"s": 24 * lost["n_dropped"], "color": LOST_COLOR, "marker": "x", "zorder": 3}
            stages_of.plot([0, rows["stage"].max()], [row, row], color=color, lw=1.5)
            stages_of.scatter(lost["stage"], np.full(len(lost), row), **cross)
            row += 1
        row += 1  # problems stand apart
        gone = where(departed, problem=problem)
        if len(gone):
            marker = MARKERS[n % len(MARKERS)]
            unit_points(pull, left.index(problem), gone["pull"], color, marker=marker, ms=5)
    stages_of.plot([], [], "x", color=LOST_COLOR, label="a coordinate leaves")
    stages_of.set(xlabel="stage of Algorithm 1", ylabel="heads: one line each", yticks=[])
    stages_of.set_title("what leaves, and when", fontsize=9)
    stages_of.invert_yaxis()
    stages_of.legend(loc="center right")
    pull.axhline(0, **THEORY, lw=1.2)
    names = [label(name, problems).partition(":")[0].replace(", ", ",\n") for name in left]
    pull.set_xticks(range(len(left)), labels=names, rotation=30, fontsize=8)
    pull.set_ylabel("what holds it away, −β g / max|g(0)|")
    pull.set_title("above 0, what leaves\nstays away (Lemma D.4)", fontsize=9)
    pull.set_xlim(-0.5, max(1, len(left)) - 0.5)
    pull.set_yscale("symlog", linthresh=1e-2)
    most = float(departed["pull"].abs().max()) if len(departed) else 1.0
    pull.set_ylim(min(-0.02, 3 * float(departed["pull"].min()) if len(departed) else 0.0), 3 * most)
    return figure


def charges_and_rises(
    charges: pd.DataFrame,
    stages: pd.DataFrame,
    errors: pd.DataFrame,
    problems: pd.DataFrame,
    bars: Mapping[str, Bar] = {},
) -> Figure:
    """The charges b of equations (10) and (17), their distance from Algorithm 1's, and the first
    rise.

    In the flow b = 1 − y / log(1 / init_scale). An active coordinate has b = 0 or 2, and all start
    near 1. The last panel shows how long a rise takes. The bars are those of the claims of these
    names.
    """
    figure, (course, constant, rise) = plt.subplots(
        1, 3, figsize=(READ_WIDTH, 4.1), width_ratios=[1.5, 1, 1]
    )
    scale = charges["log10_init_scale"].min()
    rows = where(charges, log10_init_scale=scale).sort_values("rescaled_time")
    own = where(stages, problem=charges["problem"].iloc[0], seed=charges["seed"].iloc[0])
    own = own.sort_values("stage")
    flow = 1 - np.stack(list(rows["charge"]))
    theory = 1 - np.stack(list(own["charge"]))
    joined = [int(i) for i in dict.fromkeys(own["coordinate"]) if i >= 0]
    for i in range(flow.shape[1]):
        color = shade(joined.index(i), len(joined)) if i in joined else INITIAL_COLOR
        course.plot(rows["rescaled_time"], flow[:, i], color=color, lw=1.3)
        course.plot(own["time"], theory[:, i], **THEORY, lw=0.7)
    course.set(
        xlabel="time / log(1 / init scale)", ylabel="charge b", xlim=(0, float(own["time"].max()))
    )
    name = label(charges["problem"].iloc[0], problems)
    course.set_title(f"{name}, init scale $10^{{{scale:g}}}$; dashed: Algorithm 1")
    _by_problem(constant, errors, problems, "constant")
    constant.set(ylabel="error of b × log(1 / init scale)", ylim=(0, None))
    _by_problem(rise, errors, problems, "ratio")
    rise.set(ylabel="duration of the first rise / at the least scale", ylim=(0.5, 1.15))
    for axes in (constant, rise):
        scale_axis(axes, -errors["log10_init_scale"], fontsize=7.5)
    rise.legend(loc="lower right", fontsize=7, handlelength=1.3)
    follows = bars.get("charges_follow")
    name = words(problems.loc[problems["studied"], "name"].iloc[0])
    draw_bar(constant, follows, label=follows.words(f", {name}") if follows else "")
    draw_bar(rise, bars.get("rises_last_as_long"))
    bar_said = [line for line in constant.lines if str(line.get_label()).startswith("asked")]
    constant.legend(handles=bar_said, loc="upper right", fontsize=7.5)
    number_panel(constant, rise)
    return figure


def _by_problem(
    axes: Axes, table: pd.DataFrame, problems: pd.DataFrame, column: str, ls: str = "-"
) -> None:
    """Draw the column against log10(1 / init scale), problem by problem.

    A thin line is a seed, a thick one the median over the problem's seeds.
    """
    for n, problem in enumerate(problems["name"]):
        wide = where(table, problem=problem).pivot_table(
            index="log10_init_scale", columns="seed", values=column
        )
        wide = wide.sort_index(ascending=False).dropna(how="all")
        wide.index = -wide.index
        color = PROBLEM_COLORS[n % len(PROBLEM_COLORS)]
        if wide.shape[1] > 1:
            axes.plot(wide.index, wide, color=color, lw=0.5, alpha=0.35, ls=ls)
        look = {"color": color, "ls": ls, "marker": MARKERS[n % len(MARKERS)], "ms": 4}
        axes.plot(wide.index, wide.median(axis=1), label=label(problem, problems), **look)
