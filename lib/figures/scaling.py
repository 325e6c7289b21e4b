"""Sweeps: what a quantity does as one parameter varies, with fitted power laws."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.figures.style import VIRIDIS, band

ALPHA, CONFUSION = r"$\alpha_*$", r"$\alpha_\#$"


def sweeps(table: pd.DataFrame, measures: dict[str, dict[str, list]]) -> Figure:
    """Steps to fit against α* and η, tails against M, c₀ and α#, neurons against m; mean ± sd over seeds.

    `in_fit` says which trainings count for the power laws.
    """
    figure, panels = plt.subplots(2, 3, figsize=(11, 6.6))
    seq_len = table["seq_len"].iloc[0]
    steps = [
        ("relevant", f"{CONFUSION} = 0", "slope_of_steps_in_relevant", 0.15),
        ("relevant_with_confusion", f"{CONFUSION} = 1/{seq_len}", "slope_of_steps_in_relevant_with_confusion", 0.6),
    ]
    for name, label, measure, shade in steps:
        rows = table[(table["sweep"] == name) & (table["fitted_step"] > 0)]
        _power_law(
            panels[0][0],
            rows.assign(value=rows["value"] / seq_len),
            "fitted_step",
            measures[measure]["values"],
            label,
            shade,
        )
    _ticks(panels[0][0], np.union1d(*(table[table["sweep"] == name]["value"] / seq_len for name, *_ in steps)))
    panels[0][0].set(xlabel=f"{ALPHA}, share of label-relevant tokens", ylabel="step at which the loss < 0.01")
    rows = table[table["sweep"] == "step_size"]
    _power_law(panels[0][1], rows, "fitted_step", measures["slope_of_steps_in_step_size"]["values"], "", 0.15)
    _ticks(panels[0][1], np.unique(rows["value"]))
    panels[0][1].set(xlabel=r"step size $\eta$", ylabel="step at which the loss < 0.01")
    rows = table[table["sweep"] == "patterns"]
    for column, measure, label, shade in (
        ("W_K_next", "slope_of_third_in_patterns", r"$\sigma_3(\Delta W_K)$", 0.15),
        ("W_K_tail", "slope_of_tail_in_patterns", r"tail $(\sum_{i>2} \sigma_i^2)^{1/2}$ / norm", 0.6),
    ):
        _power_law(panels[0][2], rows, column, measures[measure]["values"], label, shade)
    _ticks(panels[0][2], np.unique(rows["value"]))
    panels[0][2].set(xlabel="number of patterns M", ylabel=r"of $\Delta W_K$")
    for axes, name, label in (
        (panels[1][0], "noise", "noise $c_0$ of the tokens"),
        (panels[1][1], "confusion", f"{CONFUSION}, share of confusion tokens (α$_*$ = 6/{seq_len})"),
    ):
        rows = table[table["sweep"] == name]
        if name == "confusion":
            rows = rows.assign(value=rows["value"] / seq_len)
        lines = [("W_K_tail", r"tail of $\Delta W_K$ / norm"), ("W_K_gap", r"$\sigma_3 / \sigma_2$ of $\Delta W_K$"),
                 ("hinge", "test hinge loss"), ("hinge_at_rank_2", "the same, updates cut to rank 2")]  # fmt: skip
        for i, (column, text) in enumerate(lines):
            by = rows.groupby("value")[column].agg(["mean", "std"]).fillna(0)
            band(axes, by.index, by["mean"], by["std"], color=VIRIDIS(0.28 * i), marker="o", ms=3.5, label=text,
                 ls="-" if i < 3 else ":")  # fmt: skip
        axes.set(xlabel=label, ylim=(-0.02, None))
    panels[1][0].legend(loc="upper left")
    rows = table[table["sweep"] == "neurons"]
    axes = panels[1][2]
    for column, text, shade in (
        ("small_share", "share of small neurons (Otsu)", 0.15),
        ("W_K_gap", r"$\sigma_3 / \sigma_2$ of $\Delta W_K$", 0.4),
        ("hinge", "test hinge loss", 0.7),
    ):
        by = rows.groupby("value")[column].agg(["mean", "std"]).fillna(0)
        band(axes, by.index, by["mean"], by["std"], color=VIRIDIS(shade), marker="o", ms=3.5, label=text)
    axes.set(xscale="log", xlabel="number of neurons m", ylim=(-0.02, None))
    axes.set_xticks(np.unique(rows["value"]), labels=[f"{value:g}" for value in np.unique(rows["value"])])
    axes.minorticks_off()
    axes.legend(loc="upper right")
    figure.suptitle("tied readout; points: mean ± sd over seeds; dashed: power laws, exponents mean ± sd over seeds")
    return figure


def _ticks(axes: Axes, values: np.ndarray) -> None:
    """Ticks at the values of the sweep, and at round numbers of what was measured, on logarithmic axes."""
    axes.set_xticks(values, labels=[f"{value:.2g}" for value in values], fontsize=8)
    low, high = axes.get_ylim()
    round_numbers = [digit * 10.0**power for power in range(-4, 5) for digit in (1, 2, 5)]
    shown = [number for number in round_numbers if low <= number <= high]
    axes.set_yticks(shown, labels=[f"{number:g}" for number in shown])
    axes.minorticks_off()


def _power_law(axes: Axes, rows: pd.DataFrame, column: str, slopes: list[float], label: str, shade: float) -> None:
    """Points with their spread, and the mean of the seeds' fits, its exponent with its standard deviation."""
    by = rows.groupby("value")[column].agg(["mean", "std"]).fillna(0)
    color = VIRIDIS(shade)
    axes.errorbar(by.index, by["mean"], by["std"], color=color, marker="o", ms=4.5, ls="none", capsize=3)
    fitted = rows[rows["in_fit"]]
    x = np.array(sorted(fitted["value"].unique()))
    slopes = [slope for slope in slopes if slope is not None]  # null where a training was not fitted
    slope = float(np.mean(slopes)) if slopes else float("nan")
    level = np.exp((np.log(fitted[column]) - slope * np.log(fitted["value"])).mean())
    deviation = float(np.std(slopes, ddof=1)) if len(slopes) > 1 else 0.0
    text = f"exponent {slope:.2f} ± {deviation:.2f}"
    axes.plot(x, level * x**slope, color=color, ls="--", label=f"{label}: {text}" if label else text)
    axes.set(xscale="log", yscale="log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 1.6)
    axes.legend(loc="upper right")
