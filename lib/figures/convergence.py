"""How soon a flow classifies everything: courses against time, the bound, the law of the time, and the lemmas."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import INITIAL_COLOR, MATRIX_COLORS, NULL_COLOR, VIRIDIS

LOSS_COLOR, ACCURACY_COLOR = MATRIX_COLORS["W_KQ"], MATRIX_COLORS["W_VO"]


def courses_with_bound(paths: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """Loss and accuracy against time for a few runs; where all is right first, and the theorem's bound."""
    tasks = list(dict.fromkeys(paths["task"]))
    figure, panels = plt.subplots(
        2, len(tasks), figsize=(3.4 * len(tasks), 4.6), sharex="col", sharey="row", squeeze=False
    )
    for column, task in enumerate(tasks):
        rows, run = paths[paths["task"] == task], runs[runs["task"] == task].iloc[0]
        rows = rows[rows["time"] > run["first_time"] / 1e4]
        loss, accuracy = panels[0][column], panels[1][column]
        loss.plot(rows["time"], rows["loss"], color=LOSS_COLOR, label="population loss")
        accuracy.plot(rows["time"], rows["accuracy"], color=ACCURACY_COLOR, label="share of positions right")
        for axes in (loss, accuracy):
            axes.axvline(run["first_time"], color="black", lw=1, label="measured: all sequences right")
            axes.axvline(run["bound"], color=INITIAL_COLOR, ls="--", lw=1.4, label="theorem: by this time")
        loss.set(xscale="log", yscale="log")
        loss.set_title(f"{run['law']}, L = {run['n_tokens']}, n = {run['seq_len']}, M = {run['length']}")
        accuracy.set(xlabel="time t of the gradient flow", ylim=(0, 1.03))
    panels[0][0].set_ylabel("population loss")
    panels[1][0].set_ylabel("share of positions right")
    panels[0][0].legend(loc="lower left", fontsize=7.5)
    return figure


def bound_ratios(runs: pd.DataFrame) -> Figure:
    """Histogram of measured time over bound, by the law of the sequences."""
    learned = runs[~runs["at_once"]]
    ratio = np.log10(learned["first_time"] / learned["bound"])
    kinds = learned["law"].astype(str)
    order = sorted(kinds.unique())
    bins = np.arange(np.floor(ratio.min()), 0.51, 0.5)
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    colors = [VIRIDIS(0.95 * i / max(1, len(order) - 1)) for i in range(len(order))]
    axes.hist([ratio[kinds == kind] for kind in order], bins=bins.tolist(), stacked=True, color=colors,
              label=[f"{kind} ({(kinds == kind).sum()} runs)" for kind in order])  # fmt: skip
    axes.axvline(0, color=INITIAL_COLOR, ls="--", label="theorem: at most 1")
    axes.axvline(np.log10(np.median(10**ratio)), color="black", lw=1.2, label="measured median")
    ticks = np.arange(int(bins[0]), 1, 2)
    axes.set_xticks(ticks, labels=[f"$10^{{{tick}}}$" for tick in ticks])
    axes.set(xlabel="time at which all sequences are right ÷ the theorem's bound", ylabel="runs")
    axes.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def scale_crossover(law: pd.DataFrame) -> Figure:
    """The rescaled time T c² and what attention has learned by then, against the scale c of the values."""
    figure, (time, attention, error) = plt.subplots(1, 3, figsize=(10.6, 3.4))
    tasks = list(dict.fromkeys(law["task"]))
    for i, task in enumerate(tasks):
        rows = law[law["task"] == task]
        limit = rows[np.isinf(rows["scale"])]["rescaled_time"].iloc[0]
        rows = rows[np.isfinite(rows["scale"])].sort_values("scale")
        color = VIRIDIS(0.9 * i / max(1, len(tasks) - 1))
        time.plot(rows["scale"], rows["rescaled_time"] / limit, "o-", ms=3.5, color=color, label=f"task {i + 1}")
        attention.plot(rows["scale"], rows["attention_to_star"], "o-", ms=3.5, color=color)
        error.plot(rows["scale"], rows["path_error"], "o-", ms=3.5, color=color)
    time.axhline(1, color="black", ls="--", lw=1.2, label="limit: Luce's choice model")
    time.set(xscale="log", xlabel="scale c of V = cP", ylabel="T c² over its limit")
    time.legend(fontsize=7.5)
    attention.axhline(0.25, color="black", ls="--", lw=1.2, label="uniform attention, 1/n")
    attention.set(xscale="log", xlabel="scale c of V = cP", ylabel="attention to the right token at T", ylim=(0, 1.03))
    attention.legend()
    scales = np.array(sorted(s for s in law["scale"].unique() if np.isfinite(s) and s >= 10))
    shown = law[np.isfinite(law["scale"])]["path_error"]
    error.plot(scales, shown.max() * 6 / scales, color="black", ls="--", lw=1.2, label="∝ 1/c")
    error.set(xscale="log", yscale="log", xlabel="scale c of V = cP", ylabel="distance of the path from the limit's")
    error.legend()
    return figure


def lemma_ratios(lemmas: pd.DataFrame) -> Figure:
    """How far both lemmas' sides are apart, over all random cases: never below one."""
    figure, panels = plt.subplots(1, 2, figsize=(8.6, 3.2), sharey=True)
    for axes, number in zip(panels, (1, 2), strict=True):
        rows = lemmas[lemmas["lemma"] == number]
        axes.bar(10 ** (rows["bin"] / 20), rows["size"], width=10 ** (rows["bin"] / 20) * (10**0.05 - 1),
                 align="edge", color=LOSS_COLOR)  # fmt: skip
        axes.axvline(1, color=INITIAL_COLOR, ls="--", label=f"Lemma {number}: at least 1")
        cases = int(rows["cases"].iloc[0])
        axes.set(xscale="log", title=f"{cases} random cases, least {rows['min'].min():.4g}")
        axes.set_xlabel("−⟨∇, U⟩ ÷ the lemma's bound")
        axes.legend(loc="upper right")
        axes.set_xlim(0.5, 1e4)
    panels[0].set_ylabel("cases")
    return figure


def outcomes(starts: pd.DataFrame, controls: pd.DataFrame) -> Figure:
    """From which starts training ends with everything right, and what the controls reach; one point per run."""
    figure, panels = plt.subplots(1, 2, figsize=(10.4, 3.4))
    for axes, table, key, title in (
        (panels[0], starts, "start", "both trained, from these starts"),
        (panels[1], controls, "control", "controls"),
    ):
        names = list(dict.fromkeys(table[key].astype(str)))
        for y, name in enumerate(reversed(names)):
            values = table[table[key] == name]["accuracy"].to_numpy()
            offsets = np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.zeros(1)
            right = values > 1 - 1e-9
            axes.plot(values[right], y + offsets[right], "o", ms=4.5, color="#276749")
            axes.plot(values[~right], y + offsets[~right], "o", ms=4.5, mfc="none", color=NULL_COLOR)
        axes.set_yticks(range(len(names)), labels=list(reversed(names)))
        axes.set(title=title, xlabel="share of positions right at the end", xlim=(-0.02, 1.04))
    figure.suptitle("filled: all sequences right")
    return figure
