"""Transformers of several heads and layers, and heads that tie.

The transformers are those of Example 3.2 of Boix-Adserà et al. (2023). Times are rescaled: time /
log(1 / init_scale). Dashed lines are Algorithm 1's, or what the start alone says.
"""

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.gradual_rank.figures.staircase import Case, draw_products, scale_axis, stairs
from lib.pages.marks import THEORY, shade, unit_lines, where
from lib.pages.panels import power
from lib.pages.style import MATRIX_COLORS, PROBLEM_COLORS, READ_WIDTH, SEED_MARKERS, number_panel


def several_heads(
    name: str,
    trajectory: pd.DataFrame,
    stages: pd.DataFrame,
    tied_name: str,
    tied: pd.DataFrame,
    first: pd.DataFrame,
    twins: pd.DataFrame,
) -> Figure:
    """A transformer's products and loss by rescaled time, and tied heads with their shares.

    The tied heads have a common frame and rise together. Trajectories and stages are those of one
    seed, `first` is the tied problem's, and the shares are those of all its seeds.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.6), width_ratios=[1.3, 1, 1, 1])
    _products(panels[0], trajectory, stages)
    panels[0].set_title(name.replace(", ", ",\n"), fontsize=9)
    _losses(panels[1], trajectory, stages)
    _products(panels[2], tied, first)
    panels[2].set_title(tied_name.replace(", ", ",\n"), fontsize=9)
    _shares(panels[3], twins)
    return figure


def one_head(cases: list[Case], errors: pd.DataFrame) -> Figure:
    """Transformers of one head a layer, each given as (name, trajectories, stages, ...).

    A panel per transformer has the products of one seed. The last one has, for all seeds, the share
    of plateaus with Algorithm 1's support against the init scale.
    """
    figure, panels = plt.subplots(1, len(cases) + 1, figsize=(READ_WIDTH, 3.6))
    share = panels[-1]
    number_panel(share)
    names = [trajectory["problem"].iloc[0] for _, trajectory, *_ in cases]
    for n, (axes, (name, trajectory, stages, _)) in enumerate(zip(panels, cases, strict=False)):
        sizes = name.partition(": ")[2]
        _products(axes, trajectory, stages)
        axes.set_title(sizes.replace(", ", ",\n"), fontsize=9)
        own = where(errors, problem=names[n]).sort_values("log10_init_scale")
        color = PROBLEM_COLORS[n % len(PROBLEM_COLORS)]
        own = own.assign(smallness=-own["log10_init_scale"])
        look: Any = {"label": sizes.partition(", ")[2], "markers": SEED_MARKERS, "color": color}
        unit_lines(share, own, "smallness", "same", **look, ms=4, lw=1)
    scale_axis(share, -errors.loc[errors["problem"].isin(names), "log10_init_scale"])
    share.set(ylabel="share of plateaus with its support", ylim=(-0.02, 1.03))
    share.set_title("Algorithm 1, one line per seed", fontsize=9)
    share.legend(loc="upper left", fontsize=7.5)
    return figure


def _losses(axes: Axes, trajectory: pd.DataFrame, stages: pd.DataFrame) -> None:
    """The loss from every scale, against rescaled time."""
    scales = sorted(trajectory["log10_init_scale"].unique(), reverse=True)
    for n, scale in enumerate(scales):
        rows = where(trajectory, log10_init_scale=scale)
        color = shade(n, len(scales), 0.85)
        axes.plot(rows["rescaled_time"], rows["loss"], color=color, label=power(scale))
    time, loss = stairs(stages, float(trajectory["rescaled_time"].max()), stages["loss"])
    axes.plot(time, loss, **THEORY, lw=0.9, label="Algorithm 1")
    axes.set(
        xlabel="time / log(1 / init scale)",
        ylabel="loss / loss at 0",
        xlim=_window(stages),
        ylim=(0, None),
    )
    axes.legend()


def _products(axes: Axes, trajectory: pd.DataFrame, stages: pd.DataFrame) -> None:
    """The products at the smallest scale, coloured by their place."""
    scale = trajectory["log10_init_scale"].min()
    rows = where(trajectory, log10_init_scale=scale)
    draw_products(axes, rows, stages, float(rows["rescaled_time"].max()))
    axes.set(
        xlabel=f"time / log(1 / init scale),\nfrom $10^{{{scale:g}}}$",
        ylabel="products of all heads",
    )
    axes.set_xlim(_window(stages))


def _shares(axes: Axes, twins: pd.DataFrame) -> None:
    """The share of every head in what the first stage learns, against the init scale.

    Dashed lines are what the start alone says.
    """
    for head, rows in twins.groupby("head"):
        color = list(MATRIX_COLORS.values())[int(head) % 2]  # pyright: ignore
        for n, (_, own) in enumerate(rows.sort_values("log10_init_scale").groupby("seed")):
            said = f"head {head}" if n == 0 else None
            axes.plot(-own["log10_init_scale"], own["share"], "o", color=color, ms=5, label=said)
            axes.plot(-own["log10_init_scale"], own["predicted"], "--", color=color, lw=0.9)
    scale_axis(axes, -twins["log10_init_scale"])
    axes.set(ylabel="share in the first product", ylim=(-0.02, 1.15))
    axes.set_title("shares of tied heads\n(dashed: by the start)", fontsize=9)
    axes.legend(loc="upper center", ncols=2)


def _window(stages: pd.DataFrame) -> tuple[float, float]:
    """The times that are drawn: to the end of the last plateau, at most a third of its time after
    it.
    """
    last = float(stages["time"].max()) or 1.0
    return 0.0, min(1.35 * last, max(last, float(stages["next_time"].max())))
