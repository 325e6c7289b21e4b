"""Spectra of products and their updates (figures 1, 3, 5, 11, 13, 15, Boix-Adserà et al. 2023)."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import Color, directions, unit_points, where
from lib.pages.panels import grid, scale_label, sized, tall_panel
from lib.pages.style import (
    GREENS,
    INITIAL_COLOR,
    MATRIX_COLORS,
    MATRIX_NAMES,
    PERMUTED_COLOR,
    TRAINED_COLOR,
    VIRIDIS,
    number_panel,
)
from lib.vision.figures.panels import (
    FIRST_STEP_COLOR,
    PERMUTED,
    RINGS,
    beside_each_other,
    by_product,
    final_ranks,
    growth_between,
    named_scales,
    of_matrix,
    rank_axis,
    with_permuted,
)


def normalised_spectra(table: pd.DataFrame, init_scale: float, layer: int, head: int) -> Figure:
    """Figure 1: the spectrum at the start (brown) and of the update (green), over its largest."""
    chosen = where(table, init_scale=init_scale, layer=layer, head=head)
    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.3), sharey=True)
    for axes, (matrix, name) in zip(panels, MATRIX_NAMES.items(), strict=True):
        rows = where(chosen, matrix=matrix)
        initial = where(rows, of="initial")["singular_values"].iloc[0]
        updates = where(rows, of="update").sort_values("step")
        updates = updates.iloc[_spaced(len(updates), 6)]
        steps = zip(updates["step"], updates["singular_values"], strict=True)
        for i, (step, values) in enumerate(steps):
            shade = GREENS(i / max(1, len(updates) - 1))
            axes.plot(_index(values), values / values[0], color=shade, label=f"update, step {step}")
        axes.plot(_index(initial), initial / initial[0], color=INITIAL_COLOR, label="initial state")
        axes.set(title=name, xlabel=_index_label(chosen))
    panels[0].set_ylabel(r"singular value / largest, $\sigma_i/\sigma_1$")
    panels[1].legend(fontsize=7.5)
    seed = table["seed"].iloc[0]
    figure.suptitle(f"{scale_label(init_scale)}, layer {layer}, head {head}, seed {seed}")
    return figure


def spectra_through_training(
    table: pd.DataFrame,
    ranks: pd.DataFrame,
    init_scales: list[float],
    layer: int,
    head: int,
    top: int,
    bar: Bar | None = None,
) -> Figure:
    """Figure 3: the singular values of the update of one head against the step, by init scale.

    The last panels have the stable rank of all heads in the end, and after the first step, and by
    how much each scale has more than the one before.
    """
    widths = [1.0] * len(init_scales) + [1.6]
    said = f" ({bar.words()})" if bar else ""
    figure, panels = by_product(
        [*(scale_label(scale) for scale in init_scales), ""],
        sized(max(5.8, 2.6 * sum(widths)), 5.6),  # the title needs the width
        quantity="singular values",
        xlabel="step",
        share_y=False,
        widths=widths,
    )
    first = where(ranks, step=1)
    for matrix, row in panels.items():
        for of, color, label in (
            (ranks, MATRIX_COLORS[matrix], "last step"),
            (first, FIRST_STEP_COLOR, "first step"),
        ):
            by_seed = of_matrix(final_ranks(of), matrix)
            if len(by_seed):
                growth_between(row[-1], by_seed, color, above=of is ranks, label=label)
        row[-1].set_ylabel("stable rank")
        row[-1].set_title(
            rf"$\Delta$ {MATRIX_NAMES[matrix]}, all heads:" f"\n× the scale before{said}"
        )
        row[-1].legend(loc="upper left")
    number_panel(panels["W_VO"][-1])
    here = (table["layer"] == layer) & (table["head"] == head) & (table["of"] == "update")
    for matrix, row in panels.items():
        for axes, scale in zip(row, init_scales, strict=False):
            chosen = here & (table["matrix"] == matrix) & (table["init_scale"] == scale)
            rows = table[chosen].sort_values("step")
            values = np.stack(list(rows["singular_values"]))[:, :top]
            directions(axes, rows["step"], values, _root_shade, lw=1.2)
            axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(MaxNLocator(4, prune="upper"))
    seed = table["seed"].iloc[0]
    n_values = min(top, max(map(len, table["singular_values"])))
    shown = f"each line one of the {n_values} largest singular values"
    figure.suptitle(f"layer {layer}, head {head}, seed {seed}; {shown}")
    return figure


def rises_of_directions(
    table: pd.DataFrame, init_scale: float, layer: int, head: int, bar: Bar | None = None
) -> Figure:
    """Figure 3, by direction: from which step to which each singular value of a head's update rises
    from a tenth of its last value to nine tenths, under true and permuted labels.

    The largest stands at the top. Directions that rise one after another are a staircase, in which
    no two bars share a step. The last panel has the share that waits for the one before, as a mean
    over all heads.
    """
    here = (table["layer"] == layer) & (table["head"] == head)
    here &= np.isclose(table["init_scale"], init_scale)
    seed = table["seed"].min()
    chosen = table[here & (table["seed"] == seed)]
    drawn = {"none": "true labels", PERMUTED: "permuted labels"}
    shown = [control for control in drawn if (chosen["control"] == control).any()] or ["none"]
    size = (12.0, 1.4 + 2.3 * len(shown))
    figure, panels = grid(len(shown), 3, size, sharex="col", width_ratios=[1, 1, 1.1])
    apart = tall_panel(figure, panels)
    _apart(apart, table, bar)
    number_panel(apart)
    for row, control in zip(panels[:, :-1], shown, strict=True):
        for axes, (matrix, name) in zip(row, MATRIX_NAMES.items(), strict=True):
            rows = where(chosen, control=control, matrix=matrix)
            rows = rows.sort_values("singular_value", ascending=False)
            color = PERMUTED_COLOR if control == PERMUTED else MATRIX_COLORS[matrix]
            index = np.arange(1, len(rows) + 1)
            axes.barh(index, rows["ended"] - rows["begun"], 0.7, rows["begun"], color=color)
            axes.invert_yaxis()
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set_title(rf"$\Delta$ {name}, {drawn[control]}")
        row[0].set_ylabel("direction, largest first")
    for axes in panels[-1][:-1]:
        axes.set_xlabel("step")
    said = f"{scale_label(init_scale)}, layer {layer}, head {head}, seed {seed}"
    figure.suptitle(f"{said}; each bar from 10 % to 90 % of a singular value's last size")
    return figure


def _apart(axes: Axes, table: pd.DataFrame, bar: Bar | None) -> None:
    """The share of directions that begin after the one that ended before them, by init scale."""
    keys = ["matrix", "control", "init_scale", "seed", "layer", "head"]
    ordered = table.sort_values("ended", kind="stable")
    before = ordered.groupby(keys, observed=True)["ended"].shift()
    waits = ordered.assign(waits=(ordered["begun"] >= before).astype(float))[before.notna()]
    shares = named_scales(waits).groupby(keys, observed=True)["waits"].mean()
    beside_each_other(axes, with_permuted(shares.groupby(level=keys[:4]).mean()))
    axes.set_ylim(-0.03, 1.03)
    draw_bar(axes, bar)
    axes.set(ylabel="share of directions that wait for the one before")
    axes.set_title("all layers and heads: one after another?")
    axes.legend(loc="upper left")


def spectra_of_heads(
    table: pd.DataFrame,
    ranks: pd.DataFrame,
    matrix: str,
    init_scale: float,
    bar: Bar | None = None,
) -> Figure:
    """Figures 5, 11, 13: the final update's spectrum against the initial one, of every head.

    The panel on the right has their stable ranks.
    """
    chosen = where(table, matrix=matrix, init_scale=init_scale)
    layers, heads = (sorted(chosen[name].unique()) for name in ("layer", "head"))
    widths = [1.0] * len(heads) + [0.25, 2.1]
    size = sized(1.0 + 1.65 * sum(widths), 0.9 + 1.6 * len(layers))
    figure = plt.figure(figsize=size)
    places = figure.add_gridspec(len(layers), len(widths), width_ratios=widths)
    panels = np.empty((len(layers), len(heads)), object)
    for row, column in np.ndindex(panels.shape):
        shared = panels[0][0]
        panels[row][column] = axes = figure.add_subplot(
            places[row, column], sharex=shared, sharey=shared
        )
        axes.label_outer()
    number = figure.add_subplot(places[:, -1])
    _ranks_of_heads(number, ranks, matrix, init_scale, bar)
    number_panel(number)
    last = where(chosen, of="update")["step"].max()
    for (layer, head), rows in chosen.groupby(["layer", "head"], observed=True):
        axes: Axes = panels[layers.index(layer)][heads.index(head)]
        initial = where(rows, of="initial")["singular_values"].iloc[0]
        final = where(rows, of="update", step=last)["singular_values"].iloc[0]
        axes.plot(_index(initial), initial, color=INITIAL_COLOR, label="initial state")
        axes.plot(_index(final), final, color=GREENS(0.85), label=f"update after {last} steps")
        axes.set_title(f"layer {layer}, head {head}", fontsize=8.5)
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=len(labels), borderaxespad=0.1)
    figure.supxlabel(_index_label(chosen), fontsize=9.5)
    figure.supylabel(rf"singular values of {MATRIX_NAMES[matrix]}", fontsize=9.5)
    figure.suptitle(f"{scale_label(init_scale)}, seed {table['seed'].iloc[0]}", x=0.02, ha="left")
    return figure


def _ranks_of_heads(
    axes: Axes, ranks: pd.DataFrame, matrix: str, init_scale: float, bar: Bar | None
) -> None:
    """The stable rank of the update of each head and of its initial matrix, means over seeds; bars
    and numbers are means over all.
    """
    here = where(ranks, matrix=matrix, control="none")
    here = here[np.isclose(here["init_scale"], init_scale)]
    kinds = {"update": TRAINED_COLOR, "initial": INITIAL_COLOR}
    for x, (of, color) in enumerate(kinds.items()):
        rows = where(here, of=of)
        rows = where(rows, step=rows["step"].max())
        of_heads = rows.groupby(["layer", "head"], observed=True)["stable_rank"].mean()
        if len(of_heads):
            unit_points(axes, x, of_heads, color, **RINGS, width=0.25)
            said = f"{of_heads.mean():.1f}"
            axes.annotate(
                said,
                (x + 0.3, of_heads.mean()),
                color=color,
                fontsize=9.5,
                weight="bold",
                va="center",
            )
    axes.set_xticks(range(2), labels=["update", "initial state"])
    axes.set_xlim(-0.5, 1.6)
    axes.grid(visible=False, axis="x")
    axes.set_title(f"all heads: stable rank\nof {MATRIX_NAMES[matrix]}")
    rank_axis(axes)
    draw_bar(axes, bar)
    if bar:
        axes.legend(loc="center left")


def _root_shade(i: int, n: int) -> Color:
    """The colour of the i-th of n, the first of which are told apart best."""
    return VIRIDIS(0.9 * np.sqrt(i / max(1, n - 1)))


def _index_label(table: pd.DataFrame) -> str:
    """What the x axis counts; it says so where the table has the largest values only."""
    shown = max(map(len, table["singular_values"]))
    every = table["n_singular_values"].max() if "n_singular_values" in table else None
    if every == shown:
        return "index of the singular value"
    return f"index of the singular value, the {shown} largest" + (f" of {every}" if every else "")


def _index(values: np.ndarray) -> np.ndarray:
    return np.arange(1, len(values) + 1)


def _spaced(n: int, wanted: int) -> list[int]:
    """At most `wanted` of the positions 0 .. n - 1, evenly spaced, both ends among them."""
    return sorted({round(i) for i in np.linspace(0, n - 1, min(wanted, n))})
