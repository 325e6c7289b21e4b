"""How soon a flow classifies everything: its course, the bound, and the law of the time."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.decision_lists.figures.lines import DASHED, LOG_LOG, SMALL, law_words, numbered, setting
from lib.pages.marks import BOUND, shaded, where
from lib.pages.panels import grid, shared_legend
from lib.pages.style import MATRIX_COLORS

LOSS_COLOR = MATRIX_COLORS["W_KQ"]
ACCURACY_COLOR = MATRIX_COLORS["W_VO"]


def courses_with_bound(paths: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """The loss and accuracy of a few runs in time, with the theorem's bound and the late law."""
    tasks = list(dict.fromkeys(paths["task"]))
    n = len(tasks)
    figure, panels = grid(2, n, (3.1 * n, 4.8), sharex="col", sharey="row")
    for (loss, accuracy), task in zip(panels.T, tasks, strict=True):
        run = where(runs, task=task).iloc[0]
        rows = where(paths, task=task)
        begin = np.nanmax([run["first_time"] / 1e4, run["bound"] / 1e12])
        rows = rows[rows["time"] > begin]
        right = "share of positions right"
        loss.plot(rows["time"], rows["loss"], color=LOSS_COLOR, label="population loss")
        accuracy.plot(rows["time"], rows["accuracy"], color=ACCURACY_COLOR, label=right)
        for axes in (loss, accuracy):
            if run["first_time"] > begin:
                first = "measured: all sequences right"
                axes.axvline(run["first_time"], color="black", lw=1, label=first)
            axes.axvline(run["bound"], **BOUND, lw=1.4, label="theorem: by this time")
        late = rows["time"][rows["time"] > max(run["first_time"], run["bound"] / 1e4)]
        if np.isfinite(run["late_limit"]) and len(late):
            level = run["late_limit"] / run["scale"] ** 2
            derived = "derived, late: $|\\hat u|^2 / c^2 t$"
            loss.plot(late, level / late, **DASHED, label=derived)
        loss.set(**LOG_LOG)
        loss.set_title(setting(run), fontsize=9)
        accuracy.set(xlabel="time t of the gradient flow", ylim=(0, 1.03))
    panels[0][0].set_ylabel("population loss")
    panels[1][0].set_ylabel("share of positions right")
    shared_legend(figure, *panels[0], ncols=4)
    return figure


def bound_ratios(runs: pd.DataFrame) -> Figure:
    """The measured time over the bound, by law, and how far attention is from uniform by then."""
    learned = runs[~runs["at_once"]]
    learned = learned.assign(ratio=np.log10(learned["first_time"] / learned["bound"]))
    ratio = learned["ratio"]
    laws = list(shaded(learned, "law", ordered=True))
    figure, (axes, lazy) = plt.subplots(1, 2, figsize=(11.4, 3.8), width_ratios=[1.25, 1])
    lowest = np.floor(ratio.min()) if ratio.notna().any() else -1.0
    bins = np.arange(lowest, 0.51, 0.5)
    axes.hist(
        [rows["ratio"].dropna() for _, rows, _ in laws],
        bins=bins.tolist(),
        stacked=True,
        color=[color for _, _, color in laws],
        label=[f"{law_words(law)} ({len(rows)} runs)" for law, rows, _ in laws],
    )
    axes.axvline(0, **BOUND, label="theorem: at most 1")
    median = ratio.fillna(np.inf).median()  # a run that is never right takes for ever
    if np.isfinite(median):
        axes.axvline(median, color="black", lw=1.2, label=f"measured median, {10**median:.2g}")
    missed = int(ratio.isna().sum())
    if missed:
        axes.plot([], [], " ", label=f"not right by the bound: {missed} runs")
    ticks = np.arange(int(bins[0]), 1, 2)
    axes.set_xticks(ticks, labels=[f"$10^{{{tick}}}$" for tick in ticks])
    axes.set(xlabel="time at which all sequences are right ÷ the theorem's bound", ylabel="runs")
    for _, rows, color in laws:
        lazy.plot(rows["scale"], rows["largest_attention"] - 1, "o", ms=3, mfc="none", color=color)
    lazy.set(**LOG_LOG, xlabel="the theorem's scale c of V = cP")
    lazy.set_ylabel("largest n α − 1 until all is right")
    shared_legend(figure, axes, fontsize=SMALL, loc="outside right upper")
    return figure


def late_losses(late: pd.DataFrame) -> Figure:
    """The loss times c² t over its limit, and the loss's exponent, of runs that go to the bound."""
    figure, (level, slope) = plt.subplots(1, 2, figsize=(9.6, 3.6))
    for law, rows, color in shaded(late, "law", ordered=True):
        point = {"marker": "o", "ls": "", "ms": 4.5, "color": color}
        over_limit = rows["loss_times_time"] / rows["limit"]
        level.plot(rows["rescaled_time"], over_limit, **point, label=law_words(law))
        slope.plot(rows["rescaled_time"], rows["slope"], **point)
    level.axhline(1, **DASHED, label="derived limit")
    slope.axhline(-1, **DASHED)
    for axes in (level, slope):
        axes.set(xscale="log", xlabel="c² t at the theorem's bound")
    level.set(ylabel="loss · c² t ÷ its limit $|\\hat u|^2$")
    slope.set(ylabel="exponent of the loss in t, last decade")
    shared_legend(figure, level, fontsize=SMALL, loc="outside right upper")
    return figure


