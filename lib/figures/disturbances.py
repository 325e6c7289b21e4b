"""What comes back after a disturbance (figures 9 and 10 of Boix-Adserà et al. 2023, v1; Assumptions 4.2, 4.3, 4.4)."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.figures.style import INITIAL_COLOR, MATRIX_COLORS, NULL_COLOR, VIRIDIS

NOISE_COLORS = {"balanced": MATRIX_COLORS["W_KQ"], "independent": MATRIX_COLORS["W_VO"], "none": NULL_COLOR}


def disturbed_paths(paths: pd.DataFrame, kind: str) -> Figure:
    """Figures 9 (`random` times) and 10 (times of a `rise`): each product, and undisturbed, dashed."""
    rows = paths[paths["kind"] == kind]
    points = sorted(rows["point"].unique())
    columns = max(1, min(3, len(points)))
    lines = max(1, -(-len(points) // columns))
    figure, panels = plt.subplots(
        lines, columns, figsize=(3.5 * columns, 0.5 + 2.5 * lines), sharex=True, squeeze=False
    )
    for axes in panels.flat[len(points) :]:
        axes.axis("off")
    for axes, point in zip(panels.flat, points, strict=False):
        own = rows[rows["point"] == point].sort_values("after")
        moved, still = (np.stack(list(own[name])) for name in ("p", "p_undisturbed"))
        for i in range(moved.shape[1]):
            color = VIRIDIS(0.9 * i / max(1, moved.shape[1] - 1))
            axes.plot(own["after"], moved[:, i], color=color, lw=1.3)
            axes.plot(own["after"], still[:, i], "--", color="black", lw=0.8)
        axes.set_title(f"disturbed at time {own['time'].iloc[0]:.0f}", fontsize=9)
    for axes in panels[-1]:
        axes.set_xlabel("time since the disturbance")
    for row in panels:
        row[0].set_ylabel("products p = u ⊙ v")
    panels[0][0].plot([], [], color=VIRIDIS(0.3), label="disturbed")
    panels[0][0].plot([], [], "--", color="black", lw=0.8, label="undisturbed")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def assumption_checks(
    stages: pd.DataFrame, returns: pd.DataFrame, kicks: pd.DataFrame, returned: float, near: float
) -> Figure:
    """Assumption 4.2 by gaps, 4.3 by strictness and by what comes back, 4.4 by stages begun elsewhere.

    Dashed: the share of a disturbance at which products are back, and the error of those on the same plateau.
    """
    figure, (gaps, strict, back, begun) = plt.subplots(1, 4, figsize=(14.2, 3.5), sharey=True)
    finite = stages[np.isfinite(stages["next_time"]) & np.isfinite(stages["gap"])]
    later = stages[stages["stage"] > 0]
    _shares(gaps, finite["gap"] / finite["next_time"], "black", f"{len(finite)} stages")
    gaps.set(xlabel="gap to the second candidate / its time", title="4.2: one coordinate at a time")
    for name, color in (("products", MATRIX_COLORS["W_KQ"]), ("weights", MATRIX_COLORS["W_VO"])):
        _shares(strict, later[f"strictness_{name}"], color, f"in {name}")
    strict.set(xlabel="least curvature on the support", title="4.3: every plateau is a strict minimum")
    random = returns[returns["kind"] == "random"]
    for noise in ("balanced", "independent"):
        rows = random[random["noise"] == noise]
        _shares(back, rows["ratio_products"], NOISE_COLORS[noise], f"products, {noise} noise")
        _shares(back, rows["ratio_weights"], NOISE_COLORS[noise], f"(u, v), {noise} noise", ls=":")
    back.axvline(returned, color=INITIAL_COLOR, ls="--", lw=1)
    back.set(xlabel="distance from the undisturbed, end / start", title="4.3: what is disturbed comes back")
    for noise in ("none", "balanced", "independent"):
        rows = kicks[kicks["noise"] == noise]
        _shares(begun, rows["error"].clip(lower=1e-8), NOISE_COLORS[noise], f"{noise} noise".replace("none", "no"))
    begun.axvline(near, color=INITIAL_COLOR, ls="--", lw=1)
    begun.set(xlabel="error of the products at the end", title="4.4: a stage begun nearby ends the same")
    gaps.set_ylabel("share of cases below")
    for axes in (gaps, strict, back, begun):
        axes.set(xscale="log", ylim=(0, 1.03))
        axes.legend(fontsize=7, loc="upper left")
    back.set_xlim(left=1e-9)
    return figure


def _shares(axes: Axes, values: pd.Series, color: str, label: str, ls: str = "-") -> None:
    """The empirical distribution of positive values."""
    ordered = np.sort(values.to_numpy(float))
    axes.step(
        ordered, np.arange(1, len(ordered) + 1) / max(1, len(ordered)), where="post", color=color, ls=ls, label=label
    )
