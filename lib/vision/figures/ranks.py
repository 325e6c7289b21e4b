"""Stable ranks by init scale and step (figures 4, 12, 14, 16 of Boix-Adserà et al. 2023)."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.pages.style import MATRIX_COLORS, MATRIX_NAMES, NULL_COLOR, PERMUTED_COLOR, scale_label
from lib.vision.figures.panels import (
    FIRST_STEP_COLOR,
    PERMUTED,
    by_product,
    loss_axis,
    points,
    rank_axis,
)

SCALE = "init scale (1 = library default)"
LEARNED_LOSS = 1.0  # below it a good part of the permuted labels is learned; guessing has ln 10


def rank_against_init_scale(
    table: pd.DataFrame, training: pd.DataFrame, trained_loss: float
) -> Figure:
    """Figure 4: final stable rank of the update by init scale, beside its nulls, in every layer.

    Lines are means over heads and seeds, the band is the range over heads (means over seeds), a
    marker is a seed. It is hollow where the training loss of that scale stayed above
    `trained_loss`: there the scale was not trained out.
    """
    last = table["step"].max()
    losses = training[(training["control"] == "none") & (training["step"] == last)]
    losses = losses.groupby("init_scale")["train_loss"].mean()
    table = table[table["matrix"].isin(list(MATRIX_NAMES)) & table["init_scale"].isin(losses.index)]
    plain = table["control"] == "none"
    final = table["step"] == last
    update = table["of"] == "update"
    permuted = table["control"] == PERMUTED
    beside = {
        "Gaussian factors of equal norm": (final & plain & (table["of"] == "gaussian"), NULL_COLOR),
        "permuted labels": (final & permuted & update, PERMUTED_COLOR),
        "first step": (plain & update & (table["step"] == 1), FIRST_STEP_COLOR),
    }
    layers = [int(layer) for layer in sorted(table["layer"].unique())]
    titles = [f"layer {layer}" for layer in layers]
    figure, panels = by_product(titles, (1.0 + 2.7 * len(layers), 5.6), xlabel=SCALE)
    for matrix, row in panels.items():
        for axes, layer in zip(row, layers, strict=True):
            for label, (chosen, shade) in beside.items():
                rows = _here(table[chosen], matrix, layer)
                means = rows.groupby("init_scale")["stable_rank"].mean()
                style = ":" if label == "first step" else "-"
                axes.plot(means.index, means, style, color=shade, marker=".", label=label)
            learned = _here(table[final & plain & update], matrix, layer)
            by_head = learned.groupby(["init_scale", "head"])["stable_rank"].mean().unstack("head")
            color = MATRIX_COLORS[matrix]
            low, mean, high = (by_head.agg(end, axis="columns") for end in ("min", "mean", "max"))
            axes.plot(by_head.index, mean, color=color, label="update; band: range over heads")
            axes.fill_between(by_head.index, low, high, color=color, alpha=0.16, lw=0)
            for scale, rows in learned.groupby("init_scale"):
                fill = "full" if losses[scale] <= trained_loss else "none"
                by_seed = rows.groupby("seed")["stable_rank"].mean()
                at = np.full(len(by_seed), scale)
                axes.plot(at, by_seed, "o", ms=4, fillstyle=fill, color=color)
            axes.set(xscale="log")
            axes.set_xticks(list(losses.index), labels=[f"{scale:g}" for scale in losses.index])
            rank_axis(axes)
    handles, labels = panels["W_KQ"][0].get_legend_handles_labels()
    below: Any = {"loc": "outside lower center", "ncols": len(labels), "fontsize": 7.5}
    figure.legend(handles, labels, **below, handlelength=3.5)
    said = f"one marker per seed; hollow: training loss above {trained_loss:g}"
    figure.suptitle(said, fontsize=9.5)
    return figure


def rank_through_training(table: pd.DataFrame, init_scales: list[float]) -> Figure:
    """Figures 12, 14, 16: stable rank of both updates against the step, in every layer.

    A bold line is the mean over heads and seeds, a thin one is a seed, and violet is training on
    permuted labels, dotted for W_VO. The band goes from the lowest head to the highest, as means
    over seeds.
    """
    chosen = table[(table["of"] == "update") & table["matrix"].isin(list(MATRIX_NAMES))]
    layers = [int(layer) for layer in sorted(chosen["layer"].unique())]
    size = 1.0 + 2.6 * len(layers), 0.5 + 2.2 * len(init_scales)
    figure, panels = plt.subplots(
        len(init_scales), len(layers), figsize=size, sharex=True, sharey="row", squeeze=False
    )
    for row, scale in enumerate(init_scales):
        for axes, layer in zip(panels[row], layers, strict=True):
            for matrix, name in MATRIX_NAMES.items():
                rows = _here(chosen[np.isclose(chosen["init_scale"], scale)], matrix, layer)
                plain = rows[rows["control"] == "none"]
                of_heads = plain.groupby(["seed", "step"])["stable_rank"]
                means = of_heads.mean().unstack("seed")
                low, high = (of_heads.agg(end).groupby("step").mean() for end in ("min", "max"))
                color = MATRIX_COLORS[matrix]
                label = rf"$\Delta$ {name}"
                axes.plot(means.index, means, color=color, lw=0.6, alpha=0.6)
                bold = means.mean(axis="columns")
                axes.plot(means.index, bold, color=color, lw=2.2, label=label)
                axes.fill_between(means.index, low, high, color=color, alpha=0.16, lw=0)
                permuted = rows[rows["control"] == PERMUTED].groupby("step")["stable_rank"].mean()
                if len(permuted):
                    label += ", permuted labels"
                    style = "-" if matrix == "W_KQ" else ":"
                    line: Any = {"color": PERMUTED_COLOR, "lw": 1.6, "label": label}
                    axes.plot(permuted.index, permuted, style, **line)
            if row == 0:
                axes.set_title(f"layer {layer}")
            if row == len(init_scales) - 1:
                axes.set_xlabel("step")
        panels[row][0].set_ylabel(f"stable rank\n{scale_label(scale)}")
    found = [dict(zip(*row[0].get_legend_handles_labels()[::-1], strict=True)) for row in panels]
    labels = max(found, key=len)  # some init scales may have no permuted labels
    below: Any = {"loc": "outside lower center", "ncols": len(labels), "fontsize": 7.5}
    figure.legend(labels.values(), labels.keys(), **below)
    said = "bold: mean over heads and seeds; band: lowest to highest head; thin: each seed"
    figure.suptitle(said, fontsize=9.5)
    return figure


def rank_against_nulls(table: pd.DataFrame, init_scales: list[float]) -> Figure:
    """Final stable ranks of updates beside those of nulls, SGD and Muon, by init scale.

    A point is a seed's mean over layers and heads, and a bar stands at their mean. A panel has what
    was run from its scale.
    """
    last = table["step"].max()
    table = table[table["matrix"].isin(list(MATRIX_NAMES))]
    plain = table["control"] == "none"
    update = table["of"] == "update"
    final = update & (table["step"] == last)
    shown = {
        "learned": plain & final,
        "permuted labels": (table["control"] == PERMUTED) & final,
        "first step": plain & update & (table["step"] == 1),
        "Gaussian factors": plain & (table["of"] == "gaussian"),
        "Gaussian product": plain & (table["of"] == "gaussian product"),
        "trained with SGD": table["control"].str.startswith("optimizer=sgd") & final,
        "trained with Muon": table["control"].str.startswith("optimizer=muon") & final,
    }
    there = {
        scale: [
            name
            for name, chosen in shown.items()
            if (chosen & np.isclose(table["init_scale"], scale)).any()
        ]
        for scale in init_scales
    }
    titles = [scale_label(scale) for scale in init_scales]
    figure, panels = by_product(
        titles,
        (1.0 + 2.9 * len(init_scales), 5.8),
        share_y=True,
        widths=[max(1, len(names)) for names in there.values()],
    )
    for matrix, row in panels.items():
        shades = {
            "permuted labels": PERMUTED_COLOR,
            "first step": FIRST_STEP_COLOR,
            "Gaussian factors": NULL_COLOR,
            "Gaussian product": NULL_COLOR,
        }
        for axes, scale in zip(row, init_scales, strict=True):
            here = (table["matrix"] == matrix) & np.isclose(table["init_scale"], scale)
            for x, label in enumerate(there[scale]):
                by_seed = table[here & shown[label]].groupby("seed")["stable_rank"].mean()
                points(axes, x, by_seed, shades.get(label, MATRIX_COLORS[matrix]), width=0.3)
            places = range(len(there[scale]))
            axes.set_xticks(places, labels=there[scale], rotation=40, ha="right")
            axes.set_xlim(-0.5, max(1, len(places)) - 0.5)
            axes.grid(visible=False, axis="x")
            rank_axis(axes)
    return figure


def where_learned(compared: pd.DataFrame) -> pd.DataFrame:
    """The comparisons at equal loss of init scales from which permuted labels were learned.

    Elsewhere the beginning of training alone would be compared.
    """
    losses = compared.groupby("init_scale")["train_loss"].transform("mean")
    return compared[losses < LEARNED_LOSS]


def rank_against_loss(
    ranks: pd.DataFrame, training: pd.DataFrame, compared: pd.DataFrame
) -> Figure:
    """Stable ranks against the falling training loss; means over layers and heads.

    A line is a seed; a cross marks where both labels have the same training loss, the lowest to
    which both come down; `compared` has these points, of the init scales that are shown.
    """
    scales = sorted(compared["init_scale"].unique())
    keys = ["init_scale", "control", "seed", "step"]
    losses = training[training["control"].isin(["none", PERMUTED])]["train_loss"]
    ticks = (1, 2, 5) if losses.max() < 300 * losses.min() else (1,)
    titles = [scale_label(scale) for scale in scales]
    size = 1.2 + 2.8 * len(scales), 5.4
    figure, panels = by_product(titles, size, xlabel="training loss")
    for matrix, row in panels.items():
        updates = ranks[(ranks["matrix"] == matrix) & (ranks["of"] == "update")]
        means = updates.groupby(keys, observed=True)["stable_rank"].mean().reset_index()
        joined = means.merge(training[[*keys, "train_loss"]], on=keys).sort_values("step")
        kinds = {
            "true": ("none", "learned", MATRIX_COLORS[matrix]),
            "permuted": (PERMUTED, "permuted", PERMUTED_COLOR),
        }
        for axes, scale in zip(row, scales, strict=True):
            at = compared[(compared["matrix"] == matrix) & (compared["init_scale"] == scale)]
            for labels, (control, kind, color) in kinds.items():
                here = joined[(joined["init_scale"] == scale) & (joined["control"] == control)]
                for _, rows in here.groupby("seed"):
                    axes.plot(rows["train_loss"], rows["stable_rank"], color=color, lw=0.8)
                cross: Any = {"ms": 7, "mew": 1.6, "color": color, "label": f"{labels} labels"}
                axes.plot(at["train_loss"], at[kind], "x", **cross)
            loss_axis(axes, ticks)
        row[0].legend(fontsize=8)
    panels["W_KQ"][0].invert_xaxis()
    return figure


def _here(table: pd.DataFrame, matrix: str, layer: int) -> pd.DataFrame:
    return table[(table["matrix"] == matrix) & (table["layer"] == layer)]
