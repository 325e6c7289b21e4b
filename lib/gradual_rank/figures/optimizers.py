"""Which optimisers raise the rank gradually: courses, the three properties, what the path decides,
and sign flow.

τ is the sum of the learning rates; gradient descent's is the time of gradient flow.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import THEORY, directions, shade, unit_points, where, write_beside
from lib.pages.style import (
    BLUE,
    BROWN,
    GREEN,
    LIGHT_GREEN,
    MAGENTA,
    MATRIX_NAMES,
    ORANGE,
    READ_WIDTH,
    SEED_MARKERS,
    TEAL,
    number_panel,
)

NAMES = {
    "gd": ("gradient descent", BLUE),
    "ngd": ("normalised descent", TEAL),
    "sign": ("sign descent", ORANGE),
    "adam": ("Adam", MAGENTA),
    "rmsprop": ("RMSProp", BROWN),
    "torch_muon": ("torch.optim.Muon", LIGHT_GREEN),
    "muon": ("Muon, polar factor", GREEN),
}
OTHER = "black"  # the colour of an optimiser that only a user's table has
LEAST_LATER = 1e-3  # per cent: a first rise that moves less is drawn here
SHOWN = ("gd", "adam", "muon")
DIAGONAL = {"gradient flow": BLUE, "sign": ORANGE, "adam": MAGENTA}


def name_of(optimizer: str) -> str:
    """The name that figures give to a line of the table of optimisers."""
    return NAMES.get(optimizer, (optimizer, OTHER))[0]


def color_of(optimizer: str) -> str:
    """The colour of an optimiser in all figures."""
    return NAMES.get(optimizer, (optimizer, OTHER))[1]


def listed(optimizers: pd.Series) -> list[str]:
    """The optimisers that are there: the known ones in a fixed order, then the others."""
    found = list(dict.fromkeys(optimizers))
    return [name for name in NAMES if name in found] + [name for name in found if name not in NAMES]


def courses(table: pd.DataFrame) -> Figure:
    """The singular values of W_VO of one seed under three optimisers, by τ.

    The dashed line is τ², what theory says of Muon.
    """
    shown = [name for name in SHOWN if name in set(table["optimizer"])] or listed(
        table["optimizer"]
    )[:3]
    figure, panels = plt.subplots(
        1, len(shown), figsize=(READ_WIDTH, 3.9), sharey=True, squeeze=False
    )
    for axes, name in zip(panels[0], shown, strict=True):
        rows = where(table, optimizer=name).sort_values("step")
        values = np.stack(list(rows["W_VO"]))
        log_scale = -float(rows["log10_init_scale"].iloc[0]) * np.log(10)
        x = rows["time"].to_numpy() / (log_scale if name == "gd" else 1.0)
        directions(axes, x, values, shade, lw=1.5)
        if name == "muon":
            tau = np.linspace(0, np.sqrt(values.max()), 80)
            axes.plot(tau, tau**2, **THEORY, lw=1, label=r"$\tau^2$")
            axes.legend(loc="upper left")
        axes.set(title=f"{name_of(name)}, init scale $10^{{{rows['log10_init_scale'].iloc[0]:g}}}$")
        axes.set(
            xlabel="time / log(1 / init scale)"
            if name == "gd"
            else r"$\tau$, the sum of the learning rates"
        )
        ended = np.flatnonzero((np.abs(values - values[-1]) > 0.02 * values[-1].max()).any(1))
        axes.set(
            xlim=(0, x[min(len(x) - 1, int(1.15 * (ended[-1] + 1)) if len(ended) else len(x) - 1)]),
            ylim=(0, None),
        )
    panels[0][0].set_ylabel(f"singular values of {MATRIX_NAMES['W_VO']}")
    return figure


def properties(runs: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """Optimisers by their properties from the smallest scale, with a point per seed.

    By how much the first rise moves between two small scales, the order, the growth of the stable
    rank and the speeds are those under the full teacher; separate directions are those under the
    low one. The bar is asked of how much the first rise moves, but not under gradient descent.
    """
    scales = runs["log10_init_scale"]
    small = runs[scales == scales.min()].set_index(["optimizer", "seed"])
    middle = np.sort(scales.unique())[:2][-1]
    large = runs[scales == middle].set_index(["optimizer", "seed"])
    full = where(small, teacher_rank=runs["teacher_rank"].max())
    low = where(small, teacher_rank=runs["teacher_rank"].min())
    stepped = full[full.index.get_level_values("optimizer") != "gd"]
    first = large.loc[large["teacher_rank"] == runs["teacher_rank"].max(), "first_rise"]
    ratio = full["first_rise"] / first
    later = (100 * (ratio - 1).abs()).clip(lower=LEAST_LATER)
    later = later[np.isfinite(later)]  # of seeds in which something rises from both starts
    shown = {
        "order of rising: 1 largest\nfirst, −1 smallest first": [full["order"]],
        "stable rank at half of\nthe loss / at the end": [
            full["stable_rank_half"] / full["stable_rank_end"]
        ],
        f"directions that rise apart,\nshare, teacher of rank {low['teacher_rank'].iloc[0]}": [
            low["separate"]
        ],
        "least and largest speed\nof singular values, per τ": [
            stepped["slope_least"],
            stepped["slope_most"],
        ],
    }
    names = listed(runs["optimizer"])
    figure, panels = plt.subplots(
        1, 1 + len(shown), figsize=(READ_WIDTH, 4.2), sharey=True, width_ratios=[1.9, 1, 1, 1, 1]
    )
    delay, *others = panels
    number_panel(delay)
    _by_optimizer(delay, later, names)
    middles = later.groupby(level="optimizer").median()
    for name, middle_later in middles.items():
        two_digits = float(f"{middle_later:.2g}")
        said = f"{two_digits:g} %" if middle_later > LEAST_LATER else "0 %"
        look: Any = {"fontsize": 9, "weight": "bold", "color": color_of(str(name))}
        write_beside(delay, said, (middle_later, names.index(str(name))), (0, 8), **look)
    delay.set(xscale="log")
    if len(later):
        delay.set(xlim=(0.6 * later.min(), 3 * later.max()))
    if bar:
        said = f"asked: at most {100 * bar.interval.high:g} %,"
        said += "\nbut not of gradient\ndescent and RMSProp"
        draw_bar(delay, bar, times=100, vertical=True, label=said)
        delay.legend(loc="upper left", fontsize=7.5)
    delay.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    delay.set_xlabel("how much the first rise moves, and its median", fontsize=9)
    delay.set_title(
        f"starts of $10^{{{scales.min():g}}}$ for $10^{{{middle:g}}}$: does it wait longer?",
        fontsize=9.5,
    )
    for axes, (label, columns) in zip(others, shown.items(), strict=True):
        for column in columns:
            _by_optimizer(axes, column, names)
        axes.set_xlabel(label, fontsize=8.5)
    delay.set_yticks(range(len(names)), labels=[name_of(name) for name in names])
    delay.set_ylim(len(names) - 0.6, -0.7)
    others[1].axvline(1, color="black", lw=0.8)
    others[0].axvline(0, color="black", lw=0.8)
    return figure


def _by_optimizer(axes: Axes, column: pd.Series, names: list[str]) -> None:
    """A point per seed in the row of its optimiser."""
    for y, name in enumerate(names):
        own = column[column.index.get_level_values("optimizer") == name]
        unit_points(axes, y, own, color_of(name), along="x", ms=4.5, alpha=0.8)


def what_the_path_decides(few: pd.DataFrame, paths: pd.DataFrame) -> Figure:
    """The rank of W_KQ where few tokens leave it open, and test losses where targets are noisy.

    The test losses are those along the path of a training.
    """
    figure, (rank, test, best) = plt.subplots(
        1, 3, figsize=(READ_WIDTH, 4.2), width_ratios=[1.2, 1.3, 1]
    )
    number_panel(rank)
    names = listed(few["optimizer"])
    exact = sorted(few.loc[few["noise"] == 0, "n_samples"].unique())
    for n, size in enumerate(exact):
        rows = where(few, noise=0, n_samples=size)
        seeds(
            rank,
            rows,
            names,
            "effective_rank_KQ",
            marker=SEED_MARKERS[n],
            shift=0.16 * (n - 0.5 * (len(exact) - 1)),
            label=f"{size} sequence{'s' if size > 1 else ''}",
        )
    rank.set(ylabel=f"effective rank of {MATRIX_NAMES['W_KQ']} at the end", ylim=(0, None))
    rank.legend(loc="upper left")
    noisy = few[few["noise"] > 0]
    for name in names:
        rows = where(paths, optimizer=name).groupby("step")[["loss", "test_loss"]].mean()
        test.plot(rows["loss"], rows["test_loss"], color=color_of(name), label=name_of(name))
    test.set(
        xscale="log",
        yscale="log",
        xlabel="training loss / loss at 0",
        ylabel="test loss / loss at 0",
    )
    test.invert_xaxis()
    test.set_xticks([1, 0.5, 0.3, 0.2], labels=["1", "0.5", "0.3", "0.2"])
    test.minorticks_off()
    test.legend(loc="lower left", fontsize=7.5)
    seeds(best, noisy, names, "best_test_loss", marker="o", label="best on the path")
    seeds(best, noisy, names, "last_test_loss", marker="x", shift=0.2, label="end of training")
    best.set(ylabel="test loss / loss at 0", yscale="log")
    best.legend(loc="upper left")
    best.set_ylim(top=2.5 * float(noisy["last_test_loss"].max()))
    return figure


def seeds(
    axes: Axes,
    rows: pd.DataFrame,
    names: list[str],
    column: str,
    *,
    marker: str,
    label: str,
    shift: float = 0.0,
) -> None:
    """Draw a point per seed at its optimiser."""
    for x, name in enumerate(names):
        own = where(rows, optimizer=name)
        unit_points(axes, x + shift, own[column], color_of(name), marker=marker, ms=4.5)
    axes.plot([], [], marker, color="black", ms=4.5, label=label)
    axes.set_xticks(
        range(len(names)),
        labels=[name_of(name) for name in names],
        rotation=40,
        ha="right",
        fontsize=8,
    )


def signs(
    flow: pd.DataFrame,
    steps: pd.DataFrame,
    diagonal: pd.DataFrame,
    distances: pd.DataFrame,
    slopes: pd.DataFrame,
) -> Figure:
    """The diagonal head under sign descent, sign flow and Adam.

    Panels show the order by optimiser, sign flow beside small steps of sign descent, their
    distance, and Adam's early slope.
    """
    figure, (order, path, far, adam) = plt.subplots(
        1, 4, figsize=(READ_WIDTH, 3.9), width_ratios=[0.9, 1.4, 1.2, 0.8]
    )
    draw_orders(order, diagonal)
    draw_roots(path, flow.sort_values("time"), steps.sort_values("time"))
    draw_distances(far, distances)
    for x, (_, rows) in enumerate(slopes.groupby("beta_2", sort=True)):
        unit_points(adam, x - 0.1, rows["slope_VO"], ORANGE, ms=4.5)
        unit_points(adam, x + 0.1, rows["slope_KQ"], BLUE, marker="s", ms=4.5)
    betas = sorted(slopes["beta_2"].unique())
    adam.set_xticks(range(len(betas)), labels=[f"{beta:g}" for beta in betas])
    for theory in (1, np.sqrt(3), np.sqrt(7)):
        adam.axhline(theory, **THEORY, lw=0.9)
    adam.plot([], [], "o", color=ORANGE, label=MATRIX_NAMES["W_VO"])
    adam.plot([], [], "s", color=BLUE, label=MATRIX_NAMES["W_KQ"])
    adam.legend(loc="lower right")
    adam.set(
        xlabel=r"$\beta_2$ of Adam",
        ylabel=r"slope of $\sqrt{|p|}$",
        xlim=(-0.5, len(betas) - 0.5),
        ylim=(0, 3),
    )
    return figure


def draw_orders(axes: Axes, diagonal: pd.DataFrame) -> None:
    """Kendall's tau of size and earliness of the products from the largest scale, by seed."""
    own = where(diagonal, log10_init_scale=diagonal["log10_init_scale"].max())
    own = own.dropna(subset="order")
    for x, (name, color) in enumerate(DIAGONAL.items()):
        orders = own.loc[own["optimizer"] == name, "order"]
        unit_points(axes, x, orders, color, ms=4.5)
    axes.axhline(0, color="black", lw=0.8)
    names = ["gradient\nflow", "sign\ndescent", "Adam"]
    axes.set_xticks(range(len(DIAGONAL)), labels=names, fontsize=8)
    axes.set(
        ylabel="order: 1 largest first, −1 smallest first",
        xlim=(-0.5, len(DIAGONAL) - 0.5),
        ylim=(-1.05, 1.05),
    )


