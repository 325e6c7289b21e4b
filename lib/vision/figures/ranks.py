"""Stable ranks by init scale and step (figures 4, 12, 14, 16 of Boix-Adserà et al. 2023)."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import band, unit_lines, unit_points, where, write_beside
from lib.pages.panels import grid, numbers_below, scale_label, shared_legend, sized, tall_panel
from lib.pages.style import MATRIX_COLORS, MATRIX_NAMES, NULL_COLOR, PERMUTED_COLOR, number_panel
from lib.vision.figures.panels import (
    FIRST_STEP_COLOR,
    PERMUTED,
    RINGS,
    SCALE,
    beside_each_other,
    by_product,
    final_ranks,
    growth_between,
    loss_axis,
    named_scales,
    of_matrix,
    own_panel,
    rank_axis,
    with_permuted,
)

PRODUCT = "Gaussian product"
LEARNED_LOSS = 1.0  # below it a good part of the permuted labels is learned; guessing has ln 10


def rank_against_init_scale(
    table: pd.DataFrame, training: pd.DataFrame, trained_loss: float, bar: Bar | None = None
) -> Figure:
    """Figure 4: final stable rank of the update by init scale, beside its nulls, in every layer.

    Lines are means over heads and seeds, the band is the range over heads (means over seeds), a
    marker is a seed. It is hollow where the training loss of that scale stayed above
    `trained_loss`: there the scale was not trained out. The last panels have means over layers, and
    by how much each scale has more than the one before.
    """
    last = table["step"].max()
    losses = where(training, control="none", step=last)
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
    said = f" ({bar.words()})" if bar else ""
    titles = [*(f"layer {layer}" for layer in layers), ""]
    widths = [1.0] * len(layers) + [1.7]
    size = sized(1.0 + 2.5 * sum(widths), 5.8)
    figure, panels = by_product(titles, size, xlabel=SCALE, widths=widths)
    for matrix, row in panels.items():
        grown = own_panel(figure, row[-1])
        if matrix == "W_KQ":
            number_panel(grown)
        for control, shade, label in (
            ("none", MATRIX_COLORS[matrix], "true labels"),
            (PERMUTED, PERMUTED_COLOR, "permuted labels"),
        ):
            of_all = of_matrix(final_ranks(table, control=control), matrix)
            if len(of_all):
                growth_between(grown, of_all, shade, above=control == "none", label=label)
        grown.set_title(
            rf"$\Delta$ {MATRIX_NAMES[matrix]}, all layers:" f"\n× the scale before{said}"
        )
        grown.legend(loc="upper left")
        for axes, layer in zip(row, layers, strict=False):
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
            band(axes, by_head.index, low, high, color)
            for scale, rows in learned.groupby("init_scale"):
                fill = "full" if losses[scale] <= trained_loss else "none"
                by_seed = rows.groupby("seed")["stable_rank"].mean()
                at = np.full(len(by_seed), scale)
                axes.plot(at, by_seed, "o", ms=4, fillstyle=fill, color=color)
            axes.set(xscale="log")
            numbers_below(axes, losses.index)
            rank_axis(axes)
    shared_legend(figure, panels["W_KQ"][0], fontsize=7.5, handlelength=3.5)
    said = f"one marker per seed; hollow: training loss above {trained_loss:g}"
    figure.suptitle(said, fontsize=9.5)
    return figure


def rank_through_training(
    table: pd.DataFrame, growth: pd.DataFrame, init_scales: list[float], bar: Bar | None = None
) -> Figure:
    """Figures 12, 14, 16: stable rank of both updates against the step, in every layer.

    A bold line is the mean over heads and seeds, a thin one is a seed, and violet is training on
    permuted labels, dotted for W_VO. The band goes from the lowest head to the highest, as means
    over seeds. The last panel has the growth, the mean of the last third over that of the first.
    """
    chosen = table[(table["of"] == "update") & table["matrix"].isin(list(MATRIX_NAMES))]
    layers = [int(layer) for layer in sorted(chosen["layer"].unique())]
    widths = [1.0] * len(layers) + [1.6]
    size = (1.0 + 2.4 * sum(widths), 0.7 + 2.2 * len(init_scales))
    shared: Any = {"sharex": "col", "sharey": "row", "width_ratios": widths}
    figure, panels = grid(len(init_scales), len(widths), size, **shared)
    grown = tall_panel(figure, panels)
    _growth(grown, growth, bar)
    number_panel(grown)
    for row, scale in enumerate(init_scales):
        for axes, layer in zip(panels[row], layers, strict=False):
            for matrix, name in MATRIX_NAMES.items():
                rows = _here(chosen[np.isclose(chosen["init_scale"], scale)], matrix, layer)
                plain = where(rows, control="none")
                of_heads = plain.groupby(["seed", "step"])["stable_rank"]
                means = of_heads.mean().unstack("seed")
                low, high = (of_heads.agg(end).groupby("step").mean() for end in ("min", "max"))
                color = MATRIX_COLORS[matrix]
                label = rf"$\Delta$ {name}"
                axes.plot(means.index, means, color=color, lw=0.6, alpha=0.6)
                bold = means.mean(axis="columns")
                axes.plot(means.index, bold, color=color, lw=2.2, label=label)
                band(axes, means.index, low, high, color)
                permuted = where(rows, control=PERMUTED).groupby("step")["stable_rank"].mean()
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
    named = [len(axes.get_legend_handles_labels()[1]) for axes in panels[:, 0]]
    most = panels[int(np.argmax(named))][0]  # some init scales may have no permuted labels
    shared_legend(figure, most, fontsize=7.5)
    said = "bold: mean over heads and seeds; band: lowest to highest head; thin: each seed"
    figure.suptitle(said, fontsize=9.5)
    return figure


def _growth(axes: Axes, growth: pd.DataFrame, bar: Bar | None) -> None:
    """The growth of the rank by init scale, under true and permuted labels, and the bar."""
    by = ["matrix", "control", "init_scale", "seed"]
    beside_each_other(axes, with_permuted(named_scales(growth).set_index(by)["growth"]))
    draw_bar(axes, bar)
    axes.set(ylabel="growth: last third of a training / first third")
    axes.set_title("all layers: does the rank grow?")
    axes.legend(loc="upper left")


def rank_against_nulls(
    table: pd.DataFrame, init_scales: list[float], bar: Bar | None = None
) -> Figure:
    """Final stable ranks of updates beside those of nulls, SGD and Muon, by init scale.

    A point is a seed's mean over layers and heads, and a bar stands at their mean. A panel has what
    was run from its scale. The `bar` is of the Gaussian product, as a multiple of what was learned.
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
        PRODUCT: plain & (table["of"] == "gaussian product"),
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
    ratios: dict[float, Axes] = {}
    names: dict[Axes, str] = {}
    learned: dict[Axes, float] = {}
    for matrix, row in panels.items():
        shades = {
            "permuted labels": PERMUTED_COLOR,
            "first step": FIRST_STEP_COLOR,
            "Gaussian factors": NULL_COLOR,
            PRODUCT: NULL_COLOR,
        }
        for axes, scale in zip(row, init_scales, strict=True):
            here = (table["matrix"] == matrix) & np.isclose(table["init_scale"], scale)
            means: dict[str, float] = {}
            for x, label in enumerate(there[scale]):
                by_seed = table[here & shown[label]].groupby("seed")["stable_rank"].mean()
                color = shades.get(label, MATRIX_COLORS[matrix])
                unit_points(axes, x, by_seed, color, **RINGS)
                means[label] = float(by_seed.mean())
            gaussian = there[scale].index(PRODUCT) if PRODUCT in there[scale] else None
            ratio = means.get(PRODUCT, np.nan) / means.get("learned", np.nan)
            if gaussian is not None and np.isfinite(ratio):
                ratios[ratio] = axes
                at = (gaussian, means[PRODUCT])
                write_beside(axes, f"× {ratio:.1f}", at, weight="bold", fontsize=9)
            places = range(len(there[scale]))
            axes.set_xticks(places, labels=there[scale], rotation=40, ha="right")
            axes.set_xlim(-0.5, max(1, len(places)) - 0.5)
            axes.grid(visible=False, axis="x")
            rank_axis(axes)
            if np.isfinite(ratio):
                learned[axes] = means["learned"]
                names[axes] = f"{MATRIX_NAMES[matrix]}, {scale_label(scale)}"
    for axes, times in learned.items():  # when the axis that all share has every point
        said = bar.words(" times the learned") if bar else ""
        draw_bar(axes, bar, times=times, label=said)
    if ratios:
        nearest = ratios[min(ratios)]
        number_panel(nearest)
        nearest.tick_params(labelleft=True)
        low, high = nearest.get_ylim()
        nearest.set(ylim=(low, 1.3 * high), title=rf"$\Delta$ {names[nearest]}")
        if bar:
            nearest.legend(loc="lower left", fontsize=8)
    return figure


