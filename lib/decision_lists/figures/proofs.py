"""What is proved on decision lists beside what was measured: lemmas, certificates, constants."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.decision_lists.figures.lines import BOUND, DASHED, LOG_LOG, SMALL, shaded
from lib.pages.style import GREEN, LOST_COLOR, MATRIX_COLORS, NULL_COLOR, VIRIDIS

COLOR = MATRIX_COLORS["W_KQ"]
OTHER = MATRIX_COLORS["W_VO"]
CONSTANTS = {  # as they are written, where not by their name
    "P_min": "$P_{min}$",
    "delta": "δ",
    "gamma": "γ",
    "P_set": "δ of part 2",
    "epsilon": "ε",
    "c_of_part_2": "c of part 2",
    "earliest": "2 m L₀ / A²",
    "latest": "ε / 2",
}


def lemma_ratios(lemmas: pd.DataFrame) -> Figure:
    """How far both lemmas' sides are apart, over all random cases: never below one."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
    for axes, number in zip(panels, (1, 2), strict=True):
        rows = lemmas[lemmas["lemma"] == number]
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


def certificates(cases: pd.DataFrame) -> Figure:
    """The random cases by what the certificate and every sequence say of them."""
    figure, axes = plt.subplots(figsize=(7.2, 3.2))
    counted = cases.set_index(["certificate", "repeats", "certified", "right"])["n"]
    kinds = sorted({kind[:2] for kind in counted.index})
    outcomes = {
        (True, True): ("certified, and every sequence right", GREEN),
        (False, False): ("not certified, and one wrong", NULL_COLOR),
        (True, False): ("certified, but one wrong", LOST_COLOR),
        (False, True): ("not certified, but every sequence right", OTHER),
    }
    left = np.zeros(len(kinds))
    for outcome, (label, color) in outcomes.items():
        sizes = np.array([counted.get((*kind, *outcome), 0) for kind in kinds])
        label = f"{label}: {sizes.sum():g}"
        axes.barh(range(len(kinds)), sizes, left=left, color=color, label=label)
        left = left + sizes
    names = [f"{name}, {'with repeats' if again else 'distinct tokens'}" for name, again in kinds]
    axes.set_yticks(range(len(kinds)), labels=names)
    axes.set(xlabel="random cases")
    handles = axes.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=SMALL)
    return figure


def lists_represented(cases: pd.DataFrame) -> Figure:
    """The least margin of W = κ · places over all sequences, against what is proved."""
    figure, axes = plt.subplots(figsize=(5.2, 3.8))
    for i, n in enumerate(sorted(cases["seq_len"].unique())):
        rows = cases[cases["seq_len"] == n]
        point = {"ms": 3, "mfc": "none", "color": VIRIDIS(0.28 * i), "label": f"n = {n}"}
        axes.plot(rows["wanted"], rows["margin"], "o", **point)
    ends = [cases["wanted"].min(), cases["wanted"].max()]
    axes.plot(ends, ends, **BOUND, lw=1.2, label="theorem: equal")
    axes.axhline(0, color="black", lw=0.8)
    axes.axvline(0, color="black", lw=0.8)
    axes.set(xlabel="κ − log(n − 1)", ylabel="least margin over all of $[L]^n$; above 0: all right")
    axes.legend(fontsize=SMALL)
    return figure


def constants_by_hand(constants: pd.DataFrame) -> Figure:
    """Each constant of both theorems over that by hand; a factor of two would be seen."""
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    names = list(dict.fromkeys(constants["constant"]))
    offsets = np.linspace(-0.25, 0.25, constants["task"].nunique())
    for (task, rows, color), offset in zip(shaded(constants, "task"), offsets, strict=True):
        at = np.array([names.index(name) for name in rows["constant"]])
        ratio = rows["found"] / rows["by_hand"]
        axes.plot(at + offset, ratio, "o", ms=4, color=color, label=task)
    for factor in (0.5, 2):
        axes.axhline(factor, color=BOUND["color"], ls=":", lw=1.2)
    axes.axhline(1, color="black", ls="--", lw=1)
    labels = [CONSTANTS.get(name, str(name)) for name in names]
    axes.set_xticks(range(len(names)), labels=labels, rotation=30, ha="right")
    axes.set(yscale="log", ylim=(0.4, 2.5), ylabel="computed ÷ by hand")
    axes.set_yticks([0.5, 1, 2], labels=["1/2", "1", "2"])
    axes.minorticks_off()
    axes.legend(fontsize=SMALL, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def feasible_lengths(feasible: pd.DataFrame) -> Figure:
    """The least n at which part 2 can be met, by the lists' length: by search, and derived."""
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    rows = feasible.sort_values("length")
    axes.plot(rows["length"], rows["closed_form"], **DASHED, label="derived: n log² n > 162 m")
    found = {"ms": 5, "mfc": "none", "color": COLOR, "label": "least n for which some ε does"}
    axes.plot(rows["length"], rows["least_n"], "o", **found)
    text = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "fontsize": SMALL}
    for m, n in zip(rows["length"], rows["least_n"], strict=True):
        axes.annotate(f"{n:g}", (m, n), **text)
    axes.set(xlabel="length m of the lists", ylabel="sequence length n")
    axes.set(ylim=(0, 1.15 * rows["least_n"].max()))
    axes.legend(fontsize=SMALL, loc="lower right")
    return figure


def gradients_from_samples(monte_carlo: pd.DataFrame) -> Figure:
    """The relative error of the gradient in W from samples of the law."""
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    each = {"ms": 3.5, "mfc": "none", "color": COLOR, "label": "one draw each"}
    axes.plot(monte_carlo["n_samples"], monte_carlo["error"], "o", **each)
    mean = monte_carlo.groupby("n_samples")["error"].mean()
    axes.plot(mean.index, mean, color=COLOR, label="mean")
    sizes = np.asarray(mean.index, float)
    falling = mean.iloc[0] * (sizes / sizes[0]) ** -0.5
    axes.plot(sizes, falling, **DASHED, label="∝ samples$^{-1/2}$")
    axes.set(**LOG_LOG, xlabel="samples", ylabel="relative error of $\\nabla_W$ at W = 0")
    axes.legend(fontsize=SMALL)
    return figure
