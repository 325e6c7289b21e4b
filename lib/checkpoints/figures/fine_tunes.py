"""Figures of a fine-tune: what plans lose, ranks of modules, rounding, pruning, trained adapters,
heads in training.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.checkpoints.figures.rank_grids import middle_budget, rank_grid
from lib.pages.bars import Bar, draw_bar
from lib.pages.marks import BOUND, ranged, unit_points, where
from lib.pages.panels import grid, sized
from lib.pages.style import (
    BLUE,
    BOUND_COLOR,
    BROWN,
    GREEN,
    GREENS,
    INITIAL_COLOR,
    LOST_COLOR,
    MATRIX_COLORS,
    MATRIX_NAMES,
    NULL_COLOR,
    ORANGE,
    TEAL,
    number_panel,
)

RULES = {  # in the order in which they are drawn: the first two are often the same
    "gains-first": (BROWN, "D"),
    "attributed": (GREEN, "o"),
    "uniform": (BLUE, "s"),
    "energy": (ORANGE, "^"),
    "water-filling": (TEAL, "v"),
}
LEAST_APART = 1e-7  # losses that are nearer are drawn at this distance
AGAINST = {"attributed": GREEN, "energy": ORANGE, "shuffled": NULL_COLOR}
TRAINED = {"attributed": GREEN, "shuffled": NULL_COLOR, "uniform, longer": BLUE}
PRUNED = {
    "weights, smallest first": BLUE,
    "updates, smallest first": GREEN,
    "updates, at random": NULL_COLOR,
}


def share_lost(plans: pd.DataFrame) -> Figure:
    """The share of the gain that is lost against the parameters, by rule; shuffles of the
    attributed plan as a band.
    """
    groups = _kinds(plans)
    label = "share of the gain that is lost"
    figure, panels = _panels(len(groups), height=3.3, share_y=True, label=label)
    for axes, (title, rows) in zip(panels, groups, strict=True):
        null = rows[rows["shuffle"] > 0]
        if len(null):
            found = null.groupby("budget")["share_lost"].agg(["min", "max"])
            at = null.groupby("budget")["parameters"].max()
            axes.fill_between(
                at,
                found["min"],
                found["max"],
                color=NULL_COLOR,
                alpha=0.3,
                lw=0,
                label="attributed, shuffled",
            )
        for rule, (color, marker) in RULES.items():
            chosen = where(rows, rule=rule, shuffle=0)
            if len(chosen):
                chosen = chosen.assign(at=chosen.groupby("budget")["parameters"].transform("max"))
                ranged(
                    axes, chosen, "at", "share_lost", color=color, marker=marker, ms=4, label=rule
                )
        axes.set(xscale="log", xlabel="parameters of the adapter", title=title)
        budgets = where(rows, rule="uniform").groupby("budget")["parameters"].max()
        axes.set_xticks(budgets, labels=[f"{n:,}\nrank {budget}" for budget, n in budgets.items()])
        axes.minorticks_off()
        axes.axhline(0, color="black", lw=0.8)
    panels[0].legend(fontsize=7.5)
    number_panel(panels[0])
    return figure


def ranks_of_modules(plans: pd.DataFrame, modules: pd.DataFrame) -> Figure:
    """The ranks of the attributed plan at the middle budget, layers by kinds of module, of the
    first run of a model.
    """
    budget = middle_budget(plans)
    groups = [("", plans, modules)]
    if "model" in plans:
        first = plans.groupby("model")["run"].first()
        groups = [
            (
                f"{model}, {name}",
                *(where(t, model=model, run=name) for t in (plans, modules)),
            )
            for model, name in first.items()
        ]
    figure, panels = _panels(len(groups), height=3.4, width=4.6)
    for axes, (title, plan, listed) in zip(panels, groups, strict=True):
        found = rank_grid(plan, listed, budget)
        grid = found.ranks
        axes.imshow(grid, cmap=GREENS, aspect="auto", vmin=0)
        if grid.size <= 400:
            middle = np.nanmax(grid) / 2
            for (row, column), rank in np.ndenumerate(grid):
                if np.isfinite(rank):
                    color = "white" if rank > middle else "black"
                    axes.text(
                        column,
                        row,
                        f"{rank:.0f}",
                        ha="center",
                        va="center",
                        fontsize=8,
                        color=color,
                    )
        axes.set_yticks(range(len(found.kinds)), labels=found.kinds, parse_math=False)
        n_layers = len(found.layers)
        shown = range(0, n_layers, max(1, n_layers // 12))
        axes.set_xticks(shown, labels=[str(found.layers[i]) for i in shown])
        said = f"ranks, {found.rule}"
        axes.set(xlabel="layer", title=f"{title}: {said}" if title else said)
        axes.grid(visible=False)
    return figure


def rounding(table: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """Ranks of updates, of weights as they are and as stored in bfloat16, against the relative size
    of the update. The bar is a multiple of the rank as it is.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.4))
    by = ["model", "run", "step"]
    columns = ["relative_update", "rank_90", "rank_90_stored", "above_edge", "above_edge_stored"]
    means = table.groupby(by, observed=True)[columns].mean().reset_index()
    pairs = (
        (left, "rank_90", "rank that holds 90 % of the energy"),
        (right, "above_edge", "singular values above the edge"),
    )
    looks: dict[str, tuple[str, dict[str, Any]]] = {
        "as it is": ("", {"ms": 6, "mfc": "none", "color": "black"}),
        "in bf16": ("_stored", {"ms": 3.5, "color": LOST_COLOR}),
    }
    for axes, name, ylabel in pairs:
        for marker, (model, rows) in zip("os", means.groupby("model", observed=True), strict=False):
            for weights, (suffix, look) in looks.items():
                ranks = rows[f"{name}{suffix}"]
                label = f"{model}, {weights}"
                axes.plot(rows["relative_update"], ranks, marker, label=label, **look)
        axes.set(
            xscale="log",
            xlabel=r"$\|\Delta W\|_F\,/\,\|W\|_F$, mean over matrices",
            ylabel=ylabel,
            ylim=(0, None),
        )
    if bar:
        for n, (_, rows) in enumerate(means.groupby("model", observed=True)):
            said = bar.words(" times as it is") if n == 0 else None
            asked = bar.ends[0] * rows["rank_90"]
            look: Any = {"ms": 9, "mew": 1.5, "color": BOUND_COLOR, "label": said}
            left.plot(rows["relative_update"], asked, "_", **look)
    left.legend(fontsize=7.5)
    number_panel(left)
    return figure