def perfection_lost(paths: pd.DataFrame, runs: pd.DataFrame) -> Figure:
    """The least margin in time, of runs in which all is right, then not, and then again."""
    tasks = list(runs["task"][runs["lost"] > 0])
    n = max(1, len(tasks))
    figure, panels = grid(1, n, (5.4 * n, 3.4))
    for axes, task in zip(panels[0], tasks, strict=False):
        run = where(runs, task=task).iloc[0]
        lost, regained, bound = run[["lost_time", "regained_time", "bound"]]
        rows = paths[(paths["task"] == task) & (paths["time"] > lost / 1e3)]
        margin = "least margin, in u = cW"
        axes.plot(rows["time"], rows["margin"], "o-", ms=2.5, color=LOSS_COLOR, label=margin)
        axes.axhline(0, color="black", lw=0.8)
        axes.axvline(lost, color=ACCURACY_COLOR, lw=1.2, label=f"lost at {lost:.3g}")
        axes.axvline(regained, color="black", lw=1.2, label=f"right again at {regained:.3g}")
        axes.axvline(bound, **BOUND, label=f"theorem: right before {bound:.3g}")
        axes.set(xscale="log", xlabel="time t of the gradient flow")
        axes.set(ylabel="above 0: all sequences right")
        axes.set_yscale("symlog", linthresh=0.01)
        axes.set_title(setting(run))
        axes.legend(fontsize=SMALL, loc="lower right", bbox_to_anchor=(0.96, 0.0))
    return figure


def sequences_with_repeats(repeats: pd.DataFrame) -> Figure:
    """When all is right on sequences with repeats, and W and attention then; a line per task."""
    figure, panels = plt.subplots(1, 3, figsize=(10.6, 3.4), sharey=True)
    names = [f"{law_words(str(run.law))}, M = {run.length}" for run in repeats.itertuples()]
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
    panels[2].axvline(1 / repeats["seq_len"].iloc[0], **DASHED, label="1/n")
    panels[2].legend(fontsize=SMALL)
    return figure


def scale_crossover(law: pd.DataFrame) -> Figure:
    """The rescaled time T c², and what attention has learned by then, against the scale c."""
    law = law[~law["at_once"]]
    figure, ((time, attention), (off, error)) = plt.subplots(2, 2, figsize=(11, 6.2), sharex=True)
    names = numbered([law_words(one) for one in law.drop_duplicates("task")["law"]])
    for name, (_, rows, color) in zip(names, shaded(law, "task"), strict=True):
        limit = rows[np.isinf(rows["scale"])]["rescaled_time"].iloc[0]
        rows = rows[np.isfinite(rows["scale"])].sort_values("scale")
        line = {"marker": "o", "ms": 3.5, "color": color}
        time.plot(rows["scale"], rows["rescaled_time"], label=name, **line)
        time.axhline(limit, color=color, ls="--", lw=1.2)
        attention.plot(rows["scale"], rows["attention_to_star"], **line)
        off.plot(rows["scale"], (rows["rescaled_time"] / limit - 1).abs(), **line)
        error.plot(rows["scale"], rows["path_error"], **line)
    time.plot([], [], **DASHED, label="limit: Luce's choice model")
    time.set(**LOG_LOG, ylabel="T c²")
    shared_legend(figure, time, fontsize=SMALL, loc="outside right upper")
    for seq_len in sorted(law["seq_len"].unique()):
        attention.axhline(1 / seq_len, **DASHED, label=f"uniform attention, 1/n = 1/{seq_len}")
    attention.set(ylabel="attention to the right token at T", ylim=(0, 1.03))
    attention.legend()
    finite = law["scale"][np.isfinite(law["scale"])]
    for axes, label in (
        (off, "|T c² over its limit − 1|"),
        (error, "distance of the path from the limit's"),
    ):
        _inverse(axes, finite)
        axes.set(ylabel=label, xlabel="scale c of V = cP")
    return figure


def _inverse(axes: Axes, scales: pd.Series) -> None:
    """A line that falls as 1/c, above what is drawn, on logarithmic axes."""
    axes.set(yscale="log")
    x = np.array(sorted(scales[scales >= 10].unique()))
    drawn = [np.prod(np.asarray(line.get_data(), float), 0) for line in axes.lines]
    highest = max(float(np.nanmax(products)) for products in drawn)
    if len(x):
        axes.plot(x, 1.6 * highest / x, **DASHED, label="∝ 1/c")
        axes.legend()
