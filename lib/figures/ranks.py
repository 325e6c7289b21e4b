"""Stable ranks against the init scale and through training (figures 4, 12, 14, 16 of Boix-Adserà et al. 2023)."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import (
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    SEED_MARKERS,
    band,
    scale_label,
)


def rank_against_init_scale(table: pd.DataFrame) -> Figure:
    """Figure 4: final stable rank of the update against the init scale; mean ± sd over heads, one marker per seed."""
    last = table["step"].max()
    final = table[(table["step"] == last) & table["matrix"].isin(list(MATRIX_NAMES))]
    layers = sorted(final["layer"].unique())
    figure, panels = plt.subplots(
        2, len(layers), figsize=(2.9 * len(layers), 5.2), sharex=True, sharey="row", squeeze=False
    )
    for row, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        for axes, layer in zip(panels[row], layers, strict=True):
            rows = final[(final["matrix"] == matrix) & (final["layer"] == layer)]
            for of, color in (("gaussian", NULL_COLOR), ("update", MATRIX_COLORS[matrix])):
                chosen = rows[rows["of"] == of]
                pooled = chosen.groupby("init_scale")["stable_rank"].agg(["mean", "std"])
                label = "Gaussian of equal norm" if of == "gaussian" else "update, mean ± sd over heads"
                band(axes, pooled.index, pooled["mean"], pooled["std"], color=color, label=label)
                if of == "gaussian":
                    continue
                by_seed = chosen.pivot_table(index="init_scale", columns="seed", values="stable_rank", observed=True)
                for marker, seed in zip(SEED_MARKERS, by_seed, strict=False):
                    axes.plot(by_seed.index, by_seed[seed], marker, ms=4, mfc="none", color=color,
                              label=f"mean of seed {seed}")  # fmt: skip
            axes.set(xscale="log", yscale="log")
            axes.set_yticks([1, 2, 4, 8, 16], labels=["1", "2", "4", "8", "16"])
            axes.minorticks_off()
            if row == 0:
                axes.set_title(f"layer {layer}")
            else:
                axes.set_xlabel("init scale (1 = library default)")
        panels[row][0].set_ylabel(rf"stable rank of $\Delta$ {name}")
    panels[0][-1].legend(fontsize=7)
    return figure


def rank_through_training(table: pd.DataFrame, init_scales: list[float]) -> Figure:
    """Figures 12, 14, 16: stable rank of both updates against the step, every layer; bands are sd over heads."""
    chosen = table[(table["of"] == "update") & table["matrix"].isin(list(MATRIX_NAMES))]
    layers = sorted(chosen["layer"].unique())
    figure, panels = plt.subplots(
        len(init_scales),
        len(layers),
        figsize=(1.0 + 2.6 * len(layers), 0.5 + 2.2 * len(init_scales)),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for row, scale in enumerate(init_scales):
        for axes, layer in zip(panels[row], layers, strict=True):
            for matrix, name in MATRIX_NAMES.items():
                rows = chosen[
                    (chosen["matrix"] == matrix) & (chosen["init_scale"] == scale) & (chosen["layer"] == layer)
                ]
                over_heads = rows.groupby(["seed", "step"])["stable_rank"].agg(["mean", "std"])
                means = over_heads["mean"].unstack("seed")
                spread = over_heads["std"].unstack("seed").mean(axis=1)
                color = MATRIX_COLORS[matrix]
                axes.plot(means.index, means, color=color, lw=0.7, alpha=0.8)
                label = rf"$\Delta$ {name}"
                band(axes, means.index, means.mean(axis=1), spread, color=color, lw=2.2, label=label)
            if row == 0:
                axes.set_title(f"layer {layer}")
            if row == len(init_scales) - 1:
                axes.set_xlabel("step")
        panels[row][0].set_ylabel(f"stable rank\n{scale_label(scale)}")
    panels[0][0].legend()
    figure.suptitle("bold: mean over heads and seeds; band: sd over heads; thin: each seed")
    return figure


def rank_against_nulls(table: pd.DataFrame, init_scale: float) -> Figure:
    """Final stable ranks of learned updates beside those of nulls and SGD; one point per seed, a bar at their mean."""
    last = table["step"].max()
    here = table[(table["init_scale"] == init_scale) & table["matrix"].isin(list(MATRIX_NAMES))]
    plain, final = here[here["control"] == "none"], here[here["step"] == last]
    shown = {
        "learned": final[(final["control"] == "none") & (final["of"] == "update")],
        "Gaussian of\nequal norm": final[(final["control"] == "none") & (final["of"] == "gaussian")],
        "first step": plain[(plain["of"] == "update") & (plain["step"] == 1)],
    }
    names = {"labels=permuted": "permuted\nlabels", "optimizer=sgd": "SGD for Adam"}
    for control in sorted(set(final["control"]) - {"none"}):
        name = next((n for key, n in names.items() if control.startswith(key)), control)
        shown[name] = final[(final["control"] == control) & (final["of"] == "update")]
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 3.4), sharey=True)
    for axes, (matrix, name) in zip(panels, MATRIX_NAMES.items(), strict=True):
        for x, (label, rows) in enumerate(shown.items()):
            by_seed = rows[rows["matrix"] == matrix].groupby("seed")["stable_rank"].mean()
            color = MATRIX_COLORS[matrix] if label == "learned" else NULL_COLOR
            axes.hlines(by_seed.mean(), x - 0.3, x + 0.3, color=color, lw=2.5)
            axes.plot([x] * len(by_seed), by_seed, "o", ms=4.5, mfc="none", color=color)
        axes.set_xticks(range(len(shown)), labels=list(shown))
        axes.set(title=rf"$\Delta$ {name}, {scale_label(init_scale)}", yscale="log")
        axes.set_yticks([1, 2, 4, 8, 16], labels=["1", "2", "4", "8", "16"])
        axes.minorticks_off()
        axes.grid(visible=False, axis="x")
    panels[0].set_ylabel("stable rank, mean over layers and heads")
    return figure


def readings_of_init_scale(training: pd.DataFrame, ranks: pd.DataFrame) -> Figure:
    """What "the initial value of every layer" means matters: accuracy and stable ranks under both readings, by seed."""
    other = "scaled=all-but-patch-embedding"
    scales = sorted(ranks[ranks["control"] == other]["init_scale"].unique())
    names = {"none": "layers", other: "all but patch\nembedding"}
    last = ranks["step"].max()
    final = ranks[(ranks["step"] == last) & (ranks["of"] == "update") & ranks["init_scale"].isin(scales)]
    learned = training[(training["step"] == last) & training["init_scale"].isin(scales)]
    figure, panels = plt.subplots(1, 3, figsize=(9.2, 3.2))
    for x, control in enumerate(names):
        accuracy = learned[learned["control"] == control]
        panels[0].plot([x] * len(accuracy), accuracy["test_accuracy"], "o", ms=5, mfc="none", color="black")
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
    figure.suptitle(f"what init scale {', '.join(f'{s:g}' for s in scales)} multiplies; one point per seed")
    return figure
