"""What is measured of the example: of plans, attributed losses, rounding, pruning and heads.

A unit is the model, the fine-tune with its seed and, where they differ, the budget or the step.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.pages.measures import Row, rows_of

SLIGHT = 0.02  # of |W|: updates below it are slight, and rounding to bfloat16 shows
CELL = ["model", "run", "budget"]
HEADS = ["model", "step", "layer", "head", "module", "offset", "stable_rank", "text"]


def measured(tables: Mapping[str, pd.DataFrame], rate: float) -> list[Row]:
    """The rows of every measure; pruning is measured at one rate."""
    return [
        *of_plans(tables["plans"]),
        *of_losses(tables["losses"]),
        *of_rounding(tables["rounding"]),
        *of_early_ranks(tables["rounding"]),
        *of_pruning(tables["pruning"], tables["losses"], rate),
        *of_heads(tables["heads"]),
    ]


def middle_rate(pruning: pd.DataFrame) -> float:
    """The rate in the middle of those at which entries were removed."""
    rates = np.sort(pruning["rate"].unique())
    return float(rates[len(rates) // 2])


def head_ranks(spectra: pd.DataFrame) -> pd.DataFrame:
    """The stable ranks of the updates of the products of heads, from the first step on, by text."""
    found = spectra[(spectra["of"] == "update") & (spectra["head"] > 0) & (spectra["step"] > 0)]
    found = found.rename(columns={"run": "text"}).sort_values("text", kind="stable")
    return found[HEADS]


def by_unit(values: pd.Series) -> pd.Series:
    """The values, each by one name that says its unit."""
    return values.set_axis([" ".join(map(str, unit)) for unit in values.index])


def of_plans(plans: pd.DataFrame) -> list[Row]:
    """The share of the gain that one rule loses minus that of another, in each cell."""
    lost = plans[plans["shuffle"] == 0].pivot_table(
        index=CELL, columns="rule", values="share_lost", observed=True
    )
    null = plans[plans["shuffle"] > 0].groupby(CELL)["share_lost"].min().reindex(lost.index)
    differences = {
        "attributed_less_uniform": lost["attributed"] - lost["uniform"],
        "attributed_less_shuffled": lost["attributed"] - null,
        "attributed_less_energy": lost["attributed"] - lost["energy"],
        "energy_less_uniform": lost["energy"] - lost["uniform"],
        "water_filling_less_uniform": lost["water-filling"] - lost["uniform"],
    }
    return rows_of({name: by_unit(values) for name, values in differences.items()})


def of_losses(losses: pd.DataFrame) -> list[Row]:
    """How far the attributed losses are from summing to the measured drop, as a share of it."""
    losses = losses.set_index(["model", "run"])
    error = (losses["attributed"] / losses["drop"] - 1).abs()
    return rows_of({"attribution_error": by_unit(error)})


def of_rounding(rounding: pd.DataFrame) -> list[Row]:
    """Energy ranks of rounded weights over true ones, and what the edge of rounding tells.

    Each snapshot has the mean over its matrices; slight updates have measures of their own. The
    noise over the edge is the largest of a snapshot.
    """
    snapshot = rounding.groupby(["model", "run", "step"])
    columns = ["relative_update", "rank_90", "rank_90_stored", "above_edge", "above_edge_stored"]
    found = snapshot[columns].mean()
    ratio = found["rank_90_stored"] / found["rank_90"]
    is_slight = found["relative_update"] < SLIGHT
    counted = found["above_edge_stored"] - found["above_edge"]
    return [
        *rows_of({"rounded_over_exact_rank": by_unit(ratio[is_slight])}, "slight"),
        *rows_of({"rounded_over_exact_rank": by_unit(ratio[~is_slight])}, "larger"),
        *rows_of({"counted_above_edge": by_unit(counted[is_slight])}),
        *rows_of({"noise_over_edge": by_unit(snapshot["noise_over_edge"].max())}),
    ]


def of_early_ranks(rounding: pd.DataFrame) -> list[Row]:
    """Spearman's correlation over modules between the ranks of the first snapshot and of the last.

    The rank is the one that holds 90 % of the energy. Each run has one correlation.
    """
    found = {}
    for run, rows in rounding.groupby(["model", "run"]):
        by_step = rows.pivot_table(index="module", columns="step", values="rank_90", observed=True)
        if by_step.shape[1] > 1:
            found[run] = by_step.iloc[:, 0].rank().corr(by_step.iloc[:, -1].rank())
    return rows_of({"early_rank_order": by_unit(pd.Series(found, dtype=float))})


def of_pruning(pruning: pd.DataFrame, losses: pd.DataFrame, rate: float) -> list[Row]:
    """What taking back a share of the updates' entries costs: at random over smallest first."""
    at = pruning[np.isclose(pruning["rate"], rate)]
    cost = at.pivot_table(index=["model", "run"], columns="what", values="loss", observed=True)
    cost = cost.sub(losses.set_index(["model", "run"])["loss_tuned"], axis=0)
    ratio = cost["updates, at random"] / cost["updates, smallest first"]
    return rows_of({"random_over_smallest": by_unit(ratio)})


def of_heads(heads: pd.DataFrame) -> list[Row]:
    """The final mean stable rank of heads' updates, under the shuffled text over the text."""
    final = heads[(heads["step"] == heads["step"].max()) & (heads["offset"] == 0)]
    means = final.groupby(["module", "text", "model"])["stable_rank"].mean()
    found = []
    for product in ("W_KQ", "W_VO"):
        ratio = means[product, "permuted"] / means[product, "language"]
        found += rows_of({"permuted_over_learned": ratio}, product)
    return found
