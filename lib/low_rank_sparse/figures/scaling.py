"""Sweeps: what a quantity does as one parameter varies, with fitted power laws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.low_rank_sparse.figures.panels import SEEDS, dotted, whiskers
from lib.pages.marks import where, write_beside
from lib.pages.panels import numbers_below, sized
from lib.pages.style import GREENS, ORANGE, READ_WIDTH, VIRIDIS, number_panel

ALPHA = r"$\alpha_*$"
CONFUSION = r"$\alpha_\#$"
SHARE = f"{ALPHA}, share of label-relevant tokens"
LETTERS = {"Q": VIRIDIS(0.0), "K": VIRIDIS(0.6)}
VARIED = {  # what a sweep varies, and the scale of its axis
    "noise": ("noise $c_0$ of the tokens", "linear"),
    "confusion": ("confusion tokens", "linear"),
    "patterns": ("patterns M", "linear"),
    "step_size_untied": ("step size $\\eta$, untied readout", "linear"),
    "value_error": ("error $\\sigma$ of $W_V(0)$", "linear"),
    "query_key_error": ("error $\\delta$ of $W_Q(0), W_K(0)$", "linear"),
    "batch_size": ("batch size", "log"),
    "init_scale": ("scale $\\xi$ of $W_O(0)$", "log"),
    "neurons": ("neurons m", "log"),
}
GAPS = ("noise", "confusion", "patterns", "step_size_untied")  # sweeps that move the gap
NEURONS = ("init_scale", "neurons")  # sweeps that move the norms of neurons
ROW = 0.6  # the height of a sweep's points in a row of one
LOW = 0.95  # a share below which the value of a sweep is written beside its points
COLUMNS = 3  # of the small panels


def power_laws(
    sweep: pd.DataFrame,
    samples: pd.DataFrame,
    measures: Mapping[str, Any],
    fitted_loss: float,
    needed_loss: float,
) -> Figure:
    """The batches to a fit, the tails, and the samples that are needed, with power laws.

    `in_fit` says which trainings count for the power laws; `n_batches` is the number of the first
    batch that is fitted. The measures hold the exponents of the seeds, None where a training was
    not fitted.
    """
    figure, panels = plt.subplots(2, 2, figsize=(9.6, 6.8))
    (to_fit, by_step_size), (tails, needed) = panels
    seq_len = sweep["seq_len"].iloc[0]
    steps = f"first batch with a loss below {fitted_loss:g}"
    for suffix, label, tone in (
        ("", f"{CONFUSION} = 0", 0.15),
        ("_with_confusion", f"{CONFUSION} > 0", 0.6),
    ):
        rows = where(sweep, sweep=f"relevant{suffix}")
        rows = rows.assign(x=rows["value"] / seq_len)
        slopes = _slopes(measures, "slope_of_steps", f"relevant{suffix}")
        _power_law(to_fit, rows, "n_batches", slopes, label, tone)
        of = where(samples, sweep=f"samples{suffix}")
        slopes = _slopes(measures, "slope_of_samples", f"samples{suffix}")
        _power_law(needed, of.assign(x=of["n_relevant"] / seq_len), "n_needed", slopes, label, tone)
    _ticks(to_fit, where(sweep, varies="n_relevant")["value"] / seq_len)
    to_fit.set(xlabel=SHARE, ylabel=steps)
    _ticks(needed, samples["n_relevant"] / seq_len)
    needed.set(xlabel=SHARE, ylabel=f"samples for a test hinge loss of {needed_loss:g}")
    rows = where(sweep, sweep="step_size")
    rows = rows.assign(x=rows["value"])
    _points(by_step_size, rows, "n_batches", VIRIDIS(0.15))
    decades = measures.get("slope_of_steps.step_size", {})
    for i, (least, of) in enumerate(decades.items()):
        low = float(least)
        label = rf"$\eta$ from {low:g} to {10 * low:g}"
        fitted = rows[rows["value"].between(0.999 * low, 10.01 * low)]
        _line(by_step_size, fitted, "n_batches", of["values"], label, VIRIDIS(0.15 + 0.45 * i))
    _ticks(by_step_size, rows["x"])
    by_step_size.set(xlabel=r"step size $\eta$", ylabel=steps)
    rows = where(sweep, sweep="patterns")
    rows = rows.assign(x=rows["value"])
    _power_law(tails, rows, "W_K_next", _slopes(measures, "slope_of_third"), "", 0.15)
    _ticks(tails, rows["x"])
    tails.set(xlabel="number of patterns M", ylabel=r"$\sigma_3$ of $\Delta W_K$")
    figure.suptitle(
        "points: mean over seeds, least to largest, hollow where they are not fitted\n"
        "lines: power laws, with the mean and the range of the exponents",
        fontsize=10,
    )
    return figure


def _slopes(measures: Mapping[str, Any], measure: str, sweep: str = "") -> Sequence[float | None]:
    """The exponent of each seed in a sweep; none where it was not run."""
    name = f"{measure}.{sweep}" if sweep else measure
    return measures[name]["values"] if name in measures else []


def robustness(sweep: pd.DataFrame) -> Figure:
    r"""What other data and other training change: $e_2$ in all sweeps, the rest where it moves.

    The panel on the left has the share of the squares that two directions of W_Q and W_K hold, the
    lower of both, with a row for each sweep. The panels on the right have the gap behind them, and
    how the neurons part.
    """
    shown = [name for name in VARIED if name in set(sweep["sweep"])]
    gaps = [name for name in GAPS if name in shown]
    neurons = [name for name in NEURONS if name in shown]
    small = [*gaps, *neurons]
    lines = [small[k : k + COLUMNS] for k in range(0, len(small), COLUMNS)]
    layout: Any = [["e_2"] + line + ["."] * (COLUMNS - len(line)) for line in lines] or [["e_2"]]
    widths = [1.75] + [1] * (len(layout[0]) - 1)
    figure, panels = plt.subplot_mosaic(layout, figsize=sized(READ_WIDTH, 6.2), width_ratios=widths)
    _shares_of_sweeps(panels["e_2"], sweep, shown)
    number_panel(panels["e_2"])
    for name in small:
        axes = panels[name]
        rows = where(sweep, sweep=name)
        label, scale = VARIED[name]
        if name in gaps:
            for letter in ("Q", "K"):
                style = {"label": rf"$\Delta W_{letter}$", "ms": 3}
                dotted(axes, rows, "value", f"W_{letter}_gap_2", LETTERS[letter], **style)
            axes.set_ylabel(r"gap, $\sigma_3 / \sigma_2$")
        else:
            rows = rows.assign(ratio=1 / rows["large_over_small"])
            for column, color, text in (
                ("small_share", GREENS(0.85), "share of small neurons"),
                ("ratio", ORANGE, "norm, small / large"),
            ):
                dotted(axes, rows, "value", column, color, text, ms=3)
            axes.set_ylabel("neurons")
        values = np.unique(rows["value"])
        axes.set_xscale(scale)
        numbers_below(axes, values, fontsize=7, rotation=60)
        axes.set(xlabel=label, ylim=(0, 1))
    for names in (gaps, neurons):
        for name in names[:1]:
            panels[name].legend(fontsize=7)
    figure.suptitle(f"tied readout but where it is said; points: seeds; lines: {SEEDS}")
    return figure


def _shares_of_sweeps(axes: Axes, sweep: pd.DataFrame, shown: Sequence[str]) -> None:
    """A row for each sweep, with a point per seed at each value, dark at its largest.

    A value beside its points is one at which the median share is low.
    """
    names = []
    for y, name in enumerate(shown):
        rows = where(sweep, sweep=name)
        values = np.unique(rows["value"])
        shares = rows[["W_Q_energy_2", "W_K_energy_2"]].min(axis=1)
        for i, value in enumerate(values):
            own = shares[rows["value"] == value]
            height = y + ROW * (i / max(1, len(values) - 1) - 0.5)
            look = {"color": GREENS(i / max(1, len(values) - 1)), "ms": 4.5}
            axes.plot(own, np.full(len(own), height), "o", **look)
            if own.median() < LOW:
                write_beside(axes, f"{value:g}", (own.median(), height), (0, 6), fontsize=8)
        ends = f"{values[0]:g} to {values[-1]:g}"
        names.append(f"{VARIED[name][0]},\n{ends}")
    axes.set_yticks(range(len(shown)), labels=names, fontsize=8)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set(xlabel="$e_2$: share of the squares in two directions", xlim=(None, 1))
    axes.set_title("light: the least value of a row, dark: the largest", fontsize=9)


def _ticks(axes: Axes, at: pd.Series) -> None:
    """Set ticks of logarithmic axes at the values of a sweep, and at round numbers of the other."""
    numbers_below(axes, np.unique(at), ".3g", fontsize=8)
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
    """The points of a sweep, and the power law of those that count."""
    color = VIRIDIS(tone)
    _points(axes, rows, column, color)
    fitted = rows[rows["in_fit"]] if "in_fit" in rows else rows
    _line(axes, fitted, column, slopes, label, color)


def _points(axes: Axes, rows: pd.DataFrame, column: str, color: Any) -> None:
    """The mean over the seeds at each x with its range, hollow where it does not count for a fit.

    A point is not drawn where no seed was fitted.
    """
    rows = rows[rows[column] > 0]
    counts = rows["in_fit"] if "in_fit" in rows else pd.Series(True, rows.index)
    for of, face in ((rows[counts], color), (rows[~counts], "white")):
        if len(of):
            by = of.groupby("x")[column].agg(["mean", "min", "max"])
            style: Any = {"color": color, "mfc": face, "marker": "o", "ms": 4.5}
            axes.errorbar(by.index, by["mean"], whiskers(by), ls="none", capsize=3, **style)
    axes.set(xscale="log", yscale="log")
    axes.set_ylim(top=1.6 * axes.get_ylim()[1])


def _line(
    axes: Axes,
    fitted: pd.DataFrame,
    column: str,
    slopes: Sequence[float | None],
    label: str,
    color: Any,
) -> None:
    """The mean of the seeds' power laws, with its exponents.

    A slope is None where a training of its seed was not fitted.
    """
    fitted = fitted[fitted[column] > 0]
    known = [slope for slope in slopes if slope is not None]
    if known and len(fitted):
        slope = float(np.mean(known))
        x = np.array(sorted(fitted["x"].unique()))
        level = np.exp((np.log(fitted[column]) - slope * np.log(fitted["x"])).mean())
        text = f"exponent {slope:.2f} [{min(known):.2f}, {max(known):.2f}]"
        named = f"{label}: {text}" if label else text
        axes.plot(x, level * x**slope, color=color, label=named)
        axes.legend(loc="upper right", fontsize=7.5)
