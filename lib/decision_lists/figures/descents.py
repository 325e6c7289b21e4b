"""Gradient descent on decision lists: as the theorems have it, from other starts, by minibatches,
and controls.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lib.pages.style import BLUE, BOUND_COLOR, GREEN, NULL_COLOR, ORANGE, READ_WIDTH, VIRIDIS, sized

NOISE_COLORS = {"none": BLUE, "uniform": GREEN, "adversarial": ORANGE}
RIGHT = GREEN


def descents_on_both(both: pd.DataFrame, courses: pd.DataFrame) -> Figure:
    """Part 2: the loss, the step size times the curvature, the steps that were needed, and what the
    theorem says.
    """
    figure, ((loss, curvature, hard), (ratio, near, lemma)) = plt.subplots(
        2, 3, figsize=(READ_WIDTH, 7.2)
    )
    for (task, noise), rows in courses.groupby(["task", "noise"], sort=False, observed=True):
        uniform = both["law"][both["task"] == task].iloc[0] == "uniform"
        line = {"color": NOISE_COLORS[str(noise)], "lw": 1.1, "ls": ":" if uniform else "-"}
        loss.plot(rows["step"] + 1, rows["loss"], **line)
        loss.plot(
            rows["step"].iloc[-1] + 1, rows["loss"].iloc[-1], "o", ms=3.5, color=line["color"]
        )
        curvature.plot(rows["step"] + 1, rows["step_times_curvature"], **line)
    noises = [
        Line2D([], [], color=color, label=f"noise of V₀: {noise}")
        for noise, color in NOISE_COLORS.items()
    ]
    figure.legend(handles=noises, loc="outside upper center", ncols=3)
    loss.plot([], [], ":", color="black", label="uniform law")
    loss.plot([], [], "o", ms=3.5, color="black", label="all sequences right")
    loss.legend(fontsize=7.5)
    loss.set(xscale="log", yscale="log", xlabel="step + 1", ylabel="population loss")
    curvature.axhline(1, color=BOUND_COLOR, ls="--", label="assumption: at most 1 on the way")
    curvature.set(
        xscale="log",
        yscale="log",
        xlabel="step + 1",
        ylabel="step size · largest curvature, at the steps",
    )
    curvature.legend(fontsize=7.5, loc="lower left")
    runs = both.reset_index(drop=True)
    labels = [f"{row.law}, n = {row.seq_len}, m = {row.length}" for row in runs.itertuples()]
    order = {name: i for i, name in enumerate(dict.fromkeys(runs["task"]))}
    y = np.array([len(order) - 1 - order[task] for task in runs["task"]], float)
    names = [labels[list(runs["task"]).index(task)] for task in order]
    for i, (noise, color) in enumerate(NOISE_COLORS.items()):
        rows, at = (
            runs[runs["noise"] == noise],
            y[(runs["noise"] == noise).to_numpy()] + 0.22 * (1 - i),
        )
        right = (rows["margin"] > 0).to_numpy()
        hard.plot(rows["delta"], rows["n_steps"], "o", ms=4.5, color=color)
        for chosen, fill in ((right, color), (~right, "none")):
            ratio.plot(
                (rows["n_steps"] / rows["earliest"])[chosen],
                at[chosen],
                "o",
                ms=4.5,
                color=color,
                mfc=fill,
            )
        near.plot(rows["deviation"] / rows["epsilon"], at, "o", ms=4.5, color=color)
        lemma.plot(rows["failures"], at, "o", ms=4.5, color=color)
    hard.set(xscale="log", yscale="log", xlabel="δ: the rarest sequence's probability")
    hard.set_ylabel("steps until all is right")
    ratio.set(xscale="log", xlabel="steps until all is right ÷ the earliest T")
    ratio.set_yticks(range(len(order)), labels=list(reversed(names)), fontsize=7.5)
    near.set(xlabel="largest |V − cP| ÷ ε", xlim=(-0.05, 1.1))
    lemma.set(
        xlabel="steps that break the descent lemma",
        xlim=(-0.5, max(3, runs["failures"].max() + 0.5)),
    )
    for axes, at, rule in ((ratio, 1, "at most 1"), (near, 1, "at most 1"), (lemma, 0, "none")):
        axes.axvline(at, color=BOUND_COLOR, ls="--")
        axes.set_title(f"theorem: {rule}", color=BOUND_COLOR, fontsize=9)
        axes.set_ylim(-0.6, len(order) - 0.4)
    for axes in (near, lemma):
        axes.set_yticks(range(len(order)), labels=[])
    return figure


def descents_alone(alone: pd.DataFrame) -> Figure:
    """Part 1 by gradient descent: steps over the bound, step size times curvature, and the descent
    lemma, by task.
    """
    figure, panels = plt.subplots(1, 3, figsize=(10.6, 3.4), sharey=True)
    names = [
        f"{r.law}, L = {r.n_tokens}, n = {r.seq_len}, M = {r.length}" for r in alone.itertuples()
    ]
    y = np.arange(len(alone))
    fits = alone[["step_times_curvature", "on_a_finer_grid"]].max(axis=1)
    wanted = [
        (
            alone["n_steps"] / alone["bound"],
            "steps until all is certified right ÷ bound",
            "theorem: at most 1",
            1,
        ),
        (fits, "step size · largest curvature on the way", "assumption: at most 1", 1),
        (alone["failures"], "steps that break the descent lemma", "theorem: none", 0),
    ]
    for axes, (values, label, rule, at) in zip(panels, wanted, strict=True):
        right = (alone["margin"] > 0).to_numpy()
        for chosen, fill in ((right, NOISE_COLORS["none"]), (~right, "none")):
            axes.plot(values[chosen], y[chosen], "o", ms=5, color=NOISE_COLORS["none"], mfc=fill)
        axes.axvline(at, color=BOUND_COLOR, ls="--")
        axes.set(xlabel=label)
        axes.set_title(rule, color=BOUND_COLOR, fontsize=9)
    panels[0].set(xscale="log")
    panels[1].set(xlim=(0.9, 1.02))
    panels[2].set(xlim=(-0.5, max(3, alone["failures"].max() + 0.5)))
    panels[0].set_yticks(y, labels=names, fontsize=7.5)
    return figure


def outcomes(tables: dict[str, pd.DataFrame]) -> Figure:
    """From which starts training ends with everything right, what controls reach, and when small
    starts are certified.

    One point per run.
    """
    shown = [
        (name, key, title)
        for name, key, title in (
            ("starts", "start", "both trained, from these starts"),
            ("controls", "control", "controls"),
        )
        if name in tables
    ]
    figure, panels = plt.subplots(
        1, len(shown) + 1, figsize=sized(5.0 * (len(shown) + 1), 3.6), squeeze=False
    )
    for axes, (name, key, title) in zip(panels[0], shown, strict=False):
        table = tables[name]
        names = list(dict.fromkeys(table[key].astype(str)))
        for y, one in enumerate(reversed(names)):
            _strip(axes, table[table[key] == one]["accuracy"].to_numpy(), y)
        axes.set_yticks(range(len(names)), labels=list(reversed(names)))
        axes.set(title=title, xlabel="share of positions right at the end", xlim=(-0.02, 1.04))
    _certified(panels[0][-1], tables["joint"])
    figure.suptitle("filled: all sequences right")
    return figure


def _strip(axes: Axes, values: np.ndarray, y: float) -> None:
    offsets = np.linspace(-0.2, 0.2, len(values)) if len(values) > 1 else np.zeros(1)
    right = values > 1 - 1e-9
    axes.plot(values[right], y + offsets[right], "o", ms=4.5, color=RIGHT)
    axes.plot(values[~right], y + offsets[~right], "o", ms=4.5, mfc="none", color=NULL_COLOR)


def _certified(axes: Axes, joint: pd.DataFrame) -> None:
    """When each run from a small random start is certified on all sequences; at the last step,
    hollow, if it is not.
    """
    tasks = list(dict.fromkeys(joint["task"].astype(str)))
    for y, task in enumerate(reversed(tasks)):
        rows = joint[joint["task"] == task]
        certified = rows["certified_all"].to_numpy(bool)
        steps = rows["first_certified_all"].fillna(rows["step"]).to_numpy()
        axes.plot(steps[certified], np.full(certified.sum(), y), "o", ms=4, color=RIGHT)
        axes.plot(
            steps[~certified],
            np.full((~certified).sum(), y),
            "o",
            ms=4,
            mfc="none",
            color=NULL_COLOR,
        )
    axes.set_yticks(range(len(tasks)), labels=list(reversed(tasks)), fontsize=7.5)
    axes.set(title="both trained, small starts", xlim=(0, None))
    axes.set_xlabel("step at which all of $[L]^n$ is certified")


def minibatches(table: pd.DataFrame) -> Figure:
    """The loss of each batch, and when the weights are certified; a line per seed."""
    figure, axes = plt.subplots(figsize=(5.2, 3.4))
    seeds = sorted(table["seed"].unique())
    for i, seed in enumerate(seeds):
        rows = table[table["seed"] == seed]
        color = VIRIDIS(0.9 * i / max(1, len(seeds) - 1))
        axes.plot(rows["step"], rows["loss"], color=color, lw=1.2)
        sets, every = rows["certified_sets"].to_numpy(bool), rows["certified_all"].to_numpy(bool)
        for chosen, marker, fill in (
            (~sets, "o", "none"),
            (sets & ~every, "o", color),
            (every, "s", color),
        ):
            axes.plot(
                rows["step"][chosen], rows["loss"][chosen], marker, ms=5.5, color=color, mfc=fill
            )
    axes.plot([], [], "o", mfc="none", color="black", label="not certified")
    axes.plot([], [], "o", color="black", label="every sequence of distinct tokens certified")
    axes.plot([], [], "s", color="black", label="all of $[L]^n$ certified")
    axes.set(yscale="log", xlabel="step", ylabel="loss of the batch")
    axes.set_title(
        f"L = {table['n_tokens'].iloc[0]}, {table['batch_size'].iloc[0]} fresh sequences a step"
    )
    axes.legend(fontsize=7.5)
    return figure
