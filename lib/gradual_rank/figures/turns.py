"""Normalised heads behind their turn: one direction after another, and what gains and decay change.

Dashed lines are what theory says. Times are of the flow; a point or a thin line is a head.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar
from lib.pages.marks import THEORY, where
from lib.pages.panels import power
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


def behind_the_turn(
    directions: pd.DataFrame,
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
    draw_lags(panels[1], directions, keys)
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


def draw_lags(axes: Axes, directions: pd.DataFrame, bar: Bar | None) -> None:
    """By how much the second direction begins after the first, by scale; in the median, thick."""
    for case, said, line in ((PLAIN, "plain", ":"), (NORMALIZED, "QK-norm", "-")):
        for matrix, color in MATRIX_COLORS.items():
            lags = lags_of(directions, case, matrix)
            places = -lags.columns.to_numpy(float)
            for _, lag in lags.iterrows():
                axes.plot(places, lag, line, color=color, lw=0.5, alpha=0.5)
            label = f"{MATRIX_NAMES[matrix]}, {said}"
            axes.plot(places, lags.median(), line, marker=".", color=color, lw=2, label=label)
    scales = sorted(map(float, directions["log10_init_scale"].unique()), reverse=True)
    axes.set_xticks([-scale for scale in scales], labels=[power(scale) for scale in scales])
    low, high = axes.get_ylim()
    axes.set(
        xlabel="init scale α", ylabel="second direction begins later by", ylim=(low, 1.5 * high)
    )
    title = "steps: a lag that grows as log(1/α)"
    asked = f"\n({MATRIX_NAMES['W_KQ']}, {bar.words()})" if bar else ""
    axes.set_title(title + asked, fontsize=9)
    axes.legend(loc="upper left", fontsize=7.5)


def lags_of(directions: pd.DataFrame, case: str, matrix: str) -> pd.DataFrame:
    """When the second direction has begun after the first, by seed and scale, the largest first."""
    own = where(directions, case=case, matrix=matrix)
    begun = own.pivot(index=["seed", "log10_init_scale"], columns="direction", values="begun")
    lags = (begun[2] - begun[1]).unstack("log10_init_scale")
    return lags[sorted(lags.columns, reverse=True)]


def draw_laws(axes: Axes, laws: pd.DataFrame) -> None:
    """Waits over what their laws say, and over what the nulls do."""
    for row, law in enumerate(LAWS):
        own = where(laws, law=law)
        first = row == 0
        at = np.full(len(own), -row)
        label = "what the null says" if first else None
        axes.plot(own["other"], at - 0.14, "x", color=NULL_COLOR, ms=5, label=label)
        axes.plot(own["own"], at, "o", color=BLUE, ms=4, label="a head" if first else None)
    axes.axvline(1, **THEORY, lw=1.1, label="theory")
    axes.set_yticks([-row for row in range(len(LAWS))], labels=LAWS.values(), fontsize=7.5)
    axes.set(xlim=(0, 1.35), ylim=(0.4 - len(LAWS), 0.95), xlabel="wait over what is said")
    axes.set_title("waits, in units of log(1/α)", fontsize=9)
    axes.legend(loc="upper left", fontsize=7.5, ncols=3, columnspacing=0.6, handlelength=1.2)


def draw_turns(axes: Axes, heads: pd.DataFrame, limits: pd.DataFrame) -> None:
    """When keys turn under decay, over the time without one, beside what is said of it."""
    for place, case in enumerate(TURNS):
        own = where(limits, case=case).set_index("seed")
        turns = where(heads, case=case)
        turns = where(turns, log10_init_scale=turns["log10_init_scale"].min())
        ratio = turns.set_index("seed")["turn"] / own["turn_undecayed"]
        said = own["turn"] / own["turn_undecayed"]
        spots = place + np.linspace(-0.3, 0.3, len(ratio))
        first = place == 0
        axes.plot(spots, ratio, "o", color=BLUE, ms=4, label="a head" if first else None)
        label = "theory" if first else None
        for spot, value in zip(spots, said.loc[ratio.index], strict=True):
            axes.plot([spot - 0.05, spot + 0.05], [value] * 2, **THEORY, lw=1.3, label=label)
            label = None
    axes.set_xticks(range(len(TURNS)), labels=TURNS.values())
    axes.set(xlabel="what decays", ylabel="turn, over that without decay")
    axes.set(xlim=(-0.6, len(TURNS) - 0.4), ylim=(0, 1.3))
    axes.set_title("turn under decay", fontsize=9)
    axes.legend(loc="lower left", fontsize=7.5)
