"""Learning by stages (figures 2, 6, 7 and 8 of Boix-Adserà et al. 2023, v1).

Times are rescaled: time / log(1 / init_scale). Dashed lines are Algorithm 1's, which knows no
scale; solid ones are the flow's. p = (a, b): the first half of the products are the diagonal of W_K
W_Qᵀ, the others that of W_V W_Oᵀ.
"""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.marks import THEORY, directions, shade, unit_points, where
from lib.pages.panels import power, powers_below, shared_legend, sized
from lib.pages.style import (
    INITIAL_COLOR,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    VIRIDIS,
    frame,
    number_panel,
)

# a problem's name, and the trajectories, stages and errors of the seed that is drawn
Case = tuple[str, pd.DataFrame, pd.DataFrame, pd.DataFrame]
MOVED = 0.05  # the share of its largest entry from which a product is seen to move


def entries_and_singular_values(
    trajectory: pd.DataFrame,
    stages: pd.DataFrame,
    full: pd.DataFrame,
    rises: pd.DataFrame,
    d_full: int,
) -> Figure:
    """Figure 2: the diagonals' entries by rescaled time, and the singular values of full matrices.

    The full matrices have the width `d_full`. The dotted line is when their first direction must
    rise, by the finite-scale form.
    """
    figure, panels = plt.subplots(2, 2, figsize=(9.6, 5.8))
    scale, full_scale = (float(table["log10_init_scale"].min()) for table in (trajectory, full))
    d = len(trajectory["p"].iloc[0]) // 2
    own = rises[(rises["log10_init_scale"] == full_scale) & rises["seed"].isin(full["seed"])]
    rows, full = (
        where(t, log10_init_scale=s) for t, s in ((trajectory, scale), (full, full_scale))
    )
    for column, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        above, below = panels[:, column]
        draw_entries(above, rows, stages, matrix)
        above.set(
            title=f"diagonal weights, d = {d}, init scale {power(scale)}",
            ylabel=f"diagonal entries of {name}",
        )
        chosen = where(full, matrix=matrix).sort_values("step")
        values = np.stack(list(chosen["singular_values"]))
        directions(below, chosen["rescaled_time"], values[:, :d_full], shade, lw=1.5)
        for when in own["finite"] if matrix == "W_VO" else ():
            below.axvline(when / (-full_scale * np.log(10)), color="black", ls=":", lw=1)
        below.set(
            title=f"full weights, d = {d_full}, init scale {power(full_scale)}",
            ylabel=f"singular values of {name}",
        )
        below.set(xlabel="time / log(1 / init scale)", ylim=(0, None))
        below.set_xlim(0, chosen["rescaled_time"].max())
    panels[0][0].plot([], [], color=VIRIDIS(0.3), label="gradient flow")
    panels[0][0].plot([], [], **THEORY, lw=0.9, label="Algorithm 1, the limit")
    panels[0][0].plot(
        [], [], ":", color="black", lw=1, label="first rise of the full matrices, finite-scale form"
    )
    shared_legend(figure, panels[0][0])
    return figure


def full_matrices(rises: pd.DataFrame, ratios: pd.DataFrame) -> Figure:
    """The head with full matrices: errors of its first rise, the order of the rises, and stable
    ranks.

    A point is a seed. `limit` is 1 / σ₁ of the gradient at 0, `finite` counts the scale of the
    start, and `stepped` counts the steps of descent, too.
    """
    KQ = MATRIX_NAMES["W_KQ"]
    VO = MATRIX_NAMES["W_VO"]
    figure, (error, order, rank) = plt.subplots(1, 3, figsize=(11.4, 3.7))
    number_panel(order)
    for n, (name, color) in enumerate(
        (("limit", NULL_COLOR), ("finite", MATRIX_COLORS["W_VO"]), ("stepped", "black"))
    ):
        off = (rises[name] / rises["time"] - 1).abs()
        error.plot(-rises["log10_init_scale"] * 1.04**n, off, "o", color=color, ms=4.5, label=name)
    error.set(yscale="log", ylabel="error of the first rise")
    scale_axis(error, -rises["log10_init_scale"])
    error.legend(loc="upper right")
    error.set_ylim(top=2)
    columns = {
        "first_KQ_over_first_VO": f"first of {KQ}",
        "second_over_first_VO": f"second of {VO}",
    }
    for n, column in enumerate(columns):
        unit_points(order, n, ratios[column], MATRIX_COLORS["W_KQ"], ms=5)
    order.axhline(1, **THEORY, lw=1)
    order.set_xticks(range(2), labels=list(columns.values()), fontsize=8)
    order.set(ylabel=f"rise / first rise of {VO}", xlim=(-0.5, 1.5))
    columns = {
        "first_stable_rank_VO": f"{VO},\nfirst risen",
        "final_stable_rank_VO": f"{VO},\nend",
        "final_stable_rank_KQ": f"{KQ},\nend",
    }
    for n, column in enumerate(columns):
        unit_points(rank, n, ratios[column], MATRIX_COLORS["W_VO"], ms=5)
    rank.set_xticks(range(3), labels=list(columns.values()), fontsize=8)
    rank.set(ylabel="stable rank", xlim=(-0.5, 2.5), ylim=(0.9, None))
    return figure


