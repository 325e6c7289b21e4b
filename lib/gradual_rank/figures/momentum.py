"""Waits under momentum, Adam's ε and warm-up, beside the roots that theory gives.

Dashed lines are what theory says. A point is a head.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar
from lib.pages.marks import THEORY, unit_lines, where
from lib.pages.panels import power
from lib.pages.style import (
    BLUE,
    BROWN,
    GREEN,
    LIGHT_GREEN,
    MATRIX_NAMES,
    NULL_COLOR,
    ORANGE,
    PURPLE,
    READ_WIDTH,
    number_panel,
)

PLAIN = "gd"  # the lines of the table of cases that are drawn
SHOWN = 0.9  # the momentum whose number is said
DEFAULT = 1e-8  # PyTorch's epsilon of Adam
LEAST_EPS = 1e-8  # below it there is no wait that a panel could show
NO_WAIT = 0.1  # steps for a factor of ten, where points of less are drawn
FEW = 5.0  # steps of wait, of which a ratio would say nothing
BELOW = 1e-8  # the room under the courses, as a share of the least value
COURSES = {  # those from the init scale that all of them have
    PLAIN: ("no warm-up", BLUE),
    "warm_200": ("warm-up of 200 steps", GREEN),
    "warm_2000": ("of 2000 steps", BROWN),
    "beta_90": ("β = 0.9, no warm-up", PURPLE),
}


def waits_of_optimizers(
    waits: pd.DataFrame, courses: pd.DataFrame, roots: pd.DataFrame, bar: Bar | None = None
) -> Figure:
    """Waits by momentum and by ε, what the memory of Adam takes of them, and courses of warm-ups.

    Lines of the root are those of `roots`; the bar is of the measured wait over what the root says.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.7))
    added = waits[waits["added"].notna()]
    draw_momentum(panels[0], added, roots[roots["seed"] >= 0], bar)
    number_panel(panels[0])
    adam = added[(added["rule"] == "adam") & (added["eps"] >= LEAST_EPS)]
    usual = where(adam, beta_2=adam["beta_2"].max())
    draw_epsilon(panels[1], usual, roots[roots["seed"] < 0])
    draw_memory(panels[2], adam)
    draw_courses(panels[3], courses)
    return figure


def draw_momentum(axes: Axes, added: pd.DataFrame, roots: pd.DataFrame, bar: Bar | None) -> None:
    """The wait over that of plain descent, by momentum, with the root's line of each head."""
    plain = where(added, case=PLAIN).set_index("seed")
    unit_lines(axes, roots, "place", "wait", label="the root μ", **THEORY, lw=0.7, zorder=1)
    betas = np.linspace(0, 0.995, 120)
    axes.plot(betas, 1 - betas, ":", color=NULL_COLOR, lw=1.6, label="1 − β, the folklore")
    for rule, said, color, marker in (
        ("sgd", "momentum", BLUE, "o"),
        ("nesterov", "Nesterov", ORANGE, "s"),
    ):
        own = where(added, rule=rule)
        share = own["added"].to_numpy() / plain["added"].reindex(own["seed"]).to_numpy()
        axes.plot(own["beta"], share, marker, color=color, ms=4, label=said)
    ratio = where(added, rule="sgd", beta=SHOWN)
    number = float((ratio["added"] / ratio["added_law"]).median())
    said = f"β = {SHOWN:g}: {number:.4f} of the root's wait"
    axes.set_title(f"{said}\n({bar.words()})" if bar else said, fontsize=9)
    axes.set(xlabel="momentum β", ylabel="wait over that of plain descent")
    axes.set(yscale="log", xlim=(-0.03, 1.0), ylim=(0.03, 1.2))
    axes.set_yticks([0.05, 0.1, 0.2, 0.5, 1], labels=["0.05", "0.1", "0.2", "0.5", "1"])
    axes.minorticks_off()
    axes.legend(loc="lower left", fontsize=7.5)