def pruned(pruning: pd.DataFrame, losses: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """The measured loss against the share that is removed: of the weights, and of the entries of
    the updates. The bar is a multiple of what it costs to take back the smallest entries.
    """
    groups = _kinds(pruning)
    figure, panels = _panels(len(groups), height=3.3, label="loss, nats")
    for axes, (title, rows), (_, part) in zip(panels, groups, _kinds(losses), strict=True):
        for what, color in PRUNED.items():
            chosen = where(rows, what=what)
            if len(chosen):
                ranged(axes, chosen, "rate", "loss", color=color, marker="o", ms=4, label=what)
        tuned = part["loss_tuned"].mean()
        axes.axhline(tuned, color="black", lw=0.9, ls=":", label="tuned")
        if bar:
            cost = where(rows, what="updates, smallest first").groupby("rate")["loss"].mean()
            asked = tuned + bar.ends[0] * (cost - tuned)
            said = f"at random, {bar.words(' times the cost')}"
            axes.plot(asked.index, asked, **BOUND, lw=1.2, label=said)
        axes.axhline(
            part["loss_without_linear"].mean(),
            color=INITIAL_COLOR,
            lw=0.9,
            ls=":",
            label="no linear update",
        )
        axes.set(xlabel="share that is removed", title=title)
    panels[0].legend(fontsize=7)
    number_panel(panels[0])
    return figure


def heads_through_training(heads: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """Stable rank of what training from scratch adds to the products of heads, a column each
    model; grey: under the text in random order. The bar is of that in the end, as a multiple of
    what the text itself adds to W_V W_Oᵀ.
    """
    models = sorted(heads["model"].unique())
    size = (4.4 * len(models), 5.2)
    figure, panels = grid(2, len(models), size, sharex=True, sharey=True)
    asked: dict[Axes, float] = {}
    for row, (product, color) in zip(panels, MATRIX_COLORS.items(), strict=True):
        texts = {"language": (color, "text"), "permuted": (NULL_COLOR, "text in random order")}
        for axes, model in zip(row, models, strict=True):
            here = where(heads, model=model, module=product)
            for text, (shade, name) in texts.items():
                rows = where(here, text=text)
                for offset, part in rows.groupby("offset"):
                    means = part.groupby("step")["stable_rank"].mean()
                    label = f"{name}, offset {offset}" if offset else name
                    line = {"marker": "s" if offset else "o", "ms": 3.5, "color": shade}
                    axes.plot(means.index, means, label=label, **line)
            axes.set(xscale="log")
            if product == "W_VO":
                last = where(here, step=here["step"].max())
                ends = last.groupby("text", observed=True)["stable_rank"].mean()
                learned, permuted = (float(ends.get(text, np.nan)) for text in texts)
                ratio = permuted / learned if learned else np.nan
                if np.isfinite(ratio):
                    axes.set_title(f"{model}: in random order {ratio:.2f} times", fontsize=9)
                asked[axes] = learned
        row[0].set_ylabel(f"stable rank of the update\nof {MATRIX_NAMES[product]}")
    for axes, learned in asked.items():  # when the axis that all share has every point
        said = bar.words(" times its value on the text") if bar else ""
        said = said.replace(" 1 times", "")  # such as: below its value on the text
        draw_bar(axes, bar, times=learned, label=said)
    for row, place in zip(panels, ("best", "center left"), strict=True):
        row[-1].legend(fontsize=7, loc=place)
    number_panel(*panels[1])
    for axes, top, model in zip(panels[1], panels[0], models, strict=True):
        axes.set_xlabel("step")
        top.set_title(model)
    return figure


def trained_adapters(trained: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """The loss of the base with a trained adapter minus that with the uniform rank and the same
    seed, by rule, with a bar at the median.
    """
    rows = where(trained, part="measured")
    keys = ["kind", "model", "seed"]
    losses = rows.pivot_table(index=keys, columns="rule", values="loss", observed=True)
    rules = [rule for rule in TRAINED if rule in losses]
    groups = list(losses.groupby(["model", "kind"], observed=True))
    differences = losses[rules].sub(losses["uniform"], axis=0)
    least = float(differences.min().min())
    most = float(differences.max().max())
    room = 0.05 * (most - least)
    figure, panels = _panels(len(groups), height=2.6)
    for axes, ((model, kind), part) in zip(panels, groups, strict=True):
        for place, rule in enumerate(rules):
            values = (part[rule] - part["uniform"]).to_numpy()
            look: Any = {"along": "x", "spread": 0.18, "ms": 4, "mfc": "none"}
            unit_points(axes, place, values, TRAINED[rule], **look)
            axes.plot([np.median(values)], [place], "|", ms=22, mew=2, color=TRAINED[rule])
        axes.axvline(0, color=BLUE, lw=1)
        axes.set_yticks(range(len(rules)), labels=rules)
        axes.set(
            xlim=(least - room, most + room),
            ylim=(len(rules) - 0.5, -0.5),
            title=f"{model}, {kind}",
            xlabel="loss minus that of the uniform rank, nats",
        )
        draw_bar(axes, bar, vertical=True)
    if bar:
        panels[0].legend(fontsize=7.5, loc="lower right")
    number_panel(panels[0])
    return figure


def rules_by_architecture(rules: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """The share of the gain that a rule loses minus that of one uniform rank, in the mean over
    budgets, with a point for each base and a bar at their median.
    """
    by = ["kind", "architecture", "base", "budget"]
    plain = where(rules, shuffle=0)
    lost = plain.pivot_table(index=by, columns="rule", values="share_lost", observed=True)
    lost["shuffled"] = rules[rules["shuffle"] > 0].groupby(by, observed=True)["share_lost"].min()
    above = lost[list(AGAINST)].sub(lost["uniform"], axis=0).groupby(level=by[:3]).mean()
    groups = list(above.groupby(level="kind"))
    names = sorted(rules["architecture"].unique())
    size = (3.2 * len(groups) + 1.2, 0.42 * len(names) + 1.2)
    figure, [panels] = grid(1, len(groups), size, sharey=True)
    for axes, (kind, part) in zip(panels, groups, strict=True):
        _points(axes, part, names, {rule: (rule, color) for rule, color in AGAINST.items()})
        axes.axvline(0, color=BLUE, lw=1)
        axes.set(title=kind, xlabel="share lost minus uniform's")
        axes.locator_params(axis="x", nbins=4)
        draw_bar(axes, bar, vertical=True)
    panels[0].set_yticks(range(len(names)), labels=names, parse_math=False)
    panels[0].legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.1))
    number_panel(panels[0])
    return figure


def cut_or_trained(fitted: pd.DataFrame, bar: Bar | None = None) -> Figure:
    """The loss above that of the full fine-tune: of the base, of the base with an adapter that is
    cut from the fine-tune, and with one of the same ranks that is trained; a point for each base.
    Beside it is how far the trained one is above the one that is cut, of which the bar is asked.
    """
    names = sorted(fitted["architecture"].unique())
    size = sized(9.6, 0.5 * len(names) + 1.0)
    figure, (axes, apart) = plt.subplots(1, 2, figsize=size, sharey=True)
    looks = {
        "loss_base": ("the base", NULL_COLOR),
        "cut": ("adapter, cut", GREEN),
        "trained": ("adapter, trained", BLUE),
    }
    losses = fitted.set_index(["architecture", "base"])
    above = losses[list(looks)].sub(losses["loss_tuned"], axis=0)
    _points(axes, above, names, looks)
    axes.axvline(0, color="black", lw=1)
    axes.set_yticks(range(len(names)), labels=names, parse_math=False)
    axes.set(xlabel="loss above that of the full fine-tune, nats")
    axes.legend(fontsize=8, loc="best")
    trained = {"difference": ("adapter, trained", BLUE)}
    difference = (losses["trained"] - losses["cut"]).to_frame("difference")
    _points(apart, difference, names, trained)
    apart.tick_params(labelleft=True)
    apart.set(xlabel="loss of the trained adapter minus the cut one's, nats")
    draw_bar(apart, bar, vertical=True)
    if bar:
        apart.legend(fontsize=8, loc="best")
    number_panel(apart)
    return figure


def runtimes(losses: pd.DataFrame, bar: Bar) -> Figure:
    """The loss of adapters in peft and in llama.cpp, with mixed ranks and padded to one rank, and
    how far the one is from the other, of which the bar is asked where ranks are padded.
    """
    figure, (axes, apart) = plt.subplots(1, 2, figsize=sized(9.6, 3.6))
    labels = {"mixed": (LOST_COLOR, "mixed ranks"), "equal": (GREEN, "padded to one rank")}
    for ranks, (color, name) in labels.items():
        rows = where(losses, ranks=ranks)
        places = range(len(rows))
        axes.plot(places, rows["llama_cpp"], "o-", color=color, label=f"llama.cpp, {name}")
        distance = (rows["llama_cpp"] - rows["peft"]).abs()
        apart.plot(places, distance.clip(lower=LEAST_APART), "o", color=color, label=name)
        for panel in (axes, apart):
            panel.set_xticks(places, labels=rows["adapter"], parse_math=False)
    peft = where(losses, ranks="equal")["peft"]
    axes.plot(range(len(peft)), peft, "k_", ms=14, mew=2, label="peft, both")
    [alone] = where(losses, ranks="none")["peft"]
    axes.axhline(alone, color=INITIAL_COLOR, lw=0.9, ls=":", label="the base alone")
    axes.set(xlabel="adapter", ylabel="loss, nats", xlim=(-0.4, len(peft) - 0.6))
    axes.legend(fontsize=7.5)
    apart.set(yscale="log", xlabel="adapter", xlim=(-0.4, len(peft) - 0.6))
    apart.set(ylabel="distance of llama.cpp's loss from peft's, nats")
    draw_bar(apart, bar)
    apart.legend(fontsize=7.5, loc="center right")
    number_panel(apart)
    return figure


def _points(
    axes: Axes, table: pd.DataFrame, names: Sequence[str], looks: Mapping[str, tuple[str, str]]
) -> None:
    """A row for each architecture, with the points of each column on a line and a bar at their
    median; each column has a label and a colour.
    """
    for i, (column, (label, color)) in enumerate(looks.items()):
        for place, name in enumerate(names):
            values = table.xs(name, level="architecture")[column].to_numpy()
            height = place + (i - (len(looks) - 1) / 2) * 0.25
            said = label if place == 0 else None
            look: Any = {"along": "x", "ms": 3.5, "mfc": "none", "label": said}
            unit_points(axes, height, values, color, **look)
            axes.plot([np.median(values)], [height], "|", ms=8, mew=2, color=color)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _panels(
    n: int, *, height: float, width: float = 4.0, share_y: bool = False, label: str = ""
) -> tuple[Figure, Sequence[Axes]]:
    """Panels in at most two columns, the first of which has the label of y."""
    columns = min(n, 2)
    lines = -(-n // columns)
    size = (width * columns + 0.6, height * lines)
    figure, panels = grid(lines, columns, size, sharey=share_y)
    for row in panels:
        row[0].set_ylabel(label)
    return figure, list(panels.flat)[:n]


def _kinds(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """The rows of each model and kind of fine-tune, all seeds together; all where there is no
    model.
    """
    if "model" not in table:
        return [("", table)]
    kind = table["run"].astype(str).str.rsplit("-", n=1).str[0]
    return [
        (f"{model}, {name}", rows)
        for (model, name), rows in table.groupby([table["model"].astype(str), kind.rename("kind")])
    ]
