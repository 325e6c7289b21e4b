"""Loss and accuracy through training, and optimisers side by side."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lib.pages.style import (
    BLUE,
    BROWN,
    GREEN,
    MAGENTA,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    PERMUTED_COLOR,
    READ_WIDTH,
    TEAL,
    VIRIDIS,
    ranged,
    scale_label,
)

OPTIMIZERS = {
    "adam": ("Adam", MAGENTA),
    "adamw": ("AdamW", BROWN),
    "sgd": ("SGD", BLUE),
    "muon": ("Muon", GREEN),
    "muon_heads": ("Muon,\nper head", TEAL),
}


def learning_curves(table: pd.DataFrame) -> Figure:
    """Training loss, test loss and test accuracy against the step, for every init scale; mean and
    range over seeds.

    Dashed: of permuted labels.
    """
    quantities = {
        "train_loss": "training loss (since the last point)",
        "test_loss": "test loss",
        "test_accuracy": "test accuracy",
    }
    figure, panels = plt.subplots(1, 3, figsize=(10.2, 3.5))
    scales = sorted(table[table["control"] == "none"]["init_scale"].unique())
    for axes, (column, name) in zip(panels, quantities.items(), strict=True):
        for i, scale in enumerate(scales):
            color = VIRIDIS(0.9 * i / max(1, len(scales) - 1))
            for control, style in (("none", "-"), ("labels=permuted", "--")):
                rows = table[(table["init_scale"] == scale) & (table["control"] == control)].dropna(
                    subset=[column]
                )
                if rows.empty:
                    continue
                by_step = rows.groupby("step")[column].agg(["mean", "min", "max"])
                label = scale_label(float(f"{scale:g}")) if control == "none" else None
                axes.plot(by_step.index, by_step["mean"], style, color=color, label=label)
                axes.fill_between(
                    by_step.index, by_step["min"], by_step["max"], color=color, alpha=0.16, lw=0
                )
        axes.set(title=name, xlabel="step")
    panels[2].set_ylim(0, 1.01)
    panels[2].set_yticks(np.arange(0, 1.01, 0.2))
    if (table["control"] == "labels=permuted").any():
        panels[2].plot([], [], "--", color="black", label="permuted labels")
    handles, labels = panels[2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def name_of(rule: str) -> str:
    """How figures name an optimiser."""
    return OPTIMIZERS.get(rule, (rule, ""))[0]


def color_of(rule: str) -> str:
    """Its colour where optimisers share a panel."""
    return OPTIMIZERS.get(rule, ("", NULL_COLOR))[1]


def ranks_of_optimizers(ranks: pd.DataFrame) -> Figure:
    """Stable ranks of updates by optimiser and init scale: after the first step, at the end, and on
    permuted labels.

    Means over layers and heads: one point per seed, a bar at their mean.
    """
    updates = ranks[ranks["of"] == "update"]
    rules, scales, last = (
        list(dict.fromkeys(updates["rule"])),
        sorted(updates["init_scale"].unique()),
        ranks["step"].max(),
    )
    figure, panels = plt.subplots(
        2, len(scales), figsize=(READ_WIDTH, 6.4), sharex=True, sharey="row", squeeze=False
    )
    for row, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        kinds = {
            "first step": (1, "true", NULL_COLOR),
            "last step": (last, "true", MATRIX_COLORS[matrix]),
            "last step, permuted labels": (last, "permuted", PERMUTED_COLOR),
        }
        for axes, scale in zip(panels[row], scales, strict=True):
            here = updates[(updates["matrix"] == matrix) & (updates["init_scale"] == scale)]
            for shift, (label, (step, labels, color)) in zip(
                (-0.27, 0, 0.27), kinds.items(), strict=True
            ):
                chosen = here[(here["step"] == step) & (here["labels"] == labels)]
                for x, rule in enumerate(rules):
                    values = chosen[chosen["rule"] == rule]["stable_rank"]
                    axes.hlines(
                        values.mean(), x + shift - 0.11, x + shift + 0.11, color=color, lw=2.5
                    )
                    axes.plot(
                        [x + shift] * len(values), values, "o", ms=3.5, mfc="none", color=color
                    )
                axes.plot([], [], "o", ms=3.5, mfc="none", color=color, label=label)
            axes.set_xticks(range(len(rules)), labels=[name_of(rule) for rule in rules])
            axes.grid(visible=False, axis="x")
            _powers_of_two(axes)
            if row == 0:
                axes.set_title(scale_label(float(f"{scale:g}")))
        panels[row][0].set_ylabel(rf"stable rank of $\Delta$ {name}")
        panels[row][0].legend(loc="upper left")
    return figure


def ranks_at_loss(ranks: pd.DataFrame, trained: pd.DataFrame, init_scale: float) -> Figure:
    """Stable ranks of updates against the training loss that falls, by optimiser, for both labels;
    a line is a seed.
    """
    keys = ["rule", "labels", "init_scale", "seed", "step"]
    updates = ranks[(ranks["of"] == "update") & np.isclose(ranks["init_scale"], init_scale)]
    told = updates.merge(trained[[*keys, "train_loss"]], on=keys).sort_values("step")
    rules = list(dict.fromkeys(ranks["rule"]))
    figure, panels = plt.subplots(
        2, len(rules), figsize=(READ_WIDTH, 5.4), sharex=True, sharey="row", squeeze=False
    )
    for row, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        for axes, rule in zip(panels[row], rules, strict=True):
            kinds = {"true": (MATRIX_COLORS[matrix], "-"), "permuted": (PERMUTED_COLOR, "--")}
            for labels, (color, style) in kinds.items():
                here = told[
                    (told["matrix"] == matrix) & (told["rule"] == rule) & (told["labels"] == labels)
                ]
                for i, (_, rows) in enumerate(here.groupby("seed")):
                    label = None if i else f"{labels} labels"
                    axes.plot(
                        rows["train_loss"],
                        rows["stable_rank"],
                        style,
                        color=color,
                        lw=1,
                        label=label,
                    )
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1,)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            _powers_of_two(axes)
            if row == 0:
                axes.set_title(name_of(rule).replace("\n", " "))
            else:
                axes.set_xlabel("training loss")
        panels[row][0].set_ylabel(rf"stable rank of $\Delta$ {name}")
        panels[row][0].legend(loc="upper left")
    panels[0][0].invert_xaxis()
    return figure


def cuts_and_rates(truncate: pd.DataFrame, rates: pd.DataFrame, init_scale: float) -> Figure:
    """What truncation costs where trainings are equally accurate; the training loss at every rate
    that was tried.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(READ_WIDTH, 4.2))
    at = truncate[(truncate["labels"] == "true") & np.isclose(truncate["init_scale"], init_scale)]
    for rule in dict.fromkeys(rates["rule"]):
        line = {
            "color": color_of(rule),
            "marker": "o",
            "ms": 4,
            "label": name_of(rule).replace("\n", " "),
        }
        ranged(left, at[at["rule"] == rule], "rank", "test_accuracy", **line)
        tried = rates[rates["rule"] == rule].groupby("learning_rate")["train_loss"].mean()
        right.plot(tried.index, tried, **line)
        right.plot(tried.idxmin(), tried.min(), "o", ms=11, mfc="none", color=color_of(rule))
    kept = sorted(at["rank"].unique())
    left.set_xscale("symlog", base=2, linthresh=1)
    left.set_xticks(kept, labels=[str(rank) for rank in kept])
    left.minorticks_off()
    left.set(xlabel="rank r that all updates are cut to", ylabel="test accuracy", ylim=(0, 1.02))
    right.set(xscale="log", yscale="log", xlabel="learning rate", ylabel="final training loss")
    right.set_title("tuning seeds; a ring is the rate that is used")
    left.set_title(f"first saved step above one test accuracy; {scale_label(init_scale)}")
    left.legend(loc="lower right")
    return figure


def _powers_of_two(axes: Axes) -> None:
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()
