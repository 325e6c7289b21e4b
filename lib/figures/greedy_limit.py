"""How close gradient flow is to its greedy limit (Theorem 4.5 of Boix-Adserà et al. 2023), and what it forecasts."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from lib.figures.style import INITIAL_COLOR, MATRIX_COLORS, NULL_COLOR, VIRIDIS, band

LIMIT, FINITE, LARGE = MATRIX_COLORS["W_KQ"], MATRIX_COLORS["W_VO"], "#2f855a"


def errors_by_scale(
    small: pd.DataFrame, large: pd.DataFrame, name: str, large_name: str, log10_init_scale: float
) -> Figure:
    """Times, order, plateaus and final products against the init scale; one line per seed, the large head in green.

    The law, C / log(1 / init scale), is that of the small head from this init scale on.
    """
    figure, panels = plt.subplots(1, 4, figsize=(14.2, 3.7))
    times, order, plateaus, products = panels
    _by_seed(times, small, "time_error_median", LIMIT, f"Algorithm 1, {name}")
    _by_seed(times, small, "finite_error_median", FINITE, f"finite-scale form, {name}")
    _by_seed(times, large, "time_error_median", LARGE, f"Algorithm 1, {large_name}", marker="D")
    _by_seed(times, large, "finite_error_median", "#9ae6b4", f"finite-scale form, {large_name}", marker="D")
    tiny = small[small["log10_init_scale"] <= log10_init_scale]
    constant = float((tiny["time_error_median"] * tiny["log_scale"]).median())
    logs = np.geomspace(2.3, max(small["log_scale"].max(), large["log_scale"].max()), 50)
    times.plot(logs / np.log(10), constant / logs, "--", color="black", lw=1.2,
               label=f"C / log(1 / init scale), C = {constant:.2f}")  # fmt: skip
    times.set(yscale="log", ylabel="error of activation times, median")
    _by_seed(order, small, "order_agreement", LIMIT)
    _by_seed(order, large, "order_agreement", LARGE, marker="D")
    order.axhline(1, color="black", ls="--", lw=1.2)
    order.set(ylabel="agreement of the order, Kendall's τ", ylim=(None, 1.03))
    _by_seed(plateaus, small, "plateau_loss_error", LIMIT)
    _by_seed(plateaus, large, "plateau_loss_error", LARGE, marker="D")
    plateaus.set(yscale="log", ylabel="loss error at mid-plateau / loss at 0")
    _by_seed(products, small, "final_product_error", LIMIT)
    products.set(yscale="log", ylabel=f"error of the final products ({name})")
    for axes in panels:
        axes.set(xscale="log", xlabel="init scale")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"$10^{{-{x:.0f}}}$"))
        axes.set_xticks([1, 2, 4, 8, 16, 32, 64] + ([300] if axes is not products else []))
        axes.minorticks_off()
        axes.tick_params(axis="x", labelsize=6.5)
    figure.legend(*times.get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def ranks_by_budget(ranks: pd.DataFrame, forecast: pd.DataFrame, seed: int) -> Figure:
    """How many directions a budget of time learns: forecast from the start alone, in the limit, and measured."""
    scales = [s for s in sorted(ranks["log10_init_scale"].unique(), reverse=True) if s <= -2]
    chosen = [scales[0], scales[len(scales) // 2], scales[-1]] if len(scales) > 3 else scales
    own = sorted(forecast["log10_init_scale"].unique(), reverse=True)
    columns = max(len(chosen), len(own), 1)
    figure, panels = plt.subplots(2, columns + 1, figsize=(3.3 * (columns + 1), 6.2), squeeze=False)
    for axes in panels[:, :-1].flat:
        axes.axis("off")
    for axes, scale in zip(panels[0], chosen, strict=False):
        rows = ranks[(ranks["log10_init_scale"] == scale) & (ranks["seed"] == seed)]
        _staircase(axes, rows, "rescaled_time", {"measured": "measured", "finite": "forecast, finite scale",
                                                 "limit": "Algorithm 1, the limit"})  # fmt: skip
        axes.set(title=f"head from 0, init scale $10^{{{scale:g}}}$", xlabel="time / log(1 / init scale)")
    for axes, scale in zip(panels[1], own, strict=False):
        rows = forecast[(forecast["log10_init_scale"] == scale) & (forecast["seed"] == seed)]
        _staircase(axes, rows, "time", {"measured": "measured", "forecast": "forecast, finite scale"})
        axes.set(title=f"adapter (v = 0), init scale $10^{{{scale:g}}}$", xlabel="time t of the flow")
    for row in panels:
        row[0].set_ylabel("rank: products above the threshold")
        row[0].legend(loc="lower right", fontsize=7.5)
    sources = (("limit", ranks, "limit", NULL_COLOR), ("finite scale", ranks, "finite", FINITE))
    log_scale = np.empty(0)
    for axes, listed in ((panels[0][-1], sources), (panels[1][-1], (("finite scale", forecast, "forecast", FINITE),))):
        for label, table, column, color in listed:
            gap = (table[column] - table["measured"]).abs()
            means = gap.groupby([table["log10_init_scale"], table["seed"]]).mean().groupby(level=0)
            log_scale = -np.array(sorted(table["log10_init_scale"].unique(), reverse=True))
            mean, sd = (getattr(means, f)().sort_index(ascending=False).to_numpy() for f in ("mean", "std"))
            band(axes, log_scale, mean, np.nan_to_num(sd), color=color, marker="o", ms=3.5, label=label)
        axes.set(xscale="log", xlabel="init scale", ylabel="mean |forecast − measured rank|", ylim=(0, None))
        axes.set_xticks(log_scale, labels=[f"$10^{{-{x:g}}}$" for x in log_scale])
        axes.minorticks_off()
        axes.set_title("error, mean ± sd over seeds")
        axes.legend()
    return figure


def descents_beside_the_flow(descents: pd.DataFrame, stages: pd.DataFrame, drop: pd.DataFrame) -> Figure:
    """Gradient descent in three arithmetics: its error, how close to the edge it runs, where one is lost."""
    figure, (error, edge, example) = plt.subplots(
        1, 3, figsize=(14.2, 3.9), width_ratios=[1, 1.1, 1.5], layout="constrained"
    )
    kinds = list(dict.fromkeys(zip(descents["form"], descents["share_of_limit"], strict=True)))
    for y, (form, share) in enumerate(reversed(kinds)):
        rows = descents[(descents["form"] == form) & (descents["share_of_limit"] == share)]
        error.plot(rows["time_error"], np.full(len(rows), y), "o", color=LIMIT, ms=5)
    error.set_yticks(
        range(len(kinds)), labels=[f"{form}, {share:g} of the limit" for form, share in reversed(kinds)], fontsize=8
    )
    error.set(xscale="log", xlabel="error of activation times, median", ylim=(-0.5, len(kinds) - 0.5))
    scale = descents["log10_init_scale"].iloc[0]
    error.set_title(f"descent from $10^{{{scale:g}}}$, one point per seed", fontsize=9)
    form, share = max(kinds, key=lambda kind: kind[1])
    for i, seed in enumerate(sorted(descents["seed"].unique())):
        own = stages[(stages["seed"] == seed) & (stages["stage"] > 0)]
        row = descents[(descents["form"] == form) & (descents["share_of_limit"] == share) & (descents["seed"] == seed)]
        ratio = row["learning_rate"].iloc[0] / own["learning_rate_limit"]
        edge.step(own["stage"], ratio, where="mid", color=VIRIDIS(0.2 + 0.5 * i), label=f"seed {seed}")
    edge.axhline(1, color=INITIAL_COLOR, ls="--", lw=1.2, label="unstable above")
    edge.set(xlabel="stage", ylabel="learning rate / its limit on the plateau", ylim=(0, 1.08))
    edge.set_title(f"one rate, {share:g} of the least limit", fontsize=9)
    edge.legend(loc="lower right", fontsize=7.5)
    _example(example, drop)
    return figure


def _example(axes: Axes, drop: pd.DataFrame) -> None:
    methods = list(dict.fromkeys(zip(drop["method"], drop["log10_init_scale"], strict=True)))
    markers = {0: ("s", "coordinate 1 joins"), 1: ("^", "coordinate 2 joins"), 2: ("o", "coordinate 3 joins")}
    for y, (method, scale) in enumerate(reversed(methods)):
        rows = drop[(drop["method"] == method) & (drop["log10_init_scale"] == scale)]
        for row in rows.itertuples():
            if row.lost:
                axes.plot(row.rescaled_time, y, "x", color=INITIAL_COLOR, ms=7, mew=1.8)
            else:
                marker = markers[row.coordinate][0]
                negative = row.sign < 0
                axes.plot(row.rescaled_time, y, marker, color=FINITE if negative else LIMIT, ms=5)
    truth = drop[(drop["method"] == "Algorithm 1") & (drop["sign"] < 0)]["rescaled_time"]
    for time in truth:
        axes.axvline(time, color="black", ls="--", lw=1)
    for marker, label in markers.values():
        axes.plot([], [], marker, color=LIMIT, ls="", ms=5, label=label)
    axes.plot([], [], "o", color=FINITE, ls="", ms=5, label="coordinate 3 joins with the other sign")
    axes.plot([], [], "x", color=INITIAL_COLOR, ls="", ms=7, mew=1.8, label="lost to rounding, by our detector")
    labels = [m if np.isinf(s) else f"{m}, $10^{{{s:g}}}$" for m, s in reversed(methods)]
    axes.set_yticks(range(len(methods)), labels=labels, fontsize=7)
    axes.set(xscale="log", xlabel="time / log(1 / init scale)", ylim=(-0.6, len(methods) - 0.4))
    axes.set_title("three coordinates, the third leaves and returns", fontsize=9)
    axes.figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5)


def _by_seed(
    axes: Axes, table: pd.DataFrame, column: str, color: str, label: str | None = None, marker: str = "o"
) -> None:
    """One thin line per seed, and the median over the seeds, against log10(1 / init scale)."""
    wide = table.pivot_table(index="log10_init_scale", columns="seed", values=column).sort_index(ascending=False)
    wide = wide.dropna(how="all")
    wide.index = -wide.index
    if wide.shape[1] > 1:
        axes.plot(wide.index, wide, color=color, lw=0.6, alpha=0.4)
    axes.plot(wide.index, wide.median(axis=1), f"{marker}-", ms=4, color=color, label=label)


def _staircase(axes: Axes, rows: pd.DataFrame, time: str, columns: dict[str, str]) -> None:
    looks = {
        "measured": {"color": LIMIT, "lw": 1.8},
        "finite": {"color": FINITE, "ls": "--", "lw": 1.4},
        "forecast": {"color": FINITE, "ls": "--", "lw": 1.4},
        "limit": {"color": NULL_COLOR, "ls": ":", "lw": 1.4},
    }
    axes.axis("on")
    for column, label in columns.items():
        axes.step(rows[time], rows[column], where="post", label=label, **looks[column])
    axes.set_ylim(0, None)
