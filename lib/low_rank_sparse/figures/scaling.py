"""Sweeps: what a quantity does as one parameter varies, with fitted power laws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.style import GREENS, HINGE_COLOR, NULL_COLOR, VIRIDIS, ranged, sized

ALPHA = r"$\alpha_*$"
CONFUSION = r"$\alpha_\#$"
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
    """Batches to fit against α* and η, tails against M, samples that are needed against α*, what
    attention adds.

    `in_fit` says which trainings count for the power laws; `n_batches` is the number of the first
    batch that is fitted. The measures hold the exponents of the seeds, None where a training was
    not fitted.
    """
    figure, panels = plt.subplots(2, 3, figsize=(11.4, 6.8))
    seq_len = sweep["seq_len"].iloc[0]
    named = {"": f"{CONFUSION} = 0", "_with_confusion": f"{CONFUSION} > 0"}
    steps = f"first batch with a loss below {fitted_loss:g}"
    shades = dict(zip(named, (0.15, 0.6), strict=True))
    for suffix, label in named.items():
        rows = sweep[sweep["sweep"] == f"relevant{suffix}"]
        rows = rows.assign(x=rows["value"] / seq_len)
        slopes = measures[f"slope_of_steps_in_relevant{suffix}"]["values"]
        _power_law(panels[0][0], rows, "n_batches", slopes, label, shades[suffix])
        ranged(
            panels[1][1],
            rows,
            "x",
            "hinge_without_attention",
            color=VIRIDIS(shades[suffix]),
            marker="o",
            ms=4,
            label=label,
        )
        of = samples[samples["sweep"] == f"samples{suffix}"]
        slopes = measures[f"slope_of_samples{suffix}_in_relevant"]["values"]
        _power_law(
            panels[1][0],
            of.assign(x=of["n_relevant"] / seq_len),
            "n_needed",
            slopes,
            label,
            shades[suffix],
        )
    _ticks(panels[0][0], np.unique(sweep[sweep["varies"] == "n_relevant"]["value"] / seq_len))
    panels[0][0].set(xlabel=f"{ALPHA}, share of label-relevant tokens", ylabel=steps)
    _ticks(panels[1][0], np.unique(samples["n_relevant"] / seq_len))
    panels[1][0].set(
        xlabel=f"{ALPHA}, share of label-relevant tokens",
        ylabel=f"samples for a test hinge loss of {needed_loss:g}",
    )
    panels[1][1].set(
        xlabel=f"{ALPHA}, share of label-relevant tokens",
        ylabel="hinge loss, $W_Q, W_K$ as they began",
    )
    panels[1][1].set_ylim(bottom=0)
    panels[1][1].legend()
    rows = sweep[sweep["sweep"] == "step_size"]
    slopes = measures["slope_of_steps_in_step_size"]["values"]
    _power_law(panels[0][1], rows.assign(x=rows["value"]), "n_batches", slopes, "", 0.15)
    _ticks(panels[0][1], np.unique(rows["value"]))
    panels[0][1].set(xlabel=r"step size $\eta$", ylabel=steps)
    rows = sweep[sweep["sweep"] == "patterns"]
    for column, measure, label, shade in (
        ("W_K_next", "slope_of_third_in_patterns", r"$\sigma_3(\Delta W_K)$", 0.15),
        (
            "W_K_tail",
            "slope_of_tail_in_patterns",
            r"tail $(\sum_{i>2} \sigma_i^2)^{1/2}$ / norm",
            0.6,
        ),
    ):
        _power_law(
            panels[0][2],
            rows.assign(x=rows["value"]),
            column,
            measures[measure]["values"],
            label,
            shade,
        )
    _ticks(panels[0][2], np.unique(rows["value"]))
    panels[0][2].set(xlabel="number of patterns M", ylabel=r"of $\Delta W_K$")
    _losses_of_samples(
        panels[1][2], scored[scored["sweep"] == "samples_with_confusion"], needed_loss
    )
    figure.suptitle(
        "points: mean over seeds, least to largest; dashed: power laws, the exponents' mean and "
        "their range"
    )
    return figure


def robustness(sweep: pd.DataFrame, varied: Mapping[str, tuple[str, str]]) -> Figure:
    """Of each number that a sweep varies: the energy of all four updates in their two leading
    directions and the gap behind these, the hinge loss whole and at rank 2, and how the neurons
    part; mean over seeds, least to largest shaded. `varied` has the label of each sweep and the
    scale of its axis.
    """
    shown = {name: of for name, of in varied.items() if name in set(sweep["sweep"])}
    figure, panels = plt.subplots(
        4, len(shown), figsize=sized(2.9 * len(shown), 8.4), sharey="row", squeeze=False
    )
    for (upper, gaps, middle, lower), (name, (label, scale)) in zip(
        panels.T, shown.items(), strict=True
    ):
        rows = sweep[sweep["sweep"] == name]
        for letter, color in LETTERS.items():
            style = {"color": color, "marker": "o", "ms": 3, "label": rf"$\Delta W_{letter}$"}
            ranged(upper, rows, "value", f"W_{letter}_energy_2", **style)
            ranged(gaps, rows, "value", f"W_{letter}_gap_2", **style)
        for column, color, text in (
            ("hinge_at_rank_2", HINGE_COLOR, "updates cut to rank 2"),
            ("hinge", "black", "whole"),
        ):
            ranged(middle, rows, "value", column, color=color, marker="o", ms=3, label=text)
        ranged(
            lower,
            rows,
            "value",
            "small_share",
            color=GREENS(0.85),
            marker="o",
            ms=3,
            label="share of small neurons",
        )
        inverse = rows.assign(ratio=1 / rows["large_over_small"])
        ranged(
            lower,
            inverse,
            "value",
            "ratio",
            color=NULL_COLOR,
            marker="o",
            ms=3,
            label="norm of small / large",
        )
        for axes in (upper, gaps, middle, lower):
            axes.set_xscale(scale)
            values = np.unique(rows["value"])
            axes.set_xticks(
                values, labels=[f"{value:g}" for value in values], fontsize=7.5, rotation=60
            )
            axes.minorticks_off()
        lower.set_xlabel(label)
    panels[0][0].set(ylabel=r"$e_2$, share of the squares")
    panels[1][0].set(ylabel=r"gap, $\sigma_3 / \sigma_2$", ylim=(0, 1))
    panels[2][0].set(ylabel="test hinge loss")
    panels[3][0].set(ylabel="neurons", ylim=(0, 1))
    for line in panels:
        line[0].legend(fontsize=7.5)
    figure.suptitle("tied readout but where it is said; mean over seeds, least to largest shaded")
    return figure


def _losses_of_samples(axes: Axes, rows: pd.DataFrame, threshold: float) -> None:
    """The test loss against the number of samples, a line per share of label-relevant tokens."""
    shares = sorted(rows["n_relevant"].unique())
    floor = threshold / 100
    for i, n_relevant in enumerate(shares):
        of = rows[rows["n_relevant"] == n_relevant]
        label = f"{ALPHA} = {n_relevant / of['seq_len'].iloc[0]:g}"
        ranged(
            axes,
            of.assign(hinge=of["hinge"].clip(lower=floor)),
            "n_train",
            "hinge",
            color=VIRIDIS(0.9 * i / max(1, len(shares) - 1)),
            marker="o",
            ms=3,
            label=label,
        )
    axes.axhline(threshold, color=NULL_COLOR, ls="--", lw=1)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=f"training samples N, {CONFUSION} > 0",
        ylabel=f"test hinge loss (least {floor:g})",
    )
    _ticks(axes, np.unique(rows["n_train"]), across=False)
    axes.legend(fontsize=7)


def _ticks(axes: Axes, values: np.ndarray, *, across: bool = True) -> None:
    """Ticks at the values of the sweep, and at round numbers of what was measured, on logarithmic
    axes.
    """
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
    shade: float,
) -> None:
    """Points with their range against x, and the mean of the seeds' fits, its exponent with the
    range over seeds.

    A slope is None where a training of its seed was not fitted; a point is not drawn where none of
    its seeds was.
    """
    rows = rows[rows[column] > 0]
    by = rows.groupby("x")[column].agg(["mean", "min", "max"])
    color = VIRIDIS(shade)
    reach = [by["mean"] - by["min"], by["max"] - by["mean"]]
    axes.errorbar(
        by.index, by["mean"], reach, color=color, marker="o", ms=4.5, ls="none", capsize=3
    )
    axes.set(xscale="log", yscale="log")
    known = [slope for slope in slopes if slope is not None]
    fitted = rows[rows["in_fit"]] if "in_fit" in rows else rows
    if known and len(fitted):
        slope = float(np.mean(known))
        x = np.array(sorted(fitted["x"].unique()))
        level = np.exp((np.log(fitted[column]) - slope * np.log(fitted["x"])).mean())
        text = f"exponent {slope:.2f} [{min(known):.2f}, {max(known):.2f}]"
        axes.plot(
            x, level * x**slope, color=color, ls="--", label=f"{label}: {text}" if label else text
        )
        axes.legend(loc="upper right", fontsize=7.5)
    axes.set_ylim(top=1.6 * axes.get_ylim()[1])