def where_learned(compared: pd.DataFrame) -> pd.DataFrame:
    """The comparisons at equal loss of init scales from which permuted labels were learned.

    Elsewhere the beginning of training alone would be compared.
    """
    losses = compared.groupby("init_scale")["train_loss"].transform("mean")
    return compared[losses < LEARNED_LOSS]


def rank_against_loss(
    ranks: pd.DataFrame,
    training: pd.DataFrame,
    compared: pd.DataFrame,
    bar: Bar | None = None,
) -> Figure:
    """Stable ranks against the falling training loss; means over layers and heads.

    A line is a seed; a cross marks where both labels have the same training loss, the lowest to
    which both come down; `compared` has these points, of the init scales that are shown. The bar is
    a multiple of the rank under true labels there.
    """
    ratios: dict[float, Axes] = {}
    names: dict[Axes, str] = {}
    scales = sorted(compared["init_scale"].unique())
    keys = ["init_scale", "control", "seed", "step"]
    losses = training[training["control"].isin(["none", PERMUTED])]["train_loss"]
    ticks = (1, 2, 5) if losses.max() < 300 * losses.min() else (1,)
    titles = [scale_label(scale) for scale in scales]
    size = 1.2 + 2.8 * len(scales), 5.4
    figure, panels = by_product(titles, size, xlabel="training loss")
    for matrix, row in panels.items():
        updates = where(ranks, matrix=matrix, of="update")
        means = updates.groupby(keys, observed=True)["stable_rank"].mean().reset_index()
        joined = means.merge(training[[*keys, "train_loss"]], on=keys).sort_values("step")
        kinds = {
            "true": ("none", "learned", MATRIX_COLORS[matrix]),
            "permuted": (PERMUTED, "permuted", PERMUTED_COLOR),
        }
        for axes, scale in zip(row, scales, strict=True):
            at = where(compared, matrix=matrix, init_scale=scale)
            for labels, (control, kind, color) in kinds.items():
                here = where(joined, init_scale=scale, control=control)
                unit_lines(axes, here, "train_loss", "stable_rank", color=color, lw=0.8)
                cross: Any = {"ms": 7, "mew": 1.6, "color": color, "label": f"{labels} labels"}
                axes.plot(at["train_loss"], at[kind], "x", **cross)
            loss_axis(axes, ticks)
            ratio = float((at["permuted"] / at["learned"]).median())
            if np.isfinite(ratio):
                ratios.setdefault(ratio, axes)
                name = rf"$\Delta$ {MATRIX_NAMES[matrix]}, {scale_label(scale)}"
                names[axes] = f"{name}:\npermuted labels have {ratio:.2f} times the rank"
    panels["W_KQ"][0].invert_xaxis()
    for matrix, row in panels.items():
        for axes, scale in zip(row, scales, strict=True):
            at = where(compared, matrix=matrix, init_scale=scale)
            said = bar.words(" times true labels'") if bar else ""
            draw_bar(axes, bar, times=float(at["learned"].median()), label=said)
        row[0].legend(fontsize=8)
    if ratios:
        least = ratios[min(ratios)]
        number_panel(least)
        least.tick_params(labelleft=True, labelbottom=True)
        least.set(title=names[least], xlabel="training loss")
        least.legend(fontsize=8)
    return figure


def _here(table: pd.DataFrame, matrix: str, layer: int) -> pd.DataFrame:
    return where(table, matrix=matrix, layer=layer)
