"""Gradient descent on decision lists, as the theorems have it and from other starts; controls."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lib.decision_lists.figures.lines import BOUND, LOG_LOG, SMALL, shaded
from lib.pages.style import BLUE, BOUND_COLOR, GREEN, LOST_COLOR, ORANGE, READ_WIDTH, sized

NOISE_COLORS = {"none": BLUE, "uniform": GREEN, "adversarial": ORANGE}
TRAININGS = (GREEN, LOST_COLOR)  # trainings that end right, and others


def descents_on_both(both: pd.DataFrame, courses: pd.DataFrame) -> Figure:
    """The loss, the curvature and the steps until all is right in part 2, beside the theorem."""
    figure, ((loss, curvature), (hard, ratio)) = plt.subplots(2, 2, figsize=(READ_WIDTH, 7.2))
    uniform = set(both["task"][both["law"] == "uniform"])
    for (task, noise), rows in courses.groupby(["task", "noise"], sort=False, observed=True):
        color = NOISE_COLORS[str(noise)]
        line = {"color": color, "lw": 1.1, "ls": ":" if task in uniform else "-"}
        steps = rows["step"] + 1
        loss.plot(steps, rows["loss"], **line)
        loss.plot(steps.iloc[-1], rows["loss"].iloc[-1], "o", ms=3.5, color=color)
        curvature.plot(steps, rows["step_times_curvature"], **line)
    noises = [
        Line2D([], [], color=color, label=f"noise of V₀: {noise}")
        for noise, color in NOISE_COLORS.items()
    ]
    figure.legend(handles=noises, loc="outside upper center", ncols=3)
    loss.plot([], [], ":", color="black", label="uniform law")
    loss.plot([], [], "o", ms=3.5, color="black", label="all sequences right")
    loss.legend(fontsize=SMALL)
    loss.set(**LOG_LOG, xlabel="step + 1", ylabel="population loss")
    curvature.axhline(1, **BOUND, label="assumption: at most 1 on the way")
    curvature.set(**LOG_LOG, xlabel="step + 1")
    curvature.set(ylabel="step size · largest curvature, at the steps")
    curvature.legend(fontsize=SMALL, loc="lower left")

    tasks = both.drop_duplicates("task")[::-1]  # from below
    rows_of = {task: y for y, task in enumerate(tasks["task"])}
    for i, (noise, color) in enumerate(NOISE_COLORS.items()):
        rows = both[both["noise"] == noise]
        at = np.array([rows_of[task] + 0.22 * (1 - i) for task in rows["task"]])
        hard.plot(rows["delta"], rows["n_steps"], "o", ms=4.5, color=color)
        ratios = (rows["n_steps"] / rows["earliest"]).to_numpy()
        right = (rows["margin"] > 0).to_numpy()
        _right_or_not(ratio, ratios, at, right, (color, color), ms=4.5)
    hard.set(**LOG_LOG, xlabel="δ: the rarest sequence's probability")
    hard.set_ylabel("steps until all is right")
    names = [f"{row.law}, n = {row.seq_len}, m = {row.length}" for row in tasks.itertuples()]
    ratio.set(xscale="log", xlabel="steps until all is right ÷ the earliest T")
    ratio.set_yticks(range(len(names)), labels=names, fontsize=SMALL)
    ratio.set_ylim(-0.6, len(names) - 0.4)
    ratio.axvline(1, **BOUND)
    ratio.set_title("theorem: at most 1", color=BOUND_COLOR, fontsize=9)
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

    For the `joint` trainings it is the step at which they are certified.
    """
    n = len(others) + 1
    figure, panels = plt.subplots(1, n, figsize=sized(5.0 * n, 3.6), squeeze=False)
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
    """Draw when each run is certified on all sequences; hollow, at the last step, if it is not."""
    tasks = list(shaded(joint, "task"))[::-1]
    for y, (_, rows, _) in enumerate(tasks):
        certified = rows["certified_all"].to_numpy(bool)
        steps = rows["first_certified_all"].fillna(rows["step"]).to_numpy()
        _right_or_not(axes, steps, np.full(len(rows), y), certified, TRAININGS, ms=4)
    axes.set_yticks(range(len(tasks)), labels=[task for task, _, _ in tasks], fontsize=SMALL)
    axes.set(title="both trained, small starts", xlim=(0, None))
    axes.set_xlabel("step at which all of $[L]^n$ is certified")
