"""How soon a flow classifies everything: courses against time, the bound, what comes after, and the
law of the time.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.style import BOUND_COLOR, MATRIX_COLORS, VIRIDIS, sized

LOSS_COLOR, ACCURACY_COLOR = MATRIX_COLORS["W_KQ"], MATRIX_COLORS["W_VO"]


def shades(names: list[Any]) -> dict[Any, tuple[float, float, float, float]]:
    """A colour for each name, in order."""
    return {name: VIRIDIS(0.92 * i / max(1, len(names) - 1)) for i, name in enumerate(names)}


def courses_with_bound(paths: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """Loss and accuracy against time for a few runs; where all is right first, the theorem's bound,
    the late law.
    """
    tasks = list(dict.fromkeys(paths["task"]))
    figure, panels = plt.subplots(
        2,
        len(tasks),
        figsize=sized(3.1 * len(tasks), 4.8),
        sharex="col",
        sharey="row",
        squeeze=False,
    )
    for column, task in enumerate(tasks):
        rows, run = paths[paths["task"] == task], runs[runs["task"] == task].iloc[0]
        begin = np.nanmax([run["first_time"] / 1e4, run["bound"] / 1e12])
        rows = rows[rows["time"] > begin]
        loss, accuracy = panels[0][column], panels[1][column]
        loss.plot(rows["time"], rows["loss"], color=LOSS_COLOR, label="population loss")
        accuracy.plot(
            rows["time"], rows["accuracy"], color=ACCURACY_COLOR, label="share of positions right"
        )
        for axes in (loss, accuracy):
            if run["first_time"] > begin:
                axes.axvline(
                    run["first_time"], color="black", lw=1, label="measured: all sequences right"
                )
            axes.axvline(
                run["bound"], color=BOUND_COLOR, ls="--", lw=1.4, label="theorem: by this time"
            )
        late = rows["time"][rows["time"] > max(run["first_time"], run["bound"] / 1e4)]
        if np.isfinite(run["late_limit"]) and len(late):
            level = run["late_limit"] / run["scale"] ** 2
            loss.plot(
                late,
                level / late,
                color="black",
                ls=":",
                lw=1.4,
                label="derived, late: $|\\hat u|^2 / c^2 t$",
            )
        loss.set(xscale="log", yscale="log")
        loss.set_title(
            f"{run['law']}, L = {run['n_tokens']}, n = {run['seq_len']}, M = {run['length']}",
            fontsize=9,
        )
        accuracy.set(xlabel="time t of the gradient flow", ylim=(0, 1.03))
    panels[0][0].set_ylabel("population loss")
    panels[1][0].set_ylabel("share of positions right")
    drawn = {
        line.get_label(): line for axes in panels[0] for line in axes.get_legend_handles_labels()[0]
    }
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=4)
    return figure


def bound_ratios(runs: pd.DataFrame) -> Figure:
    """Measured time over bound, by the law of the sequences; and how far attention is from uniform
    by then.
    """
    learned = runs[~runs["at_once"]]
    ratio = pd.Series(np.log10(learned["first_time"] / learned["bound"]))
    kinds = learned["law"].astype(str)
    colors = shades(sorted(kinds.unique()))
    figure, (axes, lazy) = plt.subplots(1, 2, figsize=(11.4, 3.8), width_ratios=[1.25, 1])
    lowest = np.floor(ratio.min()) if ratio.notna().any() else -1.0
    bins = np.arange(lowest, 0.51, 0.5)
    axes.hist(
        [ratio[kinds == kind].dropna() for kind in colors],
        bins=bins.tolist(),
        stacked=True,
        color=list(colors.values()),
        label=[f"{kind} ({(kinds == kind).sum()} runs)" for kind in colors],
    )
    axes.axvline(0, color=BOUND_COLOR, ls="--", label="theorem: at most 1")
    median = ratio.fillna(np.inf).median()  # a run that is never right takes for ever
    if np.isfinite(median):
        axes.axvline(median, color="black", lw=1.2, label=f"measured median, {10**median:.2g}")
    missed = int(ratio.isna().sum())
    if missed:
        axes.plot([], [], " ", label=f"not right by the bound: {missed} runs")
    ticks = np.arange(int(bins[0]), 1, 2)
    axes.set_xticks(ticks, labels=[f"$10^{{{tick}}}$" for tick in ticks])
    axes.set(xlabel="time at which all sequences are right ÷ the theorem's bound", ylabel="runs")
    for kind, color in colors.items():
        rows = learned[kinds == kind]
        lazy.plot(rows["scale"], rows["largest_attention"] - 1, "o", ms=3, mfc="none", color=color)
    lazy.set(xscale="log", yscale="log", xlabel="the theorem's scale c of V = cP")
    lazy.set_ylabel("largest n α − 1 until all is right")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=7.5, loc="outside right upper")
    return figure


def late_losses(late: pd.DataFrame) -> Figure:
    """Runs that go on to the bound: what the loss times c² t is there, over its limit, and the
    exponent of the loss.
    """
    figure, (level, slope) = plt.subplots(1, 2, figsize=(9.6, 3.6))
    colors = shades(sorted(late["law"].astype(str).unique()))
    for law, color in colors.items():
        rows = late[late["law"] == law]
        level.plot(
            rows["rescaled_time"],
            rows["loss_times_time"] / rows["limit"],
            "o",
            ms=4.5,
            color=color,
            label=law,
        )
        slope.plot(rows["rescaled_time"], rows["slope"], "o", ms=4.5, color=color)
    level.axhline(1, color="black", ls="--", lw=1.2, label="derived limit")
    level.set(
        xscale="log",
        xlabel="c² t at the theorem's bound",
        ylabel="loss · c² t ÷ its limit $|\\hat u|^2$",
    )
    slope.axhline(-1, color="black", ls="--", lw=1.2)
    slope.set(
        xscale="log",
        xlabel="c² t at the theorem's bound",
        ylabel="exponent of the loss in t, last decade",
    )
    figure.legend(*level.get_legend_handles_labels(), fontsize=7.5, loc="outside right upper")
    return figure


def other_gammas(gamma: pd.DataFrame) -> Figure:
    """The time over the bound against γ, a line per task."""
    figure, axes = plt.subplots(figsize=(5.2, 3.6))
    learned = gamma[~gamma["at_once"]]
    for task, color in shades(list(dict.fromkeys(learned["task"].astype(str)))).items():
        rows = learned[learned["task"] == task].sort_values("gamma")
        label = (
            f"{rows['law'].iloc[0]}, L = {rows['n_tokens'].iloc[0]}, M = {rows['length'].iloc[0]}"
        )
        axes.plot(
            rows["gamma"],
            rows["first_time"] / rows["bound"],
            "o-",
            ms=3.5,
            color=color,
            label=label,
        )
    axes.axhline(1, color=BOUND_COLOR, ls="--", label="theorem: at most 1")
    axes.set(xscale="log", yscale="log", xlabel="γ", ylabel="time at which all is right ÷ bound")
    axes.legend(fontsize=7.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def perfection_lost(paths: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """The least margin of the runs in which all is right, no longer, and again."""
    tasks = list(runs["task"][runs["lost"] > 0])
    figure, panels = plt.subplots(
        1, max(1, len(tasks)), figsize=(5.4 * max(1, len(tasks)), 3.4), squeeze=False
    )
    for axes, task in zip(panels[0], tasks, strict=False):
        rows, run = paths[paths["task"] == task], runs[runs["task"] == task].iloc[0]
        rows = rows[rows["time"] > run["lost_time"] / 1e3]
        axes.plot(
            rows["time"],
            rows["margin"],
            "o-",
            ms=2.5,
            color=LOSS_COLOR,
            label="least margin, in u = cW",
        )
        axes.axhline(0, color="black", lw=0.8)
        axes.axvline(
            run["lost_time"], color=ACCURACY_COLOR, lw=1.2, label=f"lost at {run['lost_time']:.3g}"
        )
        axes.axvline(
            run["regained_time"],
            color="black",
            lw=1.2,
            label=f"right again at {run['regained_time']:.3g}",
        )
        axes.axvline(
            run["bound"],
            color=BOUND_COLOR,
            ls="--",
            label=f"theorem: right before {run['bound']:.3g}",
        )
        axes.set(
            xscale="log",
            xlabel="time t of the gradient flow",
            ylabel="above 0: all sequences right",
        )
        axes.set_yscale("symlog", linthresh=0.01)
        axes.set_title(
            f"{run['law']}, L = {run['n_tokens']}, n = {run['seq_len']}, M = {run['length']}"
        )
        axes.legend(fontsize=7.5, loc="lower right", bbox_to_anchor=(0.96, 0.0))
    return figure


def many_tokens(many: pd.DataFrame) -> Figure:
    """The time over the bound against the number of tokens, under a uniform law."""
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    learned = many[~many["at_once"]]
    for length, color in shades(sorted(learned["length"].unique())).items():
        rows = learned[learned["length"] == length].sort_values("n_tokens")
        axes.plot(
            rows["n_tokens"],
            rows["first_time"] / rows["bound"],
            "o-",
            ms=4.5,
            color=color,
            label=f"M = {length}",
        )
    axes.axhline(1, color=BOUND_COLOR, ls="--", label="theorem: at most 1")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="number of tokens L",
        ylabel="time at which all is right ÷ bound",
    )
    axes.legend(fontsize=7.5)
    return figure


def sequences_with_repeats(repeats: pd.DataFrame) -> Figure:
    """When all is right on sequences with repeats, and what W and the attention are then; a line
    per task.
    """
    figure, panels = plt.subplots(1, 3, figsize=(10.6, 3.4), sharey=True)
    names = [
        f"{law}, M = {length}"
        for law, length in zip(repeats["law"], repeats["length"], strict=True)
    ]
    titles = {
        "first_time": "time at which all is right",
        "largest_W": "largest |W| then",
        "attention_to_star": "attention to the right token then",
    }
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        axes.plot(repeats[column], range(len(repeats)), "o", ms=4.5, color=LOSS_COLOR)
        axes.set(xlabel=title)
    panels[0].set_xscale("log")
    panels[0].set_yticks(range(len(repeats)), labels=names)
    uniform = 1 / repeats["seq_len"].iloc[0]
    panels[2].axvline(uniform, color="black", ls="--", lw=1.2, label="1/n")
    panels[2].legend(fontsize=7.5)
    return figure


def scale_crossover(law: pd.DataFrame) -> Figure:
    """The rescaled time T c² and what attention has learned by then, against the scale c of the
    values.
    """
    law = law[~law["at_once"]]
    figure, ((time, attention), (off, error)) = plt.subplots(2, 2, figsize=(11, 6.2), sharex=True)
    for task, color in shades(list(dict.fromkeys(law["task"].astype(str)))).items():
        rows = law[law["task"] == task]
        limit = rows[np.isinf(rows["scale"])]["rescaled_time"].iloc[0]
        rows = rows[np.isfinite(rows["scale"])].sort_values("scale")
        line = {"marker": "o", "ms": 3.5, "color": color}
        time.plot(
            rows["scale"], rows["rescaled_time"], label=f"{task}: {rows['law'].iloc[0]}", **line
        )
        time.axhline(limit, color=color, ls="--", lw=1.2)
        attention.plot(rows["scale"], rows["attention_to_star"], **line)
        off.plot(rows["scale"], (rows["rescaled_time"] / limit - 1).abs(), **line)
        error.plot(rows["scale"], rows["path_error"], **line)
    time.plot([], [], color="black", ls="--", lw=1.2, label="limit: Luce's choice model")
    time.set(xscale="log", yscale="log", ylabel="T c²")
    figure.legend(*time.get_legend_handles_labels(), fontsize=7.5, loc="outside right upper")
    for seq_len in sorted(law["seq_len"].unique()):
        attention.axhline(
            1 / seq_len,
            color="black",
            ls="--",
            lw=1.2,
            label=f"uniform attention, 1/n = 1/{seq_len}",
        )
    attention.set(ylabel="attention to the right token at T", ylim=(0, 1.03))
    attention.legend()
    finite = law[np.isfinite(law["scale"])]
    _inverse(off, finite["scale"])
    _inverse(error, finite["scale"])
    off.set(ylabel="|T c² over its limit − 1|", xlabel="scale c of V = cP")
    error.set(ylabel="distance of the path from the limit's", xlabel="scale c of V = cP")
    return figure


def _inverse(axes: Axes, scales: pd.Series) -> None:
    """A line that falls as 1/c, above what is drawn, on logarithmic axes."""
    axes.set(yscale="log")
    x = np.array(sorted(scales[scales >= 10].unique()))
    highest = max(
        float(np.nanmax(line.get_ydata() * np.asarray(line.get_xdata()))) for line in axes.lines
    )  # pyright: ignore
    if len(x):
        axes.plot(x, 1.6 * highest / x, color="black", ls="--", lw=1.2, label="∝ 1/c")
        axes.legend()