def losses_by_scale(cases: list[Case]) -> Figure:
    """Figure 6: the loss by rescaled time, with a line per scale and a panel per problem.

    A problem is given as (name, trajectories, ...). The first panel is the studied problem's.
    """
    size = sized(0.6 + 4.1 * len(cases), 4.4)
    figure, panels = plt.subplots(1, len(cases), figsize=size, sharey=True, squeeze=False)
    for axes, (name, trajectory, stages, _) in zip(panels[0], cases, strict=True):
        scales = _scales(trajectory)
        for n, scale in enumerate(scales):
            rows = where(trajectory, log10_init_scale=scale)
            look = {"color": shade(n, len(scales), 0.85), "lw": 1.5, "label": power(scale)}
            axes.plot(rows["rescaled_time"], rows["loss"], **look)
        time, loss = stairs(stages, float(trajectory["rescaled_time"].max()), stages["loss"])
        axes.plot(time, loss, **THEORY, lw=1.1, label="Algorithm 1")
        axes.set(ylim=(0, None), xlim=_window(stages), title=name)
        axes.set_xlabel("time / log(1 / init scale)")
        corner = "lower left" if _window(stages)[0] > 0 else "upper right"
        axes.legend(title="init scale", loc=corner, fontsize=8, title_fontsize=8)
    panels[0][0].set_ylabel("loss / loss at 0")
    number_panel(panels[0][0])
    return figure


def loss_frames(case: Case) -> Figure:
    """The loss of one problem by rescaled time, a frame per scale: the staircase as it sharpens."""
    name, trajectory, stages, _ = case
    scales = _scales(trajectory)
    size = (6.6, 3.3 * len(scales))
    apart = {"hspace": 0.06}  # frames do not touch
    figure, panels = plt.subplots(len(scales), 1, figsize=size, squeeze=False, gridspec_kw=apart)
    for axes, scale in zip(panels[:, 0], scales, strict=True):
        rows = where(trajectory, log10_init_scale=scale)
        time, loss = stairs(stages, float(rows["rescaled_time"].max()), stages["loss"])
        look = {"color": MATRIX_COLORS["W_KQ"], "lw": 2, "label": "gradient flow"}
        axes.plot(rows["rescaled_time"], rows["loss"], **look)
        axes.plot(time, loss, **THEORY, lw=1.1, label="Algorithm 1")
        axes.set(ylim=(0, 1.05), xlim=_window(stages), xlabel="time / log(1 / init scale)")
        axes.set(ylabel="loss / loss at 0", title=f"{name}, init scale {power(scale)}")
        axes.legend(loc="upper right")
        frame(f"1e{scale:g}", axes)
    return figure


def entries_by_scale(cases: list[Case], matrix: str) -> Figure:
    """Figures 7 and 8: diagonal entries of a product by rescaled time.

    There is a row per problem and a column for each of three scales: the largest, a middle and the
    least from which an entry moves in the time that is drawn.
    """
    shown = []
    for name, trajectory, stages, errors in cases:
        seen = moving(trajectory, stages, matrix)
        shown.append((name, seen[seen["log10_init_scale"].isin(_three(seen))], stages, errors))
    columns = max(len(_scales(trajectory)) for _, trajectory, *_ in shown)
    size = sized(1.0 + 3.6 * columns, 0.5 + 3.1 * len(shown))
    figure, panels = plt.subplots(len(shown), columns, figsize=size, sharey="row", squeeze=False)
    for row, (name, trajectory, stages, errors) in zip(panels, shown, strict=True):
        scales = _scales(trajectory)
        for axes, scale in zip(row, scales, strict=False):
            draw_entries(axes, where(trajectory, log10_init_scale=scale), stages, matrix)
            axes.set(xlim=_window(stages), xlabel="time / log(1 / init scale)")
            _describe(axes, scale, errors)
        for axes in row[len(scales) :]:
            axes.axis("off")
        row[0].set_ylabel(f"{name}\nentries of {MATRIX_NAMES[matrix]}")
    last = panels[-1][0]
    last.plot([], [], color=shade(1, 2, 0.5), label="gradient flow, in the order of joining")
    last.plot([], [], **THEORY, lw=0.9, label="Algorithm 1")
    shared_legend(figure, last, loc="outside upper center")
    return figure


