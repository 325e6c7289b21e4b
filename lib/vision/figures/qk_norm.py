"""Final ranks, and when products turn, with normalised queries and keys and without."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.style import (
    BLUE,
    GREY,
    MATRIX_NAMES,
    PERMUTED_COLOR,
    READ_WIDTH,
    number_panel,
)
from lib.vision.figures.panels import PERMUTED, final_ranks, of_matrix, rank_axis

KINDS = {  # attention and control of each line
    "QK-norm": ("qk_norm", "none", BLUE, "o"),
    "plain attention": ("plain", "none", GREY, "s"),
    "QK-norm, permuted labels": ("qk_norm", PERMUTED, PERMUTED_COLOR, "^"),
}


def ranks_and_turns(products: pd.DataFrame, turns: pd.DataFrame, moved: float) -> Figure:
    """Stable ranks of the final updates, and when products have moved, by init scale.

    On the left are ranks, as means over layers and heads, on the right the step at which a product
    has moved by a share of its initial norm, as a median over layers and heads. A marker is a seed,
    a line their mean. Dashed is a time that does not depend on the init scale.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.7))
    last = products[products["step"] == products["step"].max()]
    for i, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        ranks, steps = panels[i], panels[2 + i]
        for label, (attention, control, color, marker) in KINDS.items():
            here = last[last["attention"] == attention]
            of_ranks = of_matrix(final_ranks(here, control=control), matrix)
            _by_seed(ranks, of_ranks, label, color, marker)
            own = turns[(turns["attention"] == attention) & (turns["control"] == control)]
            own = own[own["matrix"] == matrix]
            own = own.assign(init_scale=[float(f"{scale:g}") for scale in own["init_scale"]])
            median = own.groupby(["init_scale", "seed"])["turn"].median()
            _by_seed(steps, median, label, color, marker)
            if attention == "qk_norm" and control == "none" and len(median):
                means = median.groupby("init_scale").mean()
                dashed: Any = {"color": color, "ls": "--", "lw": 1.2}
                steps.axhline(means.iloc[0], **dashed, label="if no scale mattered")
        ranks.set(title=f"final rank, {name}", ylabel="stable rank of the update")
        steps.set(title=f"when {name} moves", yscale="log")
        steps.set_ylabel(f"step at which it has moved by {moved:.0%}")
        rank_axis(ranks)
    for axes in panels:
        scales = sorted({float(f"{scale:g}") for scale in turns["init_scale"]})
        axes.set(xscale="log", xlabel="init scale (1 = library's)")
        axes.set_xticks(scales, labels=[f"{scale:g}" for scale in scales])
        axes.minorticks_off()
    handles, labels = panels[2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    number_panel(panels[0])
    return figure


def _by_seed(axes: Axes, values: pd.Series, label: str, color: str, marker: str) -> None:
    """A marker for each seed at each init scale, and a line through their means."""
    values = values[np.isfinite(values)]
    means = values.groupby("init_scale").mean()
    axes.plot(means.index, means, color=color, marker=marker, ms=3, label=label)
    levels = values.index.get_level_values("init_scale")
    axes.plot(levels, values, marker, ms=4, mfc="none", color=color)
