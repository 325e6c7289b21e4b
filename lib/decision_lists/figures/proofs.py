"""Theory beside measurement on decision lists: the lemmas, and the lengths that suffice."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.decision_lists.figures.lines import DASHED, SMALL
from lib.pages.marks import BOUND, where, write_beside
from lib.pages.style import MATRIX_COLORS

COLOR = MATRIX_COLORS["W_KQ"]


def lemma_ratios(lemmas: pd.DataFrame) -> Figure:
    """The ratio of both lemmas' sides over all random cases, which is never below one."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
    for axes, number in zip(panels, (1, 2), strict=True):
        rows = where(lemmas, lemma=number)
        left = 10 ** (rows["bin"] / 20)
        width = left * (10**0.05 - 1)
        axes.bar(left, rows["size"], width=width, align="edge", color=COLOR)
        least = rows["min"].min()
        axes.axvline(1, **BOUND, label=f"Lemma {number}: at least 1")
        if least > 0:
            axes.axvline(least, color="black", lw=1, label=f"measured least, {least:.5g}")
        title = f"{rows['cases'].iloc[0]} random cases, least {least:.5g}"
        axes.set(xscale="log", title=title, xlabel="−⟨∇, U⟩ ÷ the lemma's bound")
        axes.legend(loc="upper right")
        axes.set_xlim(0.5, 1e4)
    panels[0].set_ylabel("cases")
    return figure


def feasible_lengths(feasible: pd.DataFrame) -> Figure:
    """The least n at which part 2 can be met, against the lists' length, searched and derived."""
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    rows = feasible.sort_values("length")
    axes.plot(rows["length"], rows["closed_form"], **DASHED, label="derived: n log² n > 162 m")
    found = {"ms": 5, "mfc": "none", "color": COLOR, "label": "least n for which some ε does"}
    axes.plot(rows["length"], rows["least_n"], "o", **found)
    for m, n in zip(rows["length"], rows["least_n"], strict=True):
        write_beside(axes, f"{n:g}", (m, n), fontsize=SMALL)
    axes.set(xlabel="length m of the lists", ylabel="sequence length n")
    axes.set(ylim=(0, 1.15 * rows["least_n"].max()))
    axes.legend(fontsize=SMALL, loc="lower right")
    return figure
