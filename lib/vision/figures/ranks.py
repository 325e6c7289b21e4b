"""Stable ranks against the init scale and through training (figures 4, 12, 14, 16 of Boix-Adserà et
al. 2023).
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from lib.pages.style import MATRIX_COLORS, MATRIX_NAMES, NULL_COLOR, PERMUTED_COLOR, scale_label

PERMUTED = "labels=permuted"
FITTED, UNFITTED = "full", "none"  # of a marker


def rank_against_init_scale(
    table: pd.DataFrame, training: pd.DataFrame, trained_loss: float
) -> Figure:
    """Figure 4: final stable rank of the update against the init scale, beside its nulls, for every
    layer.

    Lines are means over heads and seeds, the band is the range over heads (means over seeds), a
    marker is a seed. It is hollow where the training loss of that scale stayed above
    `trained_loss`: there the scale was not trained out.
    """
    last = table["step"].max()
    losses = training[(training["control"] == "none") & (training["step"] == last)]
    losses = losses.groupby("init_scale")["train_loss"].mean()
    table = table[table["matrix"].isin(list(MATRIX_NAMES)) & table["init_scale"].isin(losses.index)]
    plain, final = table["control"] == "none", table["step"] == last
    nulls = {
        "Gaussian factors of equal norm": (table[final & plain & (table["of"] == "gaussian")], "-"),
        "permuted labels": (
            table[final & (table["control"] == PERMUTED) & (table["of"] == "update")],
            "--",
        ),
        "first step": (table[plain & (table["of"] == "update") & (table["step"] == 1)], ":"),
    }
    layers = [int(layer) for layer in sorted(table["layer"].unique())]
    size = 1.0 + 2.7 * len(layers), 5.6
    figure, panels = plt.subplots(
        2, len(layers), figsize=size, sharex=True, sharey="row", squeeze=False
    )
    for row, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        for axes, layer in zip(panels[row], layers, strict=True):
            for label, (rows, style) in nulls.items():
                means = _here(rows, matrix, layer).groupby("init_scale")["stable_rank"].mean()
                shade = PERMUTED_COLOR if label == "permuted labels" else NULL_COLOR
                axes.plot(means.index, means, style, color=shade, marker=".", label=label)
            learned = _here(table[final & plain & (table["of"] == "update")], matrix, layer)
            by_head = learned.groupby(["init_scale", "head"])["stable_rank"].mean().unstack("head")
            color = MATRIX_COLORS[matrix]
            axes.plot(
                by_head.index,
                by_head.mean(axis="columns"),
                color=color,
                label="update; band: range over heads",
            )
            low, high = by_head.min(axis="columns"), by_head.max(axis="columns")
            axes.fill_between(by_head.index, low, high, color=color, alpha=0.16, lw=0)
            for scale, rows in learned.groupby("init_scale"):
                fill = FITTED if losses[scale] <= trained_loss else UNFITTED
                by_seed = rows.groupby("seed")["stable_rank"].mean()
                axes.plot([scale] * len(by_seed), by_seed, "o", ms=4, fillstyle=fill, color=color)
            axes.set(xscale="log")
            axes.set_xticks(list(losses.index), labels=[f"{scale:g}" for scale in losses.index])
            _rank_axis(axes)
            if row == 0:
                axes.set_title(f"layer {layer}")
            else:
                axes.set_xlabel("init scale (1 = library default)")
        panels[row][0].set_ylabel(rf"stable rank of $\Delta$ {name}")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=len(labels),
        fontsize=7.5,
        handlelength=3.5,
    )
    figure.suptitle(
        f"one marker per seed; hollow: training loss above {trained_loss:g}", fontsize=9.5
    )
    return figure


def rank_through_training(table: pd.DataFrame, init_scales: list[float]) -> Figure:
    """Figures 12, 14, 16: stable rank of both updates against the step, every layer; dashed under
    permuted labels.

    Bold: mean over heads and seeds; thin: each seed; the band is from the lowest head to the
    highest, means over seeds.
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
                of_heads = plain.groupby(["seed", "step"])["stable_rank"].agg(
                    ["mean", "min", "max"]
                )
                means = of_heads["mean"].unstack("seed")
                low, high = (of_heads[end].groupby("step").mean() for end in ("min", "max"))
                color = MATRIX_COLORS[matrix]
                axes.plot(means.index, means, color=color, lw=0.6, alpha=0.6)
                axes.plot(
                    means.index,
                    means.mean(axis="columns"),
                    color=color,
                    lw=2.2,
                    label=rf"$\Delta$ {name}",
                )
                axes.fill_between(means.index, low, high, color=color, alpha=0.16, lw=0)
                permuted = rows[rows["control"] == PERMUTED].groupby("step")["stable_rank"].mean()
                if len(permuted):
                    label = rf"$\Delta$ {name}, permuted labels"
                    axes.plot(permuted.index, permuted, "--", color=color, lw=1.4, label=label)
            if row == 0:
                axes.set_title(f"layer {layer}")
            if row == len(init_scales) - 1:
                axes.set_xlabel("step")
        panels[row][0].set_ylabel(f"stable rank\n{scale_label(scale)}")
    found = [dict(zip(*row[0].get_legend_handles_labels()[::-1], strict=True)) for row in panels]
    labels = max(found, key=len)  # some init scales may have no permuted labels
    figure.legend(
        labels.values(), labels.keys(), loc="outside lower center", ncols=len(labels), fontsize=7.5
    )
    figure.suptitle(
        "bold: mean over heads and seeds; band: lowest to highest head; thin: each seed",
        fontsize=9.5,
    )
    return figure


