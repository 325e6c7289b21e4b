"""Gradient descent on decision lists, as the theorems have it and from other starts; controls."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.decision_lists.figures.lines import LOG_LOG, law_words, numbered
from lib.pages.marks import BOUND, shaded, where
from lib.pages.panels import grid
from lib.pages.style import BLUE, BOUND_COLOR, GREEN, LOST_COLOR, ORANGE, READ_WIDTH, number_panel

NOISE_COLORS = {"none": BLUE, "uniform": GREEN, "adversarial": ORANGE}
TRAININGS = (GREEN, LOST_COLOR)  # trainings that end right, and others


def descents_on_both(both: pd.DataFrame, courses: pd.DataFrame) -> Figure:
    """The steps until all is right in part 2 beside the theorem's, the loss and the curvature.

    Every descent has a thin line, those of the task that took the most steps a thick one.
    """
    layout: Any = [["steps", "loss"], ["steps", "curvature"]]
    figure, panels = plt.subplot_mosaic(layout, figsize=(READ_WIDTH, 6.4), width_ratios=[1.25, 1])
    steps, loss, curvature = panels["steps"], panels["loss"], panels["curvature"]
    number_panel(steps)
    longest = both["task"].iloc[both["n_steps"].argmax()]
    for (task, noise), rows in courses.groupby(["task", "noise"], sort=False, observed=True):
        strong = task == longest
        color = NOISE_COLORS[str(noise)]
        line = {"color": color, "lw": 2 if strong else 0.8, "alpha": 1 if strong else 0.35}
        loss.plot(rows["step"] + 1, rows["loss"], **line)
        if strong:
            loss.plot(rows["step"].iloc[-1] + 1, rows["loss"].iloc[-1], "o", ms=5, color=color)
        curvature.plot(rows["step"] + 1, rows["step_times_curvature"], **line)
    loss.plot([], [], "o", ms=5, color="black", label="all sequences right")
    loss.set(**LOG_LOG, ylabel="population loss", xlabel="step + 1")
    loss.set_title("thick: the task that took most steps", fontsize=9)
    loss.legend()
    curvature.axhline(1, **BOUND, label="assumption: at most 1 on the way")
    curvature.set(**LOG_LOG, xlabel="step + 1", ylabel="step size · largest curvature")
    curvature.legend(loc="lower left")

    tasks = both.drop_duplicates("task")[::-1]  # from below
    rows_of = {task: y for y, task in enumerate(tasks["task"])}
    for i, (noise, color) in enumerate(NOISE_COLORS.items()):
        rows = where(both, noise=noise)
        at = np.array([rows_of[task] + 0.22 * (1 - i) for task in rows["task"]])
        taken = rows["n_steps"].to_numpy(float)
        _right_or_not(steps, taken, at, (rows["margin"] > 0).to_numpy(), (color, color), ms=5.5)
        steps.plot(rows["earliest"], at, "|", ms=9, mew=2, color=BOUND_COLOR)
        steps.plot([], [], "o", color=color, label=f"noise of V₀: {noise}")
    steps.plot([], [], "|", ms=9, mew=2, color=BOUND_COLOR, label="the earliest T of the theorem")
    names = [
        f"{law_words(str(row.law))},\nn = {row.seq_len}, m = {row.length}"
        for row in tasks[::-1].itertuples()
    ]
    steps.set_yticks(range(len(names)), labels=numbered(names)[::-1], fontsize=8)
    steps.set(xscale="log", ylim=(-0.6, len(names) - 0.4))
    steps.set_xlabel("steps until every sequence is right, and as the theorem has them")
    steps.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8)
    return figure


def _right_or_not(
    axes: Axes, x: np.ndarray, y: np.ndarray, right: np.ndarray, colors: tuple[str, str], ms: float
) -> None:
    """Draw points, filled where all is right in the end, in the first of the colours there."""
    of_right, of_wrong = colors
    axes.plot(x[right], y[right], "o", ms=ms, color=of_right)
    axes.plot(x[~right], y[~right], "o", ms=ms, mfc="none", color=of_wrong)


def outcomes(joint: pd.DataFrame, **others: pd.DataFrame) -> Figure:
    """The accuracy with which trainings from other `starts` and `controls` end, a point per run.

    For the `joint` trainings it is the share that is certified by each step.
    """
    n = len(others) + 1
    figure, panels = grid(1, n, (5.0 * n, 3.9))
    *first, last = panels[0]
    titles = {"starts": "both trained, from these starts", "controls": "controls"}
    keys = {"starts": "start", "controls": "control"}
    for axes, (name, table) in zip(first, others.items(), strict=True):
        groups = list(shaded(table, keys[name]))[::-1]
        for y, (_, rows, _) in enumerate(groups):
            accuracy = rows["accuracy"].to_numpy()
            beside = np.linspace(-0.2, 0.2, len(accuracy)) if len(accuracy) > 1 else np.zeros(1)
            _right_or_not(axes, accuracy, y + beside, accuracy > 1 - 1e-9, TRAININGS, ms=4.5)
        axes.set_yticks(range(len(groups)), labels=[str(group) for group, _, _ in groups])
        axes.set(title=titles[name], xlabel="share of positions right at the end")
        axes.set(xlim=(-0.02, 1.04))
    _certified(last, joint)
    figure.suptitle("filled: all sequences right")
    return figure


def _certified(axes: Axes, joint: pd.DataFrame) -> None:
    """Draw which share of the trainings is certified on all sequences by a step."""
    for n_tokens, rows, color in shaded(joint, "n_tokens", ordered=True):
        steps = np.sort(rows["first_certified_all"].dropna().to_numpy(float))
        ends = np.concatenate([[0.0], steps, [float(joint["step"].max())]])
        shares = np.concatenate([[0.0], np.arange(1, len(steps) + 1), [len(steps)]]) / len(rows)
        label = f"L = {n_tokens} tokens: {len(steps)} of {len(rows)}"
        axes.step(ends, shares, where="post", color=color, lw=2, label=label)
    axes.set(title="both trained, small starts", xlim=(0, None), ylim=(0, 1.04))
    axes.set_xlabel("step")
    axes.set_ylabel("share of trainings certified\non all of $[L]^n$ by this step")
    axes.legend(loc="lower right")
