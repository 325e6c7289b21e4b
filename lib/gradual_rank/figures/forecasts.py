"""Forecasts from a start alone, and gradient descent beside the flow.

The figures show ranks by budget, errors, and how close descents run to the edge of stability.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.marks import BOUND, THEORY, band, unit_points, where
from lib.pages.panels import power, shared_legend, sized
from lib.pages.style import LOST_COLOR, MATRIX_COLORS, NULL_COLOR, READ_WIDTH, VIRIDIS, number_panel

LIMIT = MATRIX_COLORS["W_KQ"]
FINITE = MATRIX_COLORS["W_VO"]


LOOKS = {
    "measured": {"color": LIMIT, "lw": 1.8},
    "finite": {"color": FINITE, "ls": "--", "lw": 1.4},
    "forecast": {"color": FINITE, "ls": "--", "lw": 1.4},
    "limit": {"color": NULL_COLOR, "ls": ":", "lw": 1.4},
}


def ranks_by_budget(ranks: pd.DataFrame, forecast: pd.DataFrame, seed: int) -> Figure:
    """How many directions a budget of time learns: as forecast from the start, in the limit, and as
    measured.
    """
    scales = [s for s in sorted(ranks["log10_init_scale"].unique(), reverse=True) if s <= -2]
    chosen = [scales[0], scales[len(scales) // 2], scales[-1]] if len(scales) > 3 else scales
    own = sorted(forecast["log10_init_scale"].unique(), reverse=True)
    columns = max(len(chosen), len(own), 1)
    figure, panels = plt.subplots(
        2, columns + 1, figsize=sized(3.3 * (columns + 1), 6.2), squeeze=False
    )
    for axes in panels[:, :-1].flat:
        axes.axis("off")
    of_head = {"finite": "forecast, finite scale", "limit": "Algorithm 1, the limit"}
    of_adapter = {"forecast": "forecast, finite scale"}
    time = "time / log(1 / init scale)"
    for row, shown, table, column, said, title, xlabel in (
        (panels[0], chosen, ranks, "rescaled_time", of_head, "head from 0", time),
        (panels[1], own, forecast, "time", of_adapter, "adapter (v = 0)", "time t of the flow"),
    ):
        for axes, scale in zip(row, shown, strict=False):
            rows = where(table, log10_init_scale=scale, seed=seed)
            axes.axis("on")
            for name, label in {"measured": "measured", **said}.items():
                axes.step(rows[column], rows[name], where="post", label=label, **LOOKS[name])
            axes.set(
                title=f"{title},\ninit scale $10^{{{scale:g}}}$", xlabel=xlabel, ylim=(0, None)
            )
        row[0].set_ylabel("rank: products above the threshold")
        _rank_errors(row[-1], table, list(said)[::-1])
    shared_legend(figure, panels[0][0])
    return figure


def _rank_errors(axes: Axes, table: pd.DataFrame, names: list[str]) -> None:
    """How far forecasts of the rank are from what is measured, over all budgets."""
    scales = sorted(table["log10_init_scale"].unique(), reverse=True)
    for name in names:
        gap = (table[name] - table["measured"]).abs()
        means = gap.groupby([table["log10_init_scale"], table["seed"]]).mean().groupby(level=0)
        mean, least, most = (getattr(means, f)().reindex(scales) for f in ("mean", "min", "max"))
        color = LOOKS[name]["color"]
        label = "limit" if name == "limit" else "finite scale"
        axes.plot(range(len(scales)), mean, color=color, marker="o", ms=3.5, label=label)
        band(axes, range(len(scales)), least, most, color)
    axes.set(xlabel="init scale", ylabel="mean |forecast − measured rank|", ylim=(0, None))
    axes.set_xticks(range(len(scales)), labels=[power(x) for x in scales])
    axes.set_title("error over seeds:\nmean, least, largest", fontsize=9)
    axes.legend()


def descents_beside_the_flow(
    descents: pd.DataFrame, stages: pd.DataFrame, drop: pd.DataFrame
) -> Figure:
    """Gradient descent in three arithmetics beside the flow.

    Panels show its error, how close to the edge it runs, and where one arithmetic is lost.
    """
    figure, ((error, drift), (edge, example)) = plt.subplots(
        2, 2, figsize=(READ_WIDTH, 6.6), width_ratios=[1, 1.2]
    )
    kinds = list(dict.fromkeys(zip(descents["form"], descents["share_of_limit"], strict=True)))
    for y, (form, share) in enumerate(reversed(kinds)):
        rows = where(descents, form=form, share_of_limit=share)
        unit_points(error, y, rows["time_error"], LIMIT, along="x", ms=5)
        kept = rows.loc[np.isfinite(rows["drift"]), "drift"].clip(lower=1e-15)
        unit_points(drift, y, kept, LIMIT, along="x", ms=6)
        if len(kept) < len(rows):
            said = f"lost in {len(rows) - len(kept)} of {len(rows)} seeds, as |u| = |v|"
            drift.text(0.03, y, said, transform=drift.get_yaxis_transform(), color=LOST_COLOR)
    drift.set(
        xscale="log",
        xlabel="largest change of log|u² − v²|",
        ylim=(-0.5, len(kinds) - 0.5),
        yticks=[],
    )
    drift.set_title("Lemma 4.1: 0 in the flow", fontsize=9)
    number_panel(error, drift)
    error.set_yticks(
        range(len(kinds)),
        labels=[f"{form}, {share:g} of the limit" for form, share in reversed(kinds)],
        fontsize=8,
    )
    error.set(
        xscale="log", xlabel="error of activation times, median", ylim=(-0.5, len(kinds) - 0.5)
    )
    scale = descents["log10_init_scale"].iloc[0]
    error.set_title(f"descent from $10^{{{scale:g}}}$, one point per seed", fontsize=9)
    form, share = max(kinds, key=lambda kind: kind[1])
    for i, seed in enumerate(sorted(descents["seed"].unique())):
        own = stages[(stages["seed"] == seed) & (stages["stage"] > 0)]
        row = where(descents, form=form, share_of_limit=share, seed=seed)
        ratio = row["learning_rate"].iloc[0] / own["learning_rate_limit"]
        edge.step(
            own["stage"], ratio, where="mid", color=VIRIDIS(0.2 + 0.5 * i), label=f"seed {seed}"
        )
    edge.axhline(1, **BOUND, lw=1.2, label="unstable above")
    edge.set(xlabel="stage", ylabel="learning rate / its limit on the plateau", ylim=(0, 1.08))
    edge.set_title(f"one rate, {share:g} of the least limit", fontsize=9)
    edge.legend(loc="lower right", fontsize=7.5)
    _example(figure, example, drop)
    return figure


def _example(figure: Figure, axes: Axes, drop: pd.DataFrame) -> None:
    methods = list(dict.fromkeys(zip(drop["method"], drop["log10_init_scale"], strict=True)))
    markers = {
        0: ("s", "coordinate 1 joins"),
        1: ("^", "coordinate 2 joins"),
        2: ("o", "coordinate 3 joins"),
    }
    for y, (method, scale) in enumerate(reversed(methods)):
        rows = where(drop, method=method, log10_init_scale=scale)
        for row in rows.to_dict("records"):
            if row["lost"]:
                axes.plot(row["rescaled_time"], y, "x", color=LOST_COLOR, ms=7, mew=1.8)
            else:
                marker = markers[row["coordinate"]][0]
                negative = row["sign"] < 0
                axes.plot(
                    row["rescaled_time"], y, marker, color=FINITE if negative else LIMIT, ms=5
                )
    truth = drop[(drop["method"] == "Algorithm 1") & (drop["sign"] < 0)]["rescaled_time"]
    for time in truth:
        axes.axvline(time, **THEORY, lw=1)
    for marker, label in markers.values():
        axes.plot([], [], marker, color=LIMIT, ls="", ms=5, label=label)
    axes.plot(
        [], [], "o", color=FINITE, ls="", ms=5, label="coordinate 3 joins with the other sign"
    )
    axes.plot(
        [],
        [],
        "x",
        color=LOST_COLOR,
        ls="",
        ms=7,
        mew=1.8,
        label="lost to rounding, by our detector",
    )
    labels = [m if np.isinf(s) else f"{m}, $10^{{{s:g}}}$" for m, s in reversed(methods)]
    axes.set_yticks(range(len(methods)), labels=labels, fontsize=7.5)
    axes.set(xscale="log", xlabel="time / log(1 / init scale)", ylim=(-0.6, len(methods) - 0.4))
    axes.set_title("three coordinates, the third leaves and returns", fontsize=9)
    shared_legend(figure, axes)
