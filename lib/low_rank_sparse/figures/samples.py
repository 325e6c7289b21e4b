"""How many samples are needed, against the share of label-relevant tokens."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from lib.low_rank_sparse.figures.panels import where
from lib.low_rank_sparse.figures.scaling import SHARE
from lib.pages.style import BOUND_COLOR, NULL_COLOR, VIRIDIS

SHOWN = {  # the sweeps, with their names, colours and markers
    "alone": ("no confusion token", VIRIDIS(0.15), "o"),
    "confused": ("one confusion token", VIRIDIS(0.6), "s"),
}
ORDER = -2  # of the number that is enough


def samples_against_share(needed: pd.DataFrame, local: pd.DataFrame, threshold: float) -> Figure:
    r"""The number needed at each share, and the exponents between neighbouring shares.

    Points are geometric means and means over seeds, and bars are their 95 % intervals (Student's
    t). Hollow points are nulls, with W_Q and W_K as they began.
    """
    figure, (numbers, exponents) = plt.subplots(1, 2, figsize=(9.6, 4.2), sharex=True)
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
    numbers.plot(shares, level * shares**ORDER, **style, label="exponent −2")
    numbers.plot(
        [], [], color=NULL_COLOR, marker="o", mfc="white", ls="none", label="untrained attention"
    )
    exponents.axhline(ORDER, **style)
    numbers.set(
        xscale="log", yscale="log", ylabel=f"samples for a test hinge loss of {threshold:g}"
    )
    ticks = [2, 5, 10, 20, 50, 100, 200]
    numbers.set_yticks(ticks, labels=list(map(str, ticks)))
    exponents.set(xscale="log", ylabel="exponent between neighbouring shares")
    for axes in (numbers, exponents):
        axes.set_xticks(
            shares, labels=[f"{share:.3g}" for share in shares], fontsize=8, rotation=60
        )
        axes.minorticks_off()
        axes.set_xlabel(SHARE)
    numbers.legend(fontsize=8)
    return figure


def _interval(by_seed: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """The mean of each row, and how far its 95 % interval reaches."""
    n = by_seed.notna().sum(axis=1)
    error = by_seed.sem(axis=1) * stats.t.ppf(0.975, (n - 1).clip(lower=1))
    return by_seed.mean(axis=1), error