def _three(trajectory: pd.DataFrame) -> list[float]:
    """The largest init scale, a middle one and the least; all where there are fewer."""
    scales = _scales(trajectory)
    return sorted({scales[0], scales[len(scales) // 2], scales[-1]})


def moving(trajectory: pd.DataFrame, stages: pd.DataFrame, matrix: str) -> pd.DataFrame:
    """The trajectories from scales from which a product is seen to move; all if there are none."""
    p = np.abs(np.stack(list(trajectory["p"])))
    half = p.shape[1] // 2
    own = p[:, :half] if matrix == "W_KQ" else p[:, half:]
    seen = own.max(1) > MOVED * own.max()
    seen &= trajectory["rescaled_time"].to_numpy() <= _window(stages)[1]
    scales = trajectory.loc[seen, "log10_init_scale"].unique()
    return trajectory[trajectory["log10_init_scale"].isin(scales)] if len(scales) else trajectory


def draw_entries(axes: Axes, rows: pd.DataFrame, stages: pd.DataFrame, matrix: str) -> None:
    """The entries of one diagonal by rescaled time, coloured in the order in which they join."""
    p = np.stack(list(rows["p"]))
    time, theory = stairs(stages, float(rows["rescaled_time"].max()), stages["p"])
    half = p.shape[1] // 2
    own = range(half) if matrix == "W_KQ" else range(half, 2 * half)
    order = [i for i in dict.fromkeys(stages["coordinate"].tolist()) if i in own]
    for i in own:
        if i not in order:
            axes.plot(rows["rescaled_time"], p[:, i], color=INITIAL_COLOR, lw=0.7)
    for n, i in enumerate(order):
        color = shade(n, len(order))
        axes.plot(rows["rescaled_time"], p[:, i], color=color, lw=1.4)
        axes.plot(time, theory[:, i], **THEORY, lw=0.8)
    axes.set_xlim(0, rows["rescaled_time"].max())


def scale_axis(axes: Axes, logs: pd.Series, **text: Any) -> None:
    """Make an axis of -log10 of init scales show the scales."""
    axes.set(xscale="log", xlabel="init scale")
    powers_below(axes, -logs, **text)
    axes.minorticks_off()


def draw_products(
    axes: Axes,
    rows: pd.DataFrame,
    stages: pd.DataFrame,
    end: float,
    *,
    widths: tuple[float, float] = (1.3, 0.8),
    label: str | None = None,
) -> None:
    """The products of one run by rescaled time, coloured by their place, and Algorithm 1's, dashed
    up to the time `end`; both lines have their `widths`.
    """
    p = np.stack(list(rows["p"]))
    solid, dashed = widths
    time, theory = stairs(stages, end, stages["p"])
    for i in range(p.shape[1]):
        color = shade(i, p.shape[1], 0.95)
        axes.plot(rows["rescaled_time"], p[:, i], color=color, lw=solid)
        if np.abs(theory[:, i]).max() > 0:
            axes.plot(time, theory[:, i], **THEORY, lw=dashed, label=label if i == 0 else None)


def _scales(trajectory: pd.DataFrame) -> list[float]:
    return sorted(map(float, trajectory["log10_init_scale"].unique()), reverse=True)


def _window(stages: pd.DataFrame) -> tuple[float, float]:
    """The times that are drawn.

    They begin at 0, or a little before the first stage where that is late, and end a while after
    the last stage, or at its end.
    """
    last = float(stages["time"].max()) or 1.0
    first = float(stages["time"].iloc[min(1, len(stages) - 1)])
    until = (1.12 if first < 0.5 * last else 1.35) * last
    return (0.0 if first < 0.5 * last else 0.9 * first), min(
        until, float(stages["next_time"].iloc[-1])
    )


def stairs(stages: pd.DataFrame, end: float, values: object) -> tuple[np.ndarray, np.ndarray]:
    """The times and values of the staircase, two points per stage.

    It ends at `end`, or at the end of the last plateau.
    """
    begin = stages["time"].to_numpy()
    last = float(stages["next_time"].iloc[-1])
    until = np.append(begin[1:], max(min(end, last), begin[-1]))
    heights = np.stack([np.asarray(v, float) for v in values])  # pyright: ignore
    return np.stack([begin, until], 1).ravel(), np.repeat(heights, 2, axis=0)


def _describe(axes: Axes, scale: float, errors: pd.DataFrame) -> None:
    """Put the scale, and how far the flow is from the plateaus, above a panel."""
    found = where(errors, log10_init_scale=scale)["plateau_product_error"]
    error = float(found.iloc[0]) if len(found) else np.nan
    off = f"; products off by {error:.1g}" if np.isfinite(error) else ""
    axes.set_title(f"init scale {power(scale)}{off}", fontsize=9)
