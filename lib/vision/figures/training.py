"""Loss and accuracy through training, and optimisers side by side."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import ranged, unit_lines, unit_points, where
from lib.pages.panels import scale_label, shared_legend
from lib.pages.style import (
    BLUE,
    BROWN,
    GREEN,
    MAGENTA,
    MATRIX_COLORS,
    PERMUTED_COLOR,
    READ_WIDTH,
    TEAL,
    VIRIDIS,
    number_panel,
)
from lib.vision.figures.panels import (
    FIRST_STEP_COLOR,
    PERMUTED,
    RINGS,
    by_product,
    cut_axis,
    loss_axis,
    rank_axis,
)

OPTIMIZERS = {
    "adam": ("Adam", MAGENTA),
    "adamw": ("AdamW", BROWN),
    "sgd": ("SGD", BLUE),
    "muon": ("Muon", GREEN),
    "muon_heads": ("Muon,\nper head", TEAL),
}


def learning_curves(table: pd.DataFrame) -> Figure:
    """Losses and accuracy against the step, for every init scale; mean and range over seeds.

    Violet is training on permuted labels, the paler the smaller the init scale.
    """
    quantities = {
        "train_loss": "training loss (since the last point)",
        "test_loss": "test loss",
        "test_accuracy": "test accuracy",
    }
    figure, panels = plt.subplots(1, 3, figsize=(10.2, 3.5))
    scales = sorted(where(table, control="none")["init_scale"].unique())
    for axes, (column, name) in zip(panels, quantities.items(), strict=True):
        for i, scale in enumerate(scales):
            share = i / max(1, len(scales) - 1)
            true = {"color": VIRIDIS(0.9 * share), "label": scale_label(float(f"{scale:g}"))}
            permuted = {"color": PERMUTED_COLOR, "alpha": 0.4 + 0.6 * share}
            for control, line in (("none", true), (PERMUTED, permuted)):
                rows = where(table, init_scale=scale, control=control)
                rows = rows.dropna(subset=[column])
                if len(rows):
                    ranged(axes, rows, "step", column, **line)
        axes.set(title=name, xlabel="step")
    panels[2].set_ylim(0, 1.01)
    panels[2].set_yticks(np.arange(0, 1.01, 0.2))
    if (table["control"] == PERMUTED).any():
        panels[2].plot([], [], color=PERMUTED_COLOR, label="permuted labels")
    shared_legend(figure, panels[2])
    return figure


def name_of(rule: str) -> str:
    """How figures name an optimiser."""
    return OPTIMIZERS.get(rule, (rule, ""))[0]


def color_of(rule: str) -> str:
    """The colour of an optimiser where several share a panel."""
    return OPTIMIZERS.get(rule, ("", "black"))[1]


def ranks_of_optimizers(
    ranks: pd.DataFrame, init_scale: float = 1.0, bar: Bar | None = None
) -> Figure:
    """Stable ranks of updates by optimiser and init scale, also on permuted labels.

    They are taken after the first step and at the end. A point is a seed's mean over layers and
    heads, and a bar stands at their mean. The `bar` is Muon's, from the init scale.
    """
    updates = where(ranks, of="update")
    rules = list(dict.fromkeys(updates["rule"]))
    scales = sorted(updates["init_scale"].unique())
    last = ranks["step"].max()
    titles = [scale_label(float(f"{scale:g}")) for scale in scales]
    figure, panels = by_product(titles, (READ_WIDTH, 6.4))
    for matrix, row in panels.items():
        kinds = {
            "first step": (1, "true", FIRST_STEP_COLOR),
            "last step": (last, "true", MATRIX_COLORS[matrix]),
            "last step, permuted labels": (last, "permuted", PERMUTED_COLOR),
        }
        for axes, scale in zip(row, scales, strict=True):
            here = where(updates, matrix=matrix, init_scale=scale)
            shifted = zip((-0.27, 0, 0.27), kinds.items(), strict=True)
            look: Any = {**RINGS, "width": 0.11, "ms": 3.5}
            for shift, (label, (step, labels, color)) in shifted:
                chosen = where(here, step=step, labels=labels)
                for x, rule in enumerate(rules):
                    values = where(chosen, rule=rule)["stable_rank"]
                    unit_points(axes, x + shift, values, color, **look)
                axes.plot([], [], "o", ms=3.5, mfc="none", color=color, label=label)
            axes.set_xticks(range(len(rules)), labels=[name_of(rule) for rule in rules])
            axes.grid(visible=False, axis="x")
            rank_axis(axes)
        for axes, scale in zip(row, scales, strict=True):
            if np.isclose(scale, init_scale):  # when the axis that all share has every point
                draw_bar(axes, bar, label=f"Muon, {bar.words()}" if bar else None)
                axes.legend(loc="upper left", fontsize=8)
                if matrix == "W_KQ":
                    axes.tick_params(labelbottom=True, labelleft=True)  # it is also shown alone
                    axes.set_ylabel(row[0].get_ylabel())
                    number_panel(axes)
        row[0].legend(loc="upper left")
    return figure


def ranks_at_loss(
    ranks: pd.DataFrame, trained: pd.DataFrame, init_scale: float, bar: Bar
) -> Figure:
    """Stable ranks of updates against the falling training loss, by optimiser; a line is a seed.

    The bar is asked of Muon's at the end, where the other optimisers are its nulls.
    """
    keys = ["rule", "labels", "init_scale", "seed", "step"]
    updates = ranks[(ranks["of"] == "update") & np.isclose(ranks["init_scale"], init_scale)]
    told = updates.merge(trained[[*keys, "train_loss"]], on=keys).sort_values("step")
    rules = list(dict.fromkeys(ranks["rule"]))
    titles = [name_of(rule).replace("\n", " ") for rule in rules]
    figure, panels = by_product(titles, (READ_WIDTH, 5.4), xlabel="training loss")
    shown: list[Axes] = []
    for matrix, row in panels.items():
        for axes, rule in zip(row, rules, strict=True):
            for labels, color in {
                "true": MATRIX_COLORS[matrix],
                "permuted": PERMUTED_COLOR,
            }.items():
                chosen = (told["matrix"] == matrix) & (told["rule"] == rule)
                here = told[chosen & (told["labels"] == labels)]
                line: Any = {"color": color, "lw": 1, "label": f"{labels} labels"}
                unit_lines(axes, here, "train_loss", "stable_rank", **line)
            loss_axis(axes)
            rank_axis(axes)
        row[0].legend(loc="upper left")
        for axes, rule in zip(row, rules, strict=True):
            if rule.startswith("muon"):
                draw_bar(axes, bar, label=f"{bar.words()}, at the end")
                asked = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
                axes.legend(handles=asked, loc="lower left", fontsize=8)
                axes.tick_params(labelleft=True)
                shown.append(axes)
    panels["W_KQ"][0].invert_xaxis()
    number_panel(*shown)
    return figure


def cuts_and_rates(truncate: pd.DataFrame, rates: pd.DataFrame, init_scale: float) -> Figure:
    """What cuts cost where trainings are equally accurate; the loss at every rate tried."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(READ_WIDTH, 4.2))
    at = truncate[(truncate["labels"] == "true") & np.isclose(truncate["init_scale"], init_scale)]
    for rule in dict.fromkeys(rates["rule"]):
        line = {"color": color_of(rule), "marker": "o", "ms": 4}
        line["label"] = name_of(rule).replace("\n", " ")
        ranged(left, where(at, rule=rule), "rank", "test_accuracy", **line)
        tried = where(rates, rule=rule).groupby("learning_rate")["train_loss"].mean()
        right.plot(tried.index, tried, **line)
        right.plot(tried.idxmin(), tried.min(), "o", ms=11, mfc="none", color=color_of(rule))
    number_panel(left)
    cut_axis(left, at)
    left.set(xlabel="rank r that all updates are cut to", ylabel="test accuracy", ylim=(0, 1.02))
    right.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="final training loss")
    right.set_title("tuning seeds; a ring is the rate that is used")
    left.set_title(f"first saved step above one test accuracy; {scale_label(init_scale)}")
    left.legend(loc="lower right")
    return figure
