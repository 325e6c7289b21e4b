"""Ranks of trained products, by number of classes, and outputs of updates cut to a rank."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from lib.pages.bars import Bar
from lib.pages.marks import BOUND, ranged, shade, unit_points, where
from lib.pages.panels import numbers_below
from lib.pages.style import (
    GREEN,
    INITIAL_COLOR,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    READ_WIDTH,
    number_panel,
)
from lib.vision.figures.panels import (
    PERMUTED,
    RINGS,
    rank_axis,
)


def ranks_of_products(
    table: pd.DataFrame, init_scale: float = 1.0, bar: Bar | None = None
) -> Figure:
    """Stable ranks of products at the start, when trained, and of updates, by init scale.

    A point is a seed's mean over layers and heads, and a bar stands at their mean. The bar of the
    trained product is a multiple of the rank at the start, from an init scale up.
    """
    table = where(table, data="digits")
    scales = sorted(table["init_scale"].unique())
    figure, panels = plt.subplots(1, 2, figsize=(READ_WIDTH, 3.8), sharey=True)
    for axes, (matrix, name) in zip(panels, MATRIX_NAMES.items(), strict=True):
        kinds = {
            "initial": ("initial product", INITIAL_COLOR),
            "trained": ("trained product", GREEN),
            "update": ("update", MATRIX_COLORS[matrix]),
        }
        for shift, (of, (label, color)) in zip((-0.2, 0, 0.2), kinds.items(), strict=True):
            rows = where(table, matrix=matrix, of=of)
            means = rows.groupby(["init_scale", "seed"])["rank"].mean()
            for x, scale in enumerate(scales):
                unit_points(axes, x + shift, means.loc[scale], color, **RINGS, width=0.08)
                if bar and of == "initial" and scale >= init_scale:
                    asked = bar.ends[0] * means.loc[scale].mean()
                    axes.hlines(asked, x - 0.35, x + 0.35, **BOUND, lw=1.4)
            axes.plot([], [], "o", ms=4, mfc="none", color=color, label=label)
        if bar:
            said = bar.words(" times the initial")
            axes.plot([], [], **BOUND, lw=1.4, label=said)
        axes.set_xticks(range(len(scales)), labels=[f"{scale:g}" for scale in scales])
        axes.set(title=name, xlabel="init scale (1 = library default)")
        axes.grid(visible=False, axis="x")
        axes.legend(loc="center left")
        rank_axis(axes)
    panels[0].set_ylabel("stable rank")
    number_panel(panels[0])
    return figure


def ranks_by_classes(table: pd.DataFrame) -> Figure:
    """Stable ranks of updates against the step, by number of classes; dashed: permuted labels.

    Ranks are means over layers and heads; lines and bands are mean and range over seeds.
    """
    numbers = sorted(table["n_classes"].unique())
    figure, panels = plt.subplots(1, 2, figsize=(READ_WIDTH, 3.9))
    for axes, (matrix, name) in zip(panels, MATRIX_NAMES.items(), strict=True):
        for i, n in enumerate(numbers):
            here = where(table, matrix=matrix, n_classes=n)
            color = shade(i, len(numbers), 0.85)
            for control, more in (("none", {"label": f"{n} classes"}), (PERMUTED, {"ls": "--"})):
                rows = where(here, control=control)
                if len(rows):
                    ranged(axes, rows, "step", "stable_rank", color=color, **more)
        axes.set(title=name, xlabel="step")
    panels[0].set_ylabel("stable rank of the update")
    panels[0].legend(title="dashed: permuted labels")
    panels[1].legend(title="dashed: permuted labels")
    number_panel(panels[0])
    return figure


def outputs_of_ranks(outputs: pd.DataFrame, scaled: pd.DataFrame) -> Figure:
    """How near outputs of rank r are to the full ones, beside random ones of equal training loss.

    The last panel has the training loss of the update, and of a random one of its spectrum, times a
    number. Lines and bands are mean and range over seeds.
    """
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(READ_WIDTH, 3.9))
    kinds = {
        "cut": ("update cut to rank r", GREEN),
        "random": ("random in place of the rest,\nat equal training loss", NULL_COLOR),
    }
    for kind, (label, color) in kinds.items():
        rows = where(outputs, kind=kind)
        line = {"color": color, "marker": "o", "ms": 4, "label": label}
        ranged(left, rows, "rank", "logits", **line)
        ranged(middle, rows, "rank", "agreement", **line)
    for kind, color in (("learned", GREEN), ("random", NULL_COLOR)):
        rows = where(scaled, kind=kind)
        name = "random, same spectrum" if kind == "random" else "the update"
        ranged(right, rows, "times", "train_loss", color=color, marker="o", ms=4, label=name)
    ranks = sorted(where(outputs, kind="cut")["rank"].unique())
    for axes in (left, middle):
        axes.set_xscale("log", base=2)
        numbers_below(axes, ranks)
        axes.set_xlabel("rank r")
    left.set(yscale="log", ylabel="distance of test logits, over their norm")
    middle.set(ylabel="share of equal predictions", ylim=(0, 1.02))
    right.set(yscale="log", xlabel="times what is added", ylabel="training loss")
    left.legend(loc="lower left")
    right.legend()
    number_panel(left)
    return figure
