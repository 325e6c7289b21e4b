"""How many samples are needed, against the share of label-relevant tokens."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from lib.low_rank_sparse.figures.scaling import SHARE
from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import where
from lib.pages.panels import numbers_below
from lib.pages.style import BOUND_COLOR, NULL_COLOR, READ_WIDTH, VIRIDIS, number_panel

SHOWN = {  # the sweeps, with their names, colours and markers
    "alone": ("no confusion token", VIRIDIS(0.15), "o"),
    "confused": ("one confusion token", VIRIDIS(0.6), "s"),
}
ORDER = -2  # of the number that is enough


def samples_against_share(
    needed: pd.DataFrame,
    local: pd.DataFrame,
    threshold: float,
    whole: Mapping[str, pd.Series],
    bar: Bar,
) -> Figure:
    r"""The number needed at each share, and the power of the share, between neighbouring shares and
    from the least to the largest one.

    Points are geometric means and means over seeds, and bars are their 95 % intervals (Student's
    t). Hollow points are nulls, with W_Q and W_K as they began. `whole` has the power from the
    least to the largest share of each sweep, by seed: the mean of these has to meet the bar.
    """
    figure, (numbers, exponents, powers) = plt.subplots(
        1, 3, figsize=(READ_WIDTH, 4.2), width_ratios=[1.15, 1.15, 1]
    )
    exponents.sharex(numbers)
    for name, (label, color, marker) in SHOWN.items():
        for sweep, style in (
            (name, {"color": color, "mfc": color, "ls": "-", "lw": 1, "label": label}),
            (f"{name}_untrained_attention", {"color": NULL_COLOR, "mfc": "white", "ls": "none"}),
        ):
            of = where(needed, sweep=sweep)
            table = of.pivot_table(index="share", columns="seed", values="n_needed")
            logs = table.apply(np.log)
            style |= {"marker": marker, "ms": 5, "capsize": 3}
            middle, error = _interval(logs)
            low, high = np.exp(middle - error), np.exp(middle + error)
            at = np.exp(middle)
            numbers.errorbar(middle.index, at, [at - low, high - at], **style)
        of = where(local, sweep=name)
        middle, error = _interval(of.pivot_table(index="share", columns="seed", values="exponent"))
        style = {"color": color, "marker": marker, "ms": 5, "capsize": 3, "lw": 1, "label": label}
        exponents.errorbar(middle.index, middle, error, **style)
    shares = np.unique(needed["share"])
    alone = where(needed, sweep="alone")
    level = np.exp(np.log(alone["n_needed"] * alone["share"] ** -ORDER).mean())
    style = {"color": BOUND_COLOR, "ls": "--", "lw": 1}
    numbers.plot(shares, level * shares**ORDER, **style, label="the power −2")
    numbers.plot(
        [], [], color=NULL_COLOR, marker="o", mfc="white", ls="none", label="untrained attention"
    )
    exponents.axhline(ORDER, **style)
    numbers.set(
        xscale="log", yscale="log", ylabel=f"samples for a test hinge loss of {threshold:g}"
    )
    ticks = [2, 5, 10, 20, 50, 100, 200]
    numbers.set_yticks(ticks, labels=list(map(str, ticks)))
    exponents.set(xscale="log", ylabel="power between neighbouring shares")
    for axes in (numbers, exponents):
        numbers_below(axes, shares, ".3g", fontsize=8, rotation=60)
        axes.minorticks_off()
        axes.set_xlabel(SHARE)
    numbers.legend(fontsize=8)
    _whole_powers(powers, whole, bar)
    return figure


def _whole_powers(axes: Axes, whole: Mapping[str, pd.Series], bar: Bar) -> None:
    """The power over all shares: a point for each seed, and a line at the mean of a sweep."""
    style: dict[str, Any]
    for place, (name, (_, color, marker)) in enumerate(SHOWN.items()):
        for sweep, x, style in (
            (name, place - 0.15, {"color": color, "mfc": color}),
            (f"{name}_untrained_attention", place + 0.15, {"color": NULL_COLOR, "mfc": "white"}),
        ):
            values = whole[sweep].to_numpy(float)
            axes.plot(np.full(len(values), x), values, marker, ms=5, **style)
            axes.hlines(values.mean(), x - 0.11, x + 0.11, color="black", lw=2)
    axes.plot([], [], color="black", lw=2, label="mean of the seeds")
    draw_bar(axes, bar, label=f"{bar.words()} (mean)")
    labels = [label.replace(" ", "\n", 1) for label, _, _ in SHOWN.values()]
    axes.set_xticks(range(len(SHOWN)), labels=labels)
    axes.set(xlim=(-0.6, len(SHOWN) - 0.4), ylabel="power of the share, over all shares")
    axes.legend(fontsize=8, loc="lower left")
    number_panel(axes)


def _interval(by_seed: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The mean of each row, and how far its 95 % interval reaches."""
    n = by_seed.notna().sum(axis=1)
    error = by_seed.sem(axis=1) * stats.t.ppf(0.975, (n - 1).clip(lower=1))
    return by_seed.mean(axis=1), error
