"""Normalised heads after their turn: one direction after another, and what gains and decay change.

Dashed lines are what theory says. Times are of the flow; a point or a thin line is a head.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar
from lib.pages.marks import THEORY, Look, unit_lines, unit_points, where
from lib.pages.panels import power, powers_below
from lib.pages.style import (
    BLUE,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    READ_WIDTH,
    number_panel,
)

NORMALIZED = "qk_norm"  # the lines of the table of cases that are drawn
PLAIN = "plain"
N_DRAWN = 3  # directions of a course
LAWS = {  # by the measures in which they are judged, from above
    "turn_wait.pre_norm": "pre-norm:\nkeys wait 1/σ",
    "turn_wait_doubled.small_gain": "gain that starts at α:\nkeys wait 1/2σ",
    "gain_wait.learned_gain": "learned gain:\nit waits 1/σ₁(G(A))",
    "rise_wait.decayed": "decay λ:\nvalues wait\n1/(σ₁(G(A)) − λ)",
}
TURNS = {  # cases, and how they are called, from the left
    "decayed": "all",
    "decayed_keys": "$W_K$, $W_Q$\nalone",
}


def after_the_turn(
    lags: pd.DataFrame,
    courses: pd.DataFrame,
    laws: pd.DataFrame,
    heads: pd.DataFrame,
    limits: pd.DataFrame,
    keys: Bar | None = None,
) -> Figure:
    """A head's directions, their lags by scale, waits over their laws, and turns under decay.

    The bar is of the growth of the lag in W_KQ.
    """
    widths = {"width_ratios": [1.1, 1.1, 1.1, 0.8]}
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.8), gridspec_kw=widths)
    draw_course(panels[0], courses)
    draw_lags(panels[1], lags, keys)
    number_panel(panels[1])
    draw_laws(panels[2], laws)
    draw_turns(panels[3], heads, limits)
    return figure


def draw_course(axes: Axes, courses: pd.DataFrame) -> None:
    """The first singular values of both updates of a head with QK-norm, over their last ones."""
    scale = float(courses["log10_init_scale"].min())
    own = where(courses, case=NORMALIZED, log10_init_scale=scale)
    for matrix, name in MATRIX_NAMES.items():
        for i in range(N_DRAWN):
            values = own[f"{matrix}_{i + 1}"]
            axes.plot(
                own["time"],
                values / values.iloc[-1],
                color=MATRIX_COLORS[matrix],
                lw=1.9 - 0.5 * i,
                alpha=1 - 0.22 * i,
                label=f"update of {name}" if i == 0 else None,
            )
    axes.set(xlabel="time", ylabel="singular value over its last", ylim=(-0.03, 1.75))
    axes.set_title(
        f"QK-norm, one head, init scale {power(scale)}:\nits first three directions", fontsize=9
    )
    axes.legend(loc="upper left", fontsize=7.5)


def draw_lags(axes: Axes, lags: pd.DataFrame, bar: Bar | None) -> None:
    """By how much the second direction begins after the first, by scale; in the median, thick."""
    rows = lags.assign(smallness=-lags["log10_init_scale"]).sort_values("smallness")
    for case, said, line in ((PLAIN, "plain", ":"), (NORMALIZED, "QK-norm", "-")):
        for matrix, color in MATRIX_COLORS.items():
            own = where(rows, case=case, matrix=matrix)
            look: Look = {"color": color, "ls": line}
            unit_lines(axes, own, "smallness", "lag", lw=0.5, alpha=0.5, **look)
            middle = own.groupby("smallness")["lag"].median()
            label = f"{MATRIX_NAMES[matrix]}, {said}"
            axes.plot(middle.index, middle, marker=".", lw=2, label=label, **look)
    powers_below(axes, lags["log10_init_scale"])
    low, high = axes.get_ylim()
    axes.set(xlabel="init scale α", ylabel="second direction begins later by")
    axes.set_ylim(low, 1.5 * high)
    title = "steps: a lag that grows as log(1/α)"
    asked = f"\n({MATRIX_NAMES['W_KQ']}, {bar.words()})" if bar else ""
    axes.set_title(title + asked, fontsize=9)
    axes.legend(loc="upper left", fontsize=7.5)


def draw_laws(axes: Axes, laws: pd.DataFrame) -> None:
    """Waits over what their laws say, and over what the nulls do."""
    for row, law in enumerate(LAWS):
        own = where(laws, law=law)
        first = row == 0
        null: Look = {"marker": "x", "ms": 5, "label": "what the null says" if first else None}
        unit_points(axes, -row - 0.14, own["other"], NULL_COLOR, along="x", **null)
        head: Look = {"ms": 4, "label": "a head" if first else None}
        unit_points(axes, -row, own["own"], BLUE, along="x", **head)
    axes.axvline(1, **THEORY, lw=1.1, label="theory")
    axes.set_yticks([-row for row in range(len(LAWS))], labels=LAWS.values(), fontsize=7.5)
    axes.set(xlim=(0, 1.35), ylim=(0.4 - len(LAWS), 0.95), xlabel="wait over what is said")
    axes.set_title("waits, in units of log(1/α)", fontsize=9)
    axes.legend(loc="upper left", fontsize=7.5, ncols=3, columnspacing=0.6, handlelength=1.2)


def draw_turns(axes: Axes, heads: pd.DataFrame, limits: pd.DataFrame) -> None:
    """When keys turn under decay, over the time without one, beside what is said of it."""
    for place, case in enumerate(TURNS):
        turns = where(heads, case=case)
        turns = where(turns, log10_init_scale=turns["log10_init_scale"].min())
        rows = turns.merge(where(limits, case=case), on="seed", suffixes=("", "_said"))
        first = place == 0
        look: Look = {"spread": 0.3, "ms": 4, "label": "a head" if first else None}
        unit_points(axes, place, rows["turn"] / rows["turn_undecayed"], BLUE, **look)
        said = rows["turn_said"] / rows["turn_undecayed"]
        spots = place + np.linspace(-0.3, 0.3, len(said)) if len(said) > 1 else np.array([place])
        label = "theory" if first else ""
        axes.hlines(said, spots - 0.05, spots + 0.05, **THEORY, lw=1.3, label=label)
    axes.set_xticks(range(len(TURNS)), labels=TURNS.values())
    axes.set(xlabel="what decays", ylabel="turn, over that without decay")
    axes.set(xlim=(-0.6, len(TURNS) - 0.4), ylim=(0, 1.3))
    axes.set_title("turn under decay", fontsize=9)
    axes.legend(loc="lower left", fontsize=7.5)