def draw_epsilon(axes: Axes, adam: pd.DataFrame, roots: pd.DataFrame) -> None:
    """Adam's wait for a factor of ten in the init scale, by the strength of its step at ε."""
    strengths = strength_of(adam)
    if not len(strengths):  # where nothing rose in the steps there are
        return
    steps = (adam["added"] * math.log(10) / adam["efolds"]).clip(lower=NO_WAIT)
    axes.plot(strengths, steps, "o", color=BLUE, ms=4, label="Adam", zorder=3)
    axes.plot(roots["place"], roots["wait"], **THEORY, lw=1.1, label="the root μ")
    axes.axvline(1, color=NULL_COLOR, lw=0.8)
    axes.text(1.3, 1200, "ε = η σ₁", fontsize=7.5, color=NULL_COLOR, va="top")
    default = strength_of(where(adam, eps=DEFAULT))
    if len(default):
        axes.text(
            float(default.median()),
            0.75,
            f"PyTorch's\nε = {power(math.log10(DEFAULT))}",
            fontsize=7.5,
            ha="center",
        )
    axes.set(xscale="log", yscale="log", ylim=(NO_WAIT * 0.8, 1500))
    axes.set_xlim(strengths.min() / 3, strengths.max() * 3)
    axes.set(xlabel="η σ₁ / ε", ylabel="steps of wait for a 10 times smaller start")
    axes.set_title("Adam waits where ε is large", fontsize=9)
    axes.legend(loc="lower left", fontsize=7.5)


def draw_memory(axes: Axes, adam: pd.DataFrame) -> None:
    """The measured wait over the root's, by the strength of Adam's step, and by its memory."""
    drawn = adam[adam["added_law"] > FEW]
    if not len(drawn):
        return
    most = drawn["beta_2"].max()
    for beta_2, own in drawn.groupby("beta_2", sort=True):
        color = BLUE if beta_2 == most else ORANGE
        ratio = own["added"] / own["added_law"]
        label = f"Adam, β₂ = {beta_2:g}"
        axes.plot(strength_of(own), ratio, "o", color=color, ms=4, label=label)
    own = where(drawn, beta_2=most).assign(
        strength=strength_of, said=lambda rows: rows["added_memory"] / rows["added_law"]
    )
    middle = own.groupby("eps")[["strength", "said"]].median().sort_values("strength")
    axes.plot(
        middle["strength"],
        middle["said"],
        "--",
        color=LIGHT_GREEN,
        lw=1.6,
        label="one number under Adam",
    )
    axes.axhline(1, **THEORY, lw=1.1, label="the root alone")
    axes.set(xscale="log", ylim=(0, 1.1), xlabel="η σ₁ / ε", ylabel="wait over the root's")
    axes.set_title("a long memory shortens the wait", fontsize=9)
    axes.legend(loc="lower left", fontsize=7.5)


def draw_courses(axes: Axes, courses: pd.DataFrame) -> None:
    """One head through warm-ups, from one scale, beside what its start says."""
    if not len(courses):
        return
    scale = float(courses[courses["case"].isin(COURSES)]["log10_init_scale"].max())
    own = where(courses, log10_init_scale=scale)
    for number, (name, (said, color)) in enumerate(COURSES.items()):
        rows = where(own, case=name)
        axes.plot(rows["step"], rows["value"], "-", color=color, lw=1.8, label=said)
        label = "theory" if number == 0 else None
        axes.plot(rows["step"], rows["expected"], **THEORY, lw=0.9, label=label)
    axes.set(yscale="log", xlabel="step", ylabel=rf"$\sigma_1$ of {MATRIX_NAMES['W_VO']}")
    axes.set_title(f"one head, init scale {power(scale)}", fontsize=9)
    low = float(own["value"].min())
    axes.set(xlim=(0, None), ylim=(low * BELOW, 10.0))
    axes.legend(loc="lower right", fontsize=7.5)


def strength_of(adam: pd.DataFrame) -> pd.Series:
    """The strength η σ₁ / ε of Adam's steps below ε."""
    return adam["learning_rate"] * adam["sigma"] / adam["eps"]
