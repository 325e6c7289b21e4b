"""Final ranks, and when products turn, with normalised queries and keys and without."""

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.marks import where
from lib.pages.panels import numbers_below, shared_legend
from lib.pages.style import BLUE, GREY, MATRIX_NAMES, PERMUTED_COLOR, READ_WIDTH, number_panel
from lib.vision.figures.panels import PERMUTED, final_ranks, named_scales, of_matrix, rank_axis


class Line(NamedTuple):
    """A line of a panel: whose it is, and its look."""

    label: str
    attention: str
    control: str
    color: str
    marker: str


LINES = (
    Line("QK-norm", "qk_norm", "none", BLUE, "o"),
    Line("plain attention", "plain", "none", GREY, "s"),
    Line("QK-norm, permuted labels", "qk_norm", PERMUTED, PERMUTED_COLOR, "^"),
)


def ranks_and_turns(products: pd.DataFrame, turns: pd.DataFrame, moved: float) -> Figure:
    """Stable ranks of the final updates, and when products have moved, by init scale.

    On the left are ranks, as means over layers and heads, on the right the step at which a product
    has moved by a share of its initial norm, as a median over layers and heads; a seed in which it
    never has is not drawn. A marker is a seed, a line their mean. The dashed line goes through the
    mean of the first line at the smallest scale.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.9))
    turns = named_scales(turns)
    scales = sorted(turns["init_scale"].unique())
    for i, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        ranks = panels[i]
        steps = panels[2 + i]
        for line in LINES:
            here = where(products, attention=line.attention)
            _by_seed(ranks, of_matrix(final_ranks(here, control=line.control), matrix), line)
            own = where(turns, attention=line.attention, matrix=matrix)
            own = where(own, control=line.control)
            _by_seed(steps, own.groupby(["init_scale", "seed"])["turn"].median(), line)
        first = steps.lines[0].get_ydata()[0]
        steps.axhline(first, ls="--", lw=1.2, color=BLUE, label="if the scale did not matter")
        ranks.set(title=f"final rank, {name}", ylabel="stable rank of the update")
        steps.set(title=f"when {name} moves", yscale="log")
        steps.set_ylabel(f"step at which it has moved by {moved:.0%}")
        rank_axis(ranks)
    for axes in panels:
        axes.set(xscale="log", xlabel="init scale (1 = library's)")
        numbers_below(axes, scales)
        axes.minorticks_off()
    shared_legend(figure, panels[2])
    number_panel(panels[0])
    return figure


def _by_seed(axes: Axes, values: pd.Series, line: Line) -> None:
    """A marker for each seed at each init scale, and a line through means over all seeds."""
    means = values.groupby("init_scale").mean()
    means = means[np.isfinite(means)]
    look: Any = {"color": line.color, "marker": line.marker}
    axes.plot(means.index, means, ms=3, label=line.label, **look)
    values = values[np.isfinite(values)]
    levels = values.index.get_level_values("init_scale")
    axes.plot(levels, values, ls="none", ms=4, mfc="none", **look)