def draw_roots(axes: Axes, flow: pd.DataFrame, steps: pd.DataFrame) -> None:
    """The signed roots of the products in sign flow, and in sign descent."""
    q, own = (
        np.sign(p) * np.sqrt(np.abs(p))
        for p in (np.stack(list(flow["p"])), np.stack(list(steps["p"])))
    )
    for i in range(q.shape[1]):
        color = shade(i, q.shape[1])
        axes.plot(flow["time"], q[:, i], color=color, lw=1.2)
        axes.plot(steps["time"][::3], own[::3, i], ".", color=color, ms=3)
    axes.set(xlabel=r"$\tau$", ylabel="signed roots of the products")
    axes.plot([], [], color="black", label="sign flow, event by event")
    axes.plot(
        [],
        [],
        ".",
        color="black",
        label=f"sign descent, $10^{{{steps['log10_init_scale'].iloc[0]:g}}}$",
    )
    axes.legend(loc="upper left", fontsize=7.5)


def draw_distances(axes: Axes, distances: pd.DataFrame) -> None:
    """How far sign descent is from sign flow: the median and the worst seed.

    One distance is that of steps of the roots, the other that of steps of u and v.
    """
    for method, rows in distances.groupby("method", sort=True):
        own = where(rows, log10_init_scale=rows["log10_init_scale"].min())
        worst = own.groupby("time")["distance"].agg(["median", "max"]).clip(lower=1e-6)
        name, color = ("of the roots", BLUE) if method == "roots" else ("of u and v", ORANGE)
        axes.plot(worst.index, worst["median"], color=color, label=f"{name}, median")
        axes.plot(worst.index, worst["max"], ":", color=color, label=f"{name}, worst")
    axes.set(xlabel=r"$\tau$", ylabel="largest distance of a product", yscale="log")
    axes.legend(loc="lower right", fontsize=7.5)
