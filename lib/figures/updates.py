"""The singular values of updates of whole matrices, and where their leading directions lie."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import GREENS, INITIAL_COLOR, NULL_COLOR, VIRIDIS, band


def singular_values_of_steps(spectra: pd.DataFrame, matrix: str, steps: list[int]) -> Figure:
    """Figure 2: the singular values of a matrix's update at several steps; mean ± sd over seeds."""
    configurations = sorted(spectra["configuration"].unique())
    figure, panels = plt.subplots(
        1, len(configurations), figsize=(4.4 * len(configurations), 3.5), sharey=True, squeeze=False
    )
    for axes, configuration in zip(panels[0], configurations, strict=True):
        rows = spectra[(spectra["configuration"] == configuration) & (spectra["matrix"] == matrix)]
        for i, step in enumerate(step for step in steps if step in set(rows["step"])):
            values = np.stack(list(rows[rows["step"] == step]["singular_values"]))
            index = np.arange(1, values.shape[1] + 1)
            color = GREENS(i / max(1, len(steps) - 1))
            logs = np.log10(np.maximum(values, 1e-9))
            mean, deviation = logs.mean(0), logs.std(0)
            axes.plot(index, 10**mean, color=color, marker="o", ms=3, label=f"t = {step}")
            axes.fill_between(index, 10 ** (mean - deviation), 10 ** (mean + deviation), color=color, alpha=0.2, lw=0)
        axes.axvline(2.5, color=NULL_COLOR, lw=1, ls="--")
        axes.set(
            title=f"{configuration} readout", xlabel="index i of the singular value", yscale="log", ylim=(1e-6, 10)
        )
        axes.set_xticks([1, 2, 5, 10, 15, 20])
    name = f"${matrix[0]}_{matrix[2:]}$"
    panels[0][0].set_ylabel(rf"singular value $\sigma_i$ of $\Delta${name}$(t)$")
    panels[0][0].text(2.7, 5, "2 label-relevant\npatterns", color=NULL_COLOR, fontsize=8, va="top")
    panels[0][-1].legend(loc="upper right")
    figure.suptitle("geometric mean and standard deviation over seeds")
    return figure


def rank_follows_patterns(sweep: pd.DataFrame, matrices: list[str]) -> Figure:
    """Singular values over the largest, of all four updates: C classes with an output each; two grouped classes.

    A ring stands at the k-th, k the number of label-relevant patterns; mean ± sd over seeds.
    """
    figure, panels = plt.subplots(2, len(matrices), figsize=(2.7 * len(matrices), 5.4), sharex=True, sharey=True)
    for line, name in enumerate(("classes_tied", "grouped")):
        chosen = sweep[sweep["sweep"] == name]
        labels = sorted(chosen["labels"].unique(), key=lambda text: (sum(map(int, text.split("|"))), text))
        for axes, matrix in zip(panels[line], matrices, strict=True):
            for i, label in enumerate(labels):
                of = chosen[chosen["labels"] == label]
                sigma = np.stack(list(of[f"{matrix}_singular_values"]))[:, :8]
                sigma = sigma / sigma[:, :1]
                color = VIRIDIS(0.9 * i / max(1, len(labels) - 1))
                k = int(of["value"].iloc[0])
                text = f"{k} classes" if line == 0 else f"patterns {label} (k = {k})"
                band(
                    axes,
                    np.arange(1, sigma.shape[1] + 1),
                    sigma.mean(0),
                    sigma.std(0),
                    color=color,
                    marker="o",
                    ms=3,
                    label=text,
                )
                axes.plot([k], sigma.mean(0)[k - 1 : k], "o", ms=8, mfc="none", color=color)
            if line == 0:
                axes.set_title(rf"$\Delta {matrix[0]}_{matrix[2:]}$")
            else:
                axes.set(xlabel="index i", xticks=range(1, 9))
    panels[0][0].set_ylabel("one output per class\n" + r"$\sigma_i / \sigma_1$")
    panels[1][0].set_ylabel("two classes, one output\n" + r"$\sigma_i / \sigma_1$")
    panels[0][0].set_yscale("log")
    panels[0][0].set_ylim(1e-3, 1.4)
    panels[0][-1].legend(loc="upper right", fontsize=7.5)
    panels[1][-1].legend(loc="upper right", fontsize=7.5)
    figure.suptitle(
        "the ring is the k-th singular value, k the number of label-relevant patterns; mean ± sd over seeds"
    )
    return figure


def directions_of_updates(directions: pd.DataFrame, configuration: str) -> Figure:
    """How far the two leading directions of each update lie in the span of the patterns, through training."""
    rows = directions[directions["configuration"] == configuration]
    places = [("W_K", "input"), ("W_Q", "output"), ("W_V", "input"), ("W_V", "output"), ("W_O", "input")]
    spans = {
        "discriminative": (INITIAL_COLOR, r"span{$\mu_1, \mu_2$}", 2),
        "with mean irrelevant": (GREENS(0.85), r"span{$\mu_1, \mu_2$, mean irrelevant}", 3),
    }
    figure, panels = plt.subplots(1, len(places), figsize=(2.3 * len(places), 3.2), sharey=True)
    for axes, (matrix, side) in zip(panels, places, strict=True):
        chosen = rows[(rows["matrix"] == matrix) & (rows["side"] == side)]
        for span, (color, name, n) in spans.items():
            of = chosen[chosen["span"] == span]
            by = of.groupby("step")["alignment"].agg(["mean", "std"]).fillna(0)
            band(axes, by.index, by["mean"], by["std"], color=color, marker="o", ms=3, label=name)
            axes.axhline(n / of["dimension"].iloc[0], color=color, ls="--", lw=1)
        axes.set(title=rf"$\Delta {matrix[0]}_{matrix[2:]}$, {side} side", xlabel="step t", ylim=(0, 1.04))
    panels[0].set_ylabel("mean squared cosine of the two\nleading directions with the span")
    panels[-1].legend(loc="center right", fontsize=7.5)
    figure.suptitle(f"{configuration} readout, mean ± sd over seeds; dashed: random directions")
    return figure