def rank_against_nulls(table: pd.DataFrame, init_scales: list[float]) -> Figure:
    """Final stable ranks of learned updates beside those of nulls, SGD and Muon, at every init
    scale.

    Means over layers and heads: one point per seed, a bar at their mean.
    """
    last = table["step"].max()
    table = table[table["matrix"].isin(list(MATRIX_NAMES))]
    plain, update = table["control"] == "none", table["of"] == "update"
    shown = {
        "learned": plain & update & (table["step"] == last),
        "permuted labels": (table["control"] == PERMUTED) & update & (table["step"] == last),
        "first step": plain & update & (table["step"] == 1),
        "Gaussian factors": plain & (table["of"] == "gaussian"),
        "Gaussian product": plain & (table["of"] == "gaussian product"),
        "SGD for Adam": table["control"].str.startswith("optimizer=sgd")
        & update
        & (table["step"] == last),
        "Muon for Adam": table["control"].str.startswith("optimizer=muon")
        & update
        & (table["step"] == last),
    }
    shown = {name: chosen for name, chosen in shown.items() if chosen.any()}
    size = 1.0 + 2.9 * len(init_scales), 5.8
    figure, panels = plt.subplots(
        2, len(init_scales), figsize=size, sharex=True, sharey=True, squeeze=False
    )
    for row, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        for axes, scale in zip(panels[row], init_scales, strict=True):
            here = (table["matrix"] == matrix) & np.isclose(table["init_scale"], scale)
            for x, (label, chosen) in enumerate(shown.items()):
                by_seed = table[here & chosen].groupby("seed")["stable_rank"].mean()
                if len(by_seed):
                    shades = {"learned": MATRIX_COLORS[matrix], "permuted labels": PERMUTED_COLOR}
                    color = shades.get(label, NULL_COLOR)
                    axes.hlines(by_seed.mean(), x - 0.3, x + 0.3, color=color, lw=2.5)
                    axes.plot([x] * len(by_seed), by_seed, "o", ms=4, mfc="none", color=color)
            axes.set_xticks(range(len(shown)), labels=list(shown), rotation=40, ha="right")
            axes.set_xlim(-0.5, len(shown) - 0.5)
            axes.grid(visible=False, axis="x")
            _rank_axis(axes)
            if row == 0:
                axes.set_title(scale_label(scale))
        panels[row][0].set_ylabel(rf"stable rank of $\Delta$ {name}")
    return figure


def growth_against_null(table: pd.DataFrame) -> Figure:
    """Growth of stable ranks through training, at every init scale, of true and of permuted labels.

    One point per seed, a bar at their mean; above 1 the rank grows.
    """
    kinds = {"none": "true labels", PERMUTED: "permuted labels"}
    scales = sorted(table[table["control"] == "none"]["init_scale"].unique())
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.6), sharey=True)
    for axes, (matrix, name) in zip(panels, MATRIX_NAMES.items(), strict=True):
        for shift, (control, label) in zip((-0.15, 0.15), kinds.items(), strict=True):
            color = MATRIX_COLORS[matrix] if control == "none" else PERMUTED_COLOR
            for x, scale in enumerate(scales):
                chosen = (table["matrix"] == matrix) & (table["control"] == control)
                values = table[chosen & (table["init_scale"] == scale)]["growth"]
                if len(values):
                    axes.hlines(
                        values.mean(), x + shift - 0.12, x + shift + 0.12, color=color, lw=2.5
                    )
                    axes.plot([x + shift] * len(values), values, "o", ms=4, mfc="none", color=color)
            axes.plot([], [], "o", mfc="none", color=color, label=label)
        axes.axhline(1, color="black", lw=0.8, ls=":")
        axes.set_xticks(range(len(scales)), labels=[f"{scale:g}" for scale in scales])
        axes.set(
            title=rf"stable rank of $\Delta$ {name}", xlabel="init scale (1 = library default)"
        )
        axes.grid(visible=False, axis="x")
        axes.legend()
    panels[0].set_ylabel("mean of the last third of the steps\nover that of the first third")
    return figure


