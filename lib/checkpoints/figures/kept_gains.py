"""Figures of fine-tunes of a model that somebody trained: which rank keeps the gain, and how ranks
grow from the first step.
"""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.pages.marks import BOUND, ranged, unit_points, where
from lib.pages.panels import grid, sized
from lib.pages.style import (
    BLUE,
    BOUND_COLOR,
    GREEN,
    GREY,
    MATRIX_COLORS,
    MATRIX_NAMES,
    ORANGE,
    PERMUTED_COLOR,
    TEAL,
    number_panel,
)

RULES = {"uniform": (BLUE, "s"), "attributed": (GREEN, "o"), "water-filling": (TEAL, "v")}
SHARES = (0.9, 0.99)
KINDS = {
    "gentle": "the gentle fine-tune",
    "large": "the large fine-tune",
    "tuned": "the fine-tune",
}


def kept_by_rank(plans: pd.DataFrame, ceilings: pd.Series | None = None) -> Figure:
    """The share of the gain that an adapter cut from a fine-tune keeps on the base, against the
    uniform rank that costs as much, by rule; lines at the shares that are asked for.

    `ceilings` are the shares that all layers keep together, uncut, one a seed: a band.
    """
    kinds = [kind for kind in KINDS if kind in set(plans["kind"])]
    figure, [panels] = grid(1, len(kinds), (4.4 * len(kinds) + 0.4, 3.6), sharey=True)
    for axes, kind in zip(panels, kinds, strict=True):
        rows = where(plans, kind=kind, shuffle=0)
        for rule, (color, marker) in RULES.items():
            chosen = where(rows, rule=rule)
            if len(chosen):
                ranged(axes, chosen, "budget", "kept", color=color, marker=marker, label=rule)
        for share in SHARES:
            axes.axhline(share, **BOUND, lw=1)
            axes.annotate(f"{share:.0%}", (0.99, share), xycoords=("axes fraction", "data"),
                          ha="right", va="top", fontsize=8, color=BOUND_COLOR)  # fmt: skip
        if ceilings is not None:
            axes.axhspan(ceilings.min(), ceilings.max(), color=GREY, alpha=0.25, lw=0)
            axes.annotate("all layers, uncut", (0.02, ceilings.max()), va="bottom", fontsize=8,
                          xycoords=("axes fraction", "data"), color=GREY)  # fmt: skip
        axes.set_xscale("log", base=2)
        budgets = sorted(set(rows["budget"]))
        axes.set_xticks(budgets, labels=[str(budget) for budget in budgets])
        n_seeds = rows["seed"].nunique()
        said = f"{n_seeds} seeds" if n_seeds > 1 else "1 seed"
        axes.set(xlabel="rank in every layer that costs as much", title=f"{KINDS[kind]}, {said}")
    panels[0].set_ylabel("share of the gain that is kept\n(adapter on the base)")
    panels[0].legend(fontsize=8, title="ranks by")
    number_panel(*panels)
    return figure


def trained_by_rank(fits: pd.DataFrame) -> Figure:
    """The accuracy on new samples of adapters that were trained, by rank, beside the full gentle
    fine-tune and the same with permuted labels: seeds as points, their mean as a bar.
    """
    figure, axes = plt.subplots(figsize=sized(5.6, 3.6))
    columns = {
        **{f"LoRA,\nrank {rank}": (rows, ORANGE) for rank, rows in _trained(fits)},
        "all weights": (where(fits, kind="gentle"), GREEN),
        "all weights,\npermuted labels": (where(fits, kind="permuted"), PERMUTED_COLOR),
    }
    for place, (rows, color) in enumerate(columns.values()):
        unit_points(axes, place, rows["accuracy"], color, mfc="none")
        axes.plot([place], [rows["accuracy"].mean()], "_", ms=22, mew=2, color=color)
    axes.set_xticks(range(len(columns)), labels=list(columns))
    axes.set(ylabel="share of new samples that are right", ylim=(0, None))
    number_panel(axes)
    return figure


def heads_by_step(spectra: pd.DataFrame) -> Figure:
    """The stable rank of what a gentle fine-tune adds to the products of every head, from the first
    step on: the median over heads, its least and largest seed as a band; permuted labels beside it.
    """
    figure, panels = plt.subplots(1, 2, figsize=sized(8.8, 3.6), sharey=True)
    heads = spectra[spectra["head"] > 0]
    for axes, (product, color) in zip(panels, MATRIX_COLORS.items(), strict=True):
        shades = {"gentle": (color, "true labels"), "permuted": (PERMUTED_COLOR, "permuted labels")}
        for kind, (shade, label) in shades.items():
            rows = where(heads, kind=kind, module=product)
            if len(rows):
                by = rows.groupby(["seed", "step"])["stable_rank"].median().reset_index()
                ranged(axes, by, "step", "stable_rank", color=shade, marker="o", label=label)
        axes.set(xscale="log", xlabel="step", title=f"update of {MATRIX_NAMES[product]}")
        axes.legend(fontsize=8)
    panels[0].set_ylabel("stable rank, median over heads")
    number_panel(*panels)
    return figure


def _trained(fits: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The fits of adapters that were trained, by rank."""
    rows = where(fits, kind="lora")
    return [(str(rank), part) for rank, part in rows.groupby("rank")]
