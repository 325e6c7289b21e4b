"""Learning by stages (figures 2, 6, 7 and 8 of Boix-Adserà et al. 2023, v1), and the stages as a
table.

Times are rescaled: time / log(1 / init_scale). Dashed lines are Algorithm 1's, which knows no
scale; solid ones are the flow's. p = (a, b): the first half of the products are the diagonal of W_K
W_Qᵀ, the others that of W_V W_Oᵀ.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.style import MATRIX_COLORS, MATRIX_NAMES, NULL_COLOR, VIRIDIS, sized


def entries_and_singular_values(
    trajectory: pd.DataFrame,
    stages: pd.DataFrame,
    full: pd.DataFrame,
    rises: pd.DataFrame,
    d_full: int,
) -> Figure:
    """Figure 2: the diagonals' entries by rescaled time, and the singular values of a head of width
    `d_full`.

    Dotted: when the first direction of the full matrices must rise, by the finite-scale form.
    """
    figure, panels = plt.subplots(2, 2, figsize=(9.6, 5.8))
    scale, full_scale = (float(table["log10_init_scale"].min()) for table in (trajectory, full))
    d = len(trajectory["p"].iloc[0]) // 2
    own = rises[(rises["log10_init_scale"] == full_scale) & rises["seed"].isin(full["seed"])]
    rows, full = (
        t[t["log10_init_scale"] == s] for t, s in ((trajectory, scale), (full, full_scale))
    )
    for column, (matrix, name) in enumerate(MATRIX_NAMES.items()):
        above, below = panels[:, column]
        draw_entries(above, rows, stages, matrix)
        above.set(
            title=f"diagonal weights, d = {d}, init scale {power(scale)}",
            ylabel=f"diagonal entries of {name}",
        )
        chosen = full[full["matrix"] == matrix].sort_values("step")
        values = np.stack(list(chosen["singular_values"]))
        for i in reversed(range(min(d_full, values.shape[1]))):
            color = VIRIDIS(0.9 * i / max(1, d_full - 1))
            below.plot(chosen["rescaled_time"], values[:, i], color=color, lw=1.5)
        for when in own["finite"] if matrix == "W_VO" else ():
            below.axvline(when / (-full_scale * np.log(10)), color="black", ls=":", lw=1)
        below.set(
            title=f"full weights, d = {d_full}, init scale {power(full_scale)}",
            ylabel=f"singular values of {name}",
        )
        below.set(xlabel="time / log(1 / init scale)", ylim=(0, None))
        below.set_xlim(0, chosen["rescaled_time"].max())
    panels[0][0].plot([], [], color=VIRIDIS(0.3), label="gradient flow")
    panels[0][0].plot([], [], "--", color="black", lw=0.9, label="Algorithm 1, the limit")
    panels[0][0].plot(
        [], [], ":", color="black", lw=1, label="first rise of the full matrices, finite-scale form"
    )
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def full_matrices(rises: pd.DataFrame, ratios: pd.DataFrame) -> Figure:
    """The head with full matrices: errors of its first rise, the order of the rises, stable ranks;
    one point per seed.

    `limit` is 1 / σ₁ of the gradient at 0, `finite` counts the scale of the start, `stepped` the
    steps of descent, too.
    """
    KQ = MATRIX_NAMES["W_KQ"]
    VO = MATRIX_NAMES["W_VO"]
    figure, (error, order, rank) = plt.subplots(1, 3, figsize=(11.4, 3.7))
    for n, (name, color) in enumerate(
        (("limit", NULL_COLOR), ("finite", MATRIX_COLORS["W_VO"]), ("stepped", "black"))
    ):
        off = (rises[name] / rises["time"] - 1).abs()
        error.plot(-rises["log10_init_scale"] * 1.04**n, off, "o", color=color, ms=4.5, label=name)
    scales = sorted(-rises["log10_init_scale"].unique())
    error.set(xscale="log", yscale="log", xlabel="init scale", ylabel="error of the first rise")
    error.set_xticks(scales, labels=[power(-float(x)) for x in scales])
    error.minorticks_off()
    error.legend(loc="upper right")
    error.set_ylim(top=2)
    columns = {
        "first_KQ_over_first_VO": f"first of {KQ}",
        "second_over_first_VO": f"second of {VO}",
    }
    for n, column in enumerate(columns):
        order.plot(np.full(len(ratios), n), ratios[column], "o", color=MATRIX_COLORS["W_KQ"], ms=5)
    order.axhline(1, color="black", ls="--", lw=1)
    order.set_xticks(range(2), labels=list(columns.values()), fontsize=8)
    order.set(ylabel=f"rise / first rise of {VO}", xlim=(-0.5, 1.5))
    columns = {
        "first_stable_rank_VO": f"{VO},\nfirst risen",
        "final_stable_rank_VO": f"{VO},\nend",
        "final_stable_rank_KQ": f"{KQ},\nend",
    }
    for n, column in enumerate(columns):
        rank.plot(np.full(len(ratios), n), ratios[column], "o", color=MATRIX_COLORS["W_VO"], ms=5)
    rank.set_xticks(range(3), labels=list(columns.values()), fontsize=8)
    rank.set(ylabel="stable rank", xlim=(-0.5, 2.5), ylim=(0.9, None))
    return figure


def losses_by_scale(cases: list[tuple[str, pd.DataFrame, pd.DataFrame, pd.DataFrame]]) -> Figure:
    """Figure 6: the loss by rescaled time; one column per scale, one row per problem, as (name,
    trajectories, ...).
    """
    figure, panels = _grid(cases)
    for row, (name, trajectory, stages, errors) in zip(panels, cases, strict=True):
        for axes, scale in zip(row, _scales(trajectory), strict=False):
            rows = trajectory[trajectory["log10_init_scale"] == scale]
            time, loss = _steps(
                stages, float(rows["rescaled_time"].max()), [[x] for x in stages["loss"]]
            )
            axes.plot(
                rows["rescaled_time"],
                rows["loss"],
                color=MATRIX_COLORS["W_KQ"],
                label="gradient flow",
            )
            axes.plot(time, loss[:, 0], "--", color="black", lw=0.9, label="Algorithm 1")
            axes.set(ylim=(0, None), xlim=_window(stages))
            _describe(axes, scale, errors, name)
        row[0].set_ylabel(f"{name}\nloss / loss at 0")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def entries_by_scale(
    cases: list[tuple[str, pd.DataFrame, pd.DataFrame, pd.DataFrame]], matrix: str
) -> Figure:
    """Figures 7 and 8: diagonal entries of a product by rescaled time; one column per scale, one
    row per problem.
    """
    figure, panels = _grid(cases)
    for row, (name, trajectory, stages, errors) in zip(panels, cases, strict=True):
        for axes, scale in zip(row, _scales(trajectory), strict=False):
            draw_entries(axes, trajectory[trajectory["log10_init_scale"] == scale], stages, matrix)
            axes.set_xlim(_window(stages))
            _describe(axes, scale, errors, name)
        row[0].set_ylabel(f"{name}\nentries of {MATRIX_NAMES[matrix]}")
    return figure


def draw_entries(axes: Axes, rows: pd.DataFrame, stages: pd.DataFrame, matrix: str) -> None:
    """The entries of one diagonal by rescaled time, coloured in the order in which they join."""
    p = np.stack(list(rows["p"]))
    time, theory = _steps(stages, float(rows["rescaled_time"].max()), stages["p"])
    half = p.shape[1] // 2
    own = range(half) if matrix == "W_KQ" else range(half, 2 * half)
    order = [i for i in dict.fromkeys(stages["coordinate"].tolist()) if i in own]
    for i in own:
        if i not in order:
            axes.plot(rows["rescaled_time"], p[:, i], color=NULL_COLOR, lw=0.7, alpha=0.6)
    for n, i in enumerate(order):
        color = VIRIDIS(0.9 * n / max(1, len(order) - 1))
        axes.plot(rows["rescaled_time"], p[:, i], color=color, lw=1.4)
        axes.plot(time, theory[:, i], "--", color="black", lw=0.8)
    axes.set_xlim(0, rows["rescaled_time"].max())


def stage_table(name: str, stages: pd.DataFrame, activations: pd.DataFrame, scale: float) -> Figure:
    """The stages of one run: what joins and when, by Algorithm 1, by its finite-scale form, and in
    the flow.

    Beside it, where there is a control: when the flow with the sign of g flipped, from its own
    scale, makes the same activation.
    """
    half = len(stages["p"].iloc[0]) // 2
    at_scale = activations[activations["log10_init_scale"] == scale].set_index("stage")
    timed = {
        f"finite {power(scale)}": at_scale["finite"],
        f"flow {power(scale)}": at_scale["measured"],
    }
    control = (
        float(activations["flipped_scale"].max()) if "flipped_scale" in activations else np.nan
    )
    if not np.isnan(control):
        timed[f"g flipped {power(control)}"] = at_scale["flipped"]
    header = [
        "stage",
        "joins",
        "T: limit",
        *timed,
        "relative gap",
        "lr limit",
        "loss / loss at 0",
        "leaves",
    ]
    rows = []
    for stage in stages[stages["stage"] > 0].to_dict("records"):
        times = [float(column.get(stage["stage"], np.inf)) for column in timed.values()]
        gap = float(stage["gap"] / stage["next_time"])
        limit = float(stage["learning_rate_limit"])
        rows.append(
            [
                str(stage["stage"]),
                _entry(stage["coordinate"], half, "+" if stage["sign"] > 0 else "−"),
                f"{stage['time']:.2f}",
                *(f"{t:.2f}" if np.isfinite(t) else "–" for t in times),
                f"{gap:.2%}" if np.isfinite(gap) else "–",
                f"{limit:.3g}" if np.isfinite(limit) else "–",
                f"{stage['loss']:.4f}",
                ", ".join(_entry(i, half) for i in stage["dropped"]),
            ]
        )
    figure, axes = plt.subplots(figsize=(len(header) - 0.4, 0.8 + 0.24 * (len(rows) + 1)))
    axes.axis("off")
    axes.set_title(f"{name}; the stages of one seed, times over log(1 / init scale)")
    table = axes.table(
        rows, colLabels=header, loc="upper center", cellLoc="center", edges="horizontal"
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for (row, _), cell in table.get_celld().items():
        cell.set(linewidth=0.3 if row else 1.0, height=1 / (len(rows) + 1.5))
    table.auto_set_column_width(list(range(len(header))))
    return figure


def power(log10_scale: float) -> str:
    """The init scale as a power of ten."""
    return f"$10^{{{log10_scale:g}}}$"


def _entry(i: int, half: int, sign: str = "") -> str:
    return f"{'KQ' if i < half else 'VO'} {i % half}{sign and ' ' + sign}"


def _scales(trajectory: pd.DataFrame) -> list[float]:
    return sorted(map(float, trajectory["log10_init_scale"].unique()), reverse=True)


def _window(stages: pd.DataFrame) -> tuple[float, float]:
    """From 0, or from a little before the first stage where that is late, to a while after the
    last, or to its end.
    """
    last = float(stages["time"].max()) or 1.0
    first = float(stages["time"].iloc[min(1, len(stages) - 1)])
    until = (1.12 if first < 0.5 * last else 1.35) * last
    return (0.0 if first < 0.5 * last else 0.9 * first), min(
        until, float(stages["next_time"].iloc[-1])
    )


def _steps(stages: pd.DataFrame, end: float, values: object) -> tuple[np.ndarray, np.ndarray]:
    """Times and values of the staircase, two points a stage, to the end or to that of the last
    plateau.
    """
    begin = stages["time"].to_numpy()
    last = float(stages["next_time"].iloc[-1])
    until = np.append(begin[1:], max(min(end, last), begin[-1]))
    heights = np.stack([np.asarray(v, float) for v in values])  # pyright: ignore
    return np.stack([begin, until], 1).ravel(), np.repeat(heights, 2, axis=0)


def _grid(
    cases: list[tuple[str, pd.DataFrame, pd.DataFrame, pd.DataFrame]],
) -> tuple[Figure, np.ndarray]:
    columns = max(len(_scales(case[1])) for case in cases)
    figure, panels = plt.subplots(
        len(cases),
        columns,
        figsize=sized(1.0 + 2.0 * columns, 0.9 + 2.6 * len(cases)),
        sharey="row",
        squeeze=False,
    )
    for row, case in zip(panels, cases, strict=True):
        for axes in row[len(_scales(case[1])) :]:
            axes.axis("off")
    figure.supxlabel("time / log(1 / init scale)", fontsize=9.5)
    return figure, panels


def _describe(axes: Axes, scale: float, errors: pd.DataFrame, name: str) -> None:
    """The scale, and how far the flow is from the plateaus."""
    found = errors[errors["log10_init_scale"] == scale]["plateau_loss_error"]
    error = float(found.iloc[0]) if len(found) else np.nan
    axes.set_title(f"{power(scale)}: loss\noff by {error:.1g}", fontsize=9)