def rank_against_loss(
    ranks: pd.DataFrame, training: pd.DataFrame, compared: pd.DataFrame
) -> Figure:
    """Stable ranks against the training loss that falls, for true and permuted labels; means over
    layers and heads.

    A line is a seed; a cross marks where both labels have the same training loss, the lowest to
    which both come down.
    """
    scales = sorted(compared["init_scale"].unique())
    keys = ["init_scale", "control", "seed", "step"]
    losses = training[training["control"].isin(["none", PERMUTED])]["train_loss"]
    ticks = (1, 2, 5) if losses.max() < 300 * losses.min() else (1,)
    size = 1.2 + 2.8 * len(scales), 5.4
    figure, panels = plt.subplots(
        2, len(scales), figsize=size, sharex=True, sharey="row", squeeze=False
    )
    for row, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        updates = ranks[(ranks["matrix"] == matrix) & (ranks["of"] == "update")]
        means = updates.groupby(keys, observed=True)["stable_rank"].mean().reset_index()
        joined = means.merge(training[[*keys, "train_loss"]], on=keys).sort_values("step")
        for axes, scale in zip(panels[row], scales, strict=True):
            for control, kind, color in (
                ("none", "learned", MATRIX_COLORS[matrix]),
                (PERMUTED, "permuted", PERMUTED_COLOR),
            ):
                here = joined[(joined["init_scale"] == scale) & (joined["control"] == control)]
                for _, rows in here.groupby("seed"):
                    axes.plot(rows["train_loss"], rows["stable_rank"], color=color, lw=0.8)
                at = compared[(compared["matrix"] == matrix) & (compared["init_scale"] == scale)]
                label = "true labels" if kind == "learned" else "permuted labels"
                axes.plot(at["train_loss"], at[kind], "x", ms=7, mew=1.6, color=color, label=label)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=ticks))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            if row == 0:
                axes.set_title(scale_label(scale))
            else:
                axes.set_xlabel("training loss")
        panels[row][0].set_ylabel(rf"stable rank of $\Delta$ {name}")
        panels[row][0].legend(fontsize=8)
    panels[0][0].invert_xaxis()
    return figure


def _here(table: pd.DataFrame, matrix: str, layer: int) -> pd.DataFrame:
    return table[(table["matrix"] == matrix) & (table["layer"] == layer)]


def _rank_axis(axes: Axes) -> None:
    """Stable ranks on a scale of powers of two, as far as they go."""
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.minorticks_off()


def readings_of_init_scale(training: pd.DataFrame, ranks: pd.DataFrame) -> Figure:
    """What "the initial value of every layer" means matters: accuracy and stable ranks under both
    readings, by seed.
    """
    other = "scaled=all-but-patch-embedding"
    scales = sorted(ranks[ranks["control"] == other]["init_scale"].unique())
    names = {"none": "layers", other: "all but patch\nembedding"}
    last = ranks["step"].max()
    final = ranks[
        (ranks["step"] == last) & (ranks["of"] == "update") & ranks["init_scale"].isin(scales)
    ]
    learned = training[(training["step"] == last) & training["init_scale"].isin(scales)]
    figure, panels = plt.subplots(1, 3, figsize=(9.2, 3.2))
    for x, control in enumerate(names):
        accuracy = learned[learned["control"] == control]
        panels[0].plot(
            [x] * len(accuracy), accuracy["test_accuracy"], "o", ms=5, mfc="none", color="black"
        )
        for axes, (matrix, color) in zip(panels[1:], MATRIX_COLORS.items(), strict=True):
            rows = final[(final["control"] == control) & (final["matrix"] == matrix)]
            by_seed = rows.groupby(["seed", "init_scale"])["stable_rank"].mean()
            axes.plot([x] * len(by_seed), by_seed, "o", ms=5, mfc="none", color=color)
    panels[0].set(title="test accuracy", ylim=(0, 1.02))
    for axes, name in zip(panels[1:], MATRIX_NAMES.values(), strict=True):
        axes.set(title=rf"stable rank of $\Delta$ {name}")
    for axes in panels:
        axes.set_xticks(range(len(names)), labels=list(names.values()))
        axes.set_xlim(-0.5, len(names) - 0.5)
    figure.suptitle(
        f"what init scale {', '.join(f'{s:g}' for s in scales)} multiplies; one point per seed"
    )
    return figure
