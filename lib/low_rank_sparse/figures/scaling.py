"""Sweeps: what a quantity does as one parameter varies, with fitted power laws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.low_rank_sparse.figures.panels import SEEDS, dotted, grid, shade, where, whiskers
from lib.pages.style import GREENS, HINGE_COLOR, NULL_COLOR, VIRIDIS, sized

ALPHA = r"$\alpha_*$"
CONFUSION = r"$\alpha_\#$"
SHARE = f"{ALPHA}, share of label-relevant tokens"
LETTERS = {"Q": VIRIDIS(0.0), "K": VIRIDIS(0.35), "V": VIRIDIS(0.65), "O": VIRIDIS(0.88)}
DATA = {
    "noise": ("noise $c_0$ of the tokens", "linear"),
    "confusion": ("confusion tokens", "linear"),
    "patterns": ("patterns M", "linear"),
    "value_error": (r"$\sigma$, error of $W_V(0)$", "linear"),
    "query_key_error": (r"$\delta$, error of $W_Q(0), W_K(0)$", "linear"),
}
TRAINING = {
    "init_scale": (r"$\xi$, scale of $W_O(0)$", "log"),
    "neurons": ("neurons m", "log"),
    "batch_size": ("batch size", "log"),
    "step_size_untied": (r"step size $\eta$, untied readout", "linear"),
}


def power_laws(
    sweep: pd.DataFrame,
    scored: pd.DataFrame,
    samples: pd.DataFrame,
    measures: dict[str, Any],
    fitted_loss: float,
    needed_loss: float,
) -> Figure:
    """Batches to fit, tails, samples that are needed, and what attention adds; with power laws.

    `in_fit` says which trainings count for the power laws; `n_batches` is the number of the first
    batch that is fitted. The measures hold the exponents of the seeds, None where a training was
    not fitted.
    """
    figure, panels = plt.subplots(2, 3, figsize=(11.4, 6.8))
    (to_fit, by_step_size, tails), (needed, without_attention, losses) = panels
    seq_len = sweep["seq_len"].iloc[0]
    steps = f"first batch with a loss below {fitted_loss:g}"
    for suffix, label, tone in (
        ("", f"{CONFUSION} = 0", 0.15),
        ("_with_confusion", f"{CONFUSION} > 0", 0.6),
    ):
        rows = where(sweep, sweep=f"relevant{suffix}")
        rows = rows.assign(x=rows["value"] / seq_len)
        slopes = measures[f"slope_of_steps_in_relevant{suffix}"]["values"]
        _power_law(to_fit, rows, "n_batches", slopes, label, tone)
        dotted(without_attention, rows, "x", "hinge_without_attention", VIRIDIS(tone), label)
        of = where(samples, sweep=f"samples{suffix}")
        slopes = measures[f"slope_of_samples{suffix}_in_relevant"]["values"]
        _power_law(needed, of.assign(x=of["n_relevant"] / seq_len), "n_needed", slopes, label, tone)
    _ticks(to_fit, where(sweep, varies="n_relevant")["value"] / seq_len)
    to_fit.set(xlabel=SHARE, ylabel=steps)
    _ticks(needed, samples["n_relevant"] / seq_len)
    needed.set(xlabel=SHARE, ylabel=f"samples for a test hinge loss of {needed_loss:g}")
    without_attention.set(xlabel=SHARE, ylabel="hinge loss, $W_Q, W_K$ as they began")
    without_attention.set_ylim(bottom=0)
    without_attention.legend()
    rows = where(sweep, sweep="step_size")
    rows = rows.assign(x=rows["value"])
    slopes = measures["slope_of_steps_in_step_size"]["values"]
    _power_law(by_step_size, rows, "n_batches", slopes, "", 0.15)
    _ticks(by_step_size, rows["x"])
    by_step_size.set(xlabel=r"step size $\eta$", ylabel=steps)
    rows = where(sweep, sweep="patterns")
    rows = rows.assign(x=rows["value"])
    slopes = measures["slope_of_third_in_patterns"]["values"]
    _power_law(tails, rows, "W_K_next", slopes, r"$\sigma_3(\Delta W_K)$", 0.15)
    slopes = measures["slope_of_tail_in_patterns"]["values"]
    _power_law(tails, rows, "W_K_tail", slopes, r"tail $(\sum_{i>2} \sigma_i^2)^{1/2}$ / norm", 0.6)
    _ticks(tails, rows["x"])
    tails.set(xlabel="number of patterns M", ylabel=r"of $\Delta W_K$")
    _losses_of_samples(losses, where(scored, sweep="samples_with_confusion"), needed_loss)
    figure.suptitle(
        "points: mean over seeds, least to largest; dashed: power laws, the exponents' mean and "
        "their range"
    )
    return figure


def robustness(sweep: pd.DataFrame, varied: Mapping[str, tuple[str, str]]) -> Figure:
    """Of each number that a sweep varies: energies and gaps of updates, losses, and the neurons.

    The energy of all four updates in their two leading directions and the gap behind these, the
    hinge loss whole and at rank 2, and how the neurons part. `varied` has the label of each sweep
    and the scale of its axis.
    """
    shown = {name: of for name, of in varied.items() if name in set(sweep["sweep"])}
    size = sized(2.9 * len(shown), 8.4)
    figure, panels = grid(4, len(shown), size, sharey="row")
    for column, (name, (label, scale)) in zip(panels.T, shown.items(), strict=True):
        energies, gaps, losses, neurons = column
        rows = where(sweep, sweep=name)
        rows = rows.assign(ratio=1 / rows["large_over_small"])
        for letter, color in LETTERS.items():
            update = rf"$\Delta W_{letter}$"
            dotted(energies, rows, "value", f"W_{letter}_energy_2", color, update, ms=3)
            dotted(gaps, rows, "value", f"W_{letter}_gap_2", color, update, ms=3)
        cut = "updates cut to rank 2"
        dotted(losses, rows, "value", "hinge_at_rank_2", HINGE_COLOR, cut, ms=3)
        dotted(losses, rows, "value", "hinge", "black", "whole", ms=3)
        small = "share of small neurons"
        dotted(neurons, rows, "value", "small_share", GREENS(0.85), small, ms=3)
        dotted(neurons, rows, "value", "ratio", NULL_COLOR, "norm of small / large", ms=3)
        values = np.unique(rows["value"])
        labels = [f"{value:g}" for value in values]
        for axes in column:
            axes.set_xscale(scale)
            axes.set_xticks(values, labels=labels, fontsize=7.5, rotation=60)
            axes.minorticks_off()
        neurons.set_xlabel(label)
    panels[0][0].set(ylabel=r"$e_2$, share of the squares")
    panels[1][0].set(ylabel=r"gap, $\sigma_3 / \sigma_2$", ylim=(0, 1))
    panels[2][0].set(ylabel="test hinge loss")
    panels[3][0].set(ylabel="neurons", ylim=(0, 1))
    for line in panels:
        line[0].legend(fontsize=7.5)
    figure.suptitle(f"tied readout but where it is said; {SEEDS}")
    return figure


def _losses_of_samples(axes: Axes, rows: pd.DataFrame, threshold: float) -> None:
    """The test loss against the number of samples, a line per share of label-relevant tokens."""
    shares = sorted(rows["n_relevant"].unique())
    floor = threshold / 100
    rows = rows.assign(hinge=rows["hinge"].clip(lower=floor))
    for i, n_relevant in enumerate(shares):
        of = where(rows, n_relevant=n_relevant)
        label = f"{ALPHA} = {n_relevant / of['seq_len'].iloc[0]:g}"
        dotted(axes, of, "n_train", "hinge", shade(i, len(shares)), label, ms=3)
    axes.axhline(threshold, color=NULL_COLOR, ls="--", lw=1)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=f"training samples N, {CONFUSION} > 0",
        ylabel=f"test hinge loss (least {floor:g})",
    )
    _ticks(axes, rows["n_train"], across=False)
    axes.legend(fontsize=7)


def _ticks(axes: Axes, at: pd.Series, *, across: bool = True) -> None:
    """Logarithmic axes: ticks at the values of a sweep, and at round numbers of the other axis."""
    values = np.unique(at)
    axes.set_xticks(values, labels=[f"{value:.3g}" for value in values], fontsize=8)
    if across:
        low, high = axes.get_ylim()
        round_numbers = [digit * 10.0**power for power in range(-6, 7) for digit in (1, 2, 5)]
        shown = [number for number in round_numbers if low <= number <= high]
        axes.set_yticks(shown, labels=[f"{number:g}" for number in shown])
    axes.minorticks_off()


def _power_law(
    axes: Axes,
    rows: pd.DataFrame,
    column: str,
    slopes: Sequence[float | None],
    label: str,
    tone: float,
) -> None:
    """Points with their range against x, and the mean of the seeds' fits with its exponents.

    A slope is None where a training of its seed was not fitted; a point is not drawn where none of
    its seeds was.
    """
    rows = rows[rows[column] > 0]
    by = rows.groupby("x")[column].agg(["mean", "min", "max"])
    color = VIRIDIS(tone)
    style: Any = {"color": color, "marker": "o", "ms": 4.5, "ls": "none", "capsize": 3}
    axes.errorbar(by.index, by["mean"], whiskers(by), **style)
    axes.set(xscale="log", yscale="log")
    known = [slope for slope in slopes if slope is not None]
    fitted = rows[rows["in_fit"]] if "in_fit" in rows else rows
    if known and len(fitted):
        slope = float(np.mean(known))
        x = np.array(sorted(fitted["x"].unique()))
        level = np.exp((np.log(fitted[column]) - slope * np.log(fitted["x"])).mean())
        text = f"exponent {slope:.2f} [{min(known):.2f}, {max(known):.2f}]"
        named = f"{label}: {text}" if label else text
        axes.plot(x, level * x**slope, color=color, ls="--", label=named)
        axes.legend(loc="upper right", fontsize=7.5)
    axes.set_ylim(top=1.6 * axes.get_ylim()[1])
