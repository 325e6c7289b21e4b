"""What is proved on decision lists, beside what was measured: lemmas, certificates, constants,
feasible lengths.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.pages.style import BOUND_COLOR, GREEN, LOST_COLOR, MATRIX_COLORS, NULL_COLOR, VIRIDIS

COLOR, OTHER = MATRIX_COLORS["W_KQ"], MATRIX_COLORS["W_VO"]


def lemma_ratios(lemmas: pd.DataFrame) -> Figure:
    """How far both lemmas' sides are apart, over all random cases: never below one."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
    for axes, number in zip(panels, (1, 2), strict=True):
        rows = lemmas[lemmas["lemma"] == number]
        axes.bar(
            10 ** (rows["bin"] / 20),
            rows["size"],
            width=10 ** (rows["bin"] / 20) * (10**0.05 - 1),
            align="edge",
            color=COLOR,
        )
        least = rows["min"].min()
        axes.axvline(1, color=BOUND_COLOR, ls="--", label=f"Lemma {number}: at least 1")
        if least > 0:
            axes.axvline(least, color="black", lw=1, label=f"measured least, {least:.5g}")
        cases = int(rows["cases"].iloc[0])
        axes.set(xscale="log", title=f"{cases} random cases, least {least:.5g}")
        axes.set_xlabel("−⟨∇, U⟩ ÷ the lemma's bound")
        axes.legend(loc="upper right")
        axes.set_xlim(0.5, 1e4)
    panels[0].set_ylabel("cases")
    return figure


def certificates(cases: pd.DataFrame) -> Figure:
    """The random cases by what the certificate and every sequence say of them."""
    figure, axes = plt.subplots(figsize=(7.2, 3.2))
    kinds = sorted(
        {(str(c), bool(r)) for c, r in zip(cases["certificate"], cases["repeats"], strict=True)}
    )
    outcomes = {
        (True, True): ("certified, and every sequence right", GREEN),
        (False, False): ("not certified, and one wrong", NULL_COLOR),
        (True, False): ("certified, but one wrong", LOST_COLOR),
        (False, True): ("not certified, but every sequence right", OTHER),
    }
    left = np.zeros(len(kinds))
    for (certified, right), (label, color) in outcomes.items():
        chosen = cases[(cases["certified"] == certified) & (cases["right"] == right)]
        sizes = [
            chosen["n"][(chosen["certificate"] == name) & (chosen["repeats"] == repeats)].sum()
            for name, repeats in kinds
        ]
        axes.barh(
            range(len(kinds)), sizes, left=left, color=color, label=f"{label}: {sum(sizes):g}"
        )
        left = left + np.array(sizes)
    names = [
        f"{name}, {'with repeats' if repeats else 'distinct tokens'}" for name, repeats in kinds
    ]
    axes.set_yticks(range(len(kinds)), labels=names)
    axes.set(xlabel="random cases")
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7.5
    )
    return figure


def lists_represented(cases: pd.DataFrame) -> Figure:
    """The least margin of W = κ · places over all sequences, against what is proved."""
    figure, axes = plt.subplots(figsize=(5.2, 3.8))
    for i, n in enumerate(sorted(cases["seq_len"].unique())):
        rows = cases[cases["seq_len"] == n]
        color = VIRIDIS(0.28 * i)
        axes.plot(
            rows["wanted"], rows["margin"], "o", ms=3, mfc="none", color=color, label=f"n = {n}"
        )
    ends = [cases["wanted"].min(), cases["wanted"].max()]
    axes.plot(ends, ends, color=BOUND_COLOR, ls="--", lw=1.2, label="theorem: equal")
    axes.axhline(0, color="black", lw=0.8)
    axes.axvline(0, color="black", lw=0.8)
    axes.set(xlabel="κ − log(n − 1)", ylabel="least margin over all of $[L]^n$; above 0: all right")
    axes.legend(fontsize=7.5)
    return figure


def constants_by_hand(constants: pd.DataFrame) -> Figure:
    """Each constant of both theorems as computed, over that derived by hand; a factor of two would
    be seen.
    """
    figure, axes = plt.subplots(figsize=(7.2, 3.4))
    names = list(dict.fromkeys(constants["constant"].astype(str)))
    tasks = list(dict.fromkeys(constants["task"].astype(str)))
    for i, task in enumerate(tasks):
        rows = constants[constants["task"] == task]
        at = [names.index(name) for name in rows["constant"].astype(str)]
        offset = 0.5 * (i / max(1, len(tasks) - 1) - 0.5)
        axes.plot(
            np.array(at) + offset,
            rows["found"] / rows["by_hand"],
            "o",
            ms=4,
            color=VIRIDIS(0.92 * i / max(1, len(tasks) - 1)),
            label=task,
        )
    for factor in (0.5, 2):
        axes.axhline(factor, color=BOUND_COLOR, ls=":", lw=1.2)
    axes.axhline(1, color="black", ls="--", lw=1)
    written = {
        "P_min": "$P_{min}$",
        "delta": "δ",
        "gamma": "γ",
        "P_set": "δ of part 2",
        "epsilon": "ε",
        "c_of_part_2": "c of part 2",
        "earliest": "2 m L₀ / A²",
        "latest": "ε / 2",
    }
    axes.set_xticks(
        range(len(names)),
        labels=[written.get(name, name) for name in names],
        rotation=30,
        ha="right",
    )
    axes.set(yscale="log", ylim=(0.4, 2.5), ylabel="computed ÷ by hand")
    axes.set_yticks([0.5, 1, 2], labels=["1/2", "1", "2"])
    axes.minorticks_off()
    axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def feasible_lengths(feasible: pd.DataFrame) -> Figure:
    """The least n at which part 2 can be met, by the lists' length: by search over ε, and in closed
    form.
    """
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    rows = feasible.sort_values("length")
    axes.plot(
        rows["length"],
        rows["closed_form"],
        color="black",
        ls="--",
        lw=1.2,
        label="derived: n log² n > 162 m",
    )
    axes.plot(
        rows["length"],
        rows["least_n"],
        "o",
        ms=5,
        mfc="none",
        color=COLOR,
        label="least n for which some ε does",
    )
    for m, n in zip(rows["length"], rows["least_n"], strict=True):
        axes.annotate(
            f"{n:g}", (m, n), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=7.5
        )
    axes.set(
        xlabel="length m of the lists",
        ylabel="sequence length n",
        ylim=(0, 1.15 * rows["least_n"].max()),
    )
    axes.legend(fontsize=7.5, loc="lower right")
    return figure


def gradients_from_samples(monte_carlo: pd.DataFrame) -> Figure:
    """The relative error of the gradient in W from samples of the law."""
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    axes.plot(
        monte_carlo["n_samples"],
        monte_carlo["error"],
        "o",
        ms=3.5,
        mfc="none",
        color=COLOR,
        label="one draw each",
    )
    mean = monte_carlo.groupby("n_samples")["error"].mean()
    axes.plot(mean.index, mean, color=COLOR, label="mean")
    sizes = np.asarray(mean.index, float)
    axes.plot(
        sizes,
        mean.iloc[0] * (sizes / sizes[0]) ** -0.5,
        color="black",
        ls="--",
        lw=1.2,
        label="∝ samples$^{-1/2}$",
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="samples",
        ylabel="relative error of $\\nabla_W$ at W = 0",
    )
    axes.legend(fontsize=7.5)
    return figure
