"""Write what git keeps of the example: small tables, and measures for the claims."""

from pathlib import Path

import numpy as np
import pandas as pd

from lib.files.tables import compact, read_table, write_measures, write_table
from lib.work.command import OutFolder, run

SLIGHT = 0.02  # of |W|: updates below it are slight, and rounding to bfloat16 shows
CELL = ["model", "run", "budget"]
# The tables of a model's folder, with the columns by which each is known.
TABLES = {
    "plans": "run budget rule shuffle parameters loss share_lost ranks",
    "modules": "run module earned",
    "losses": "run gain",
    "pruning": "run what rate loss",
}
ROUNDING = "run step module above_edge"
SPECTRA = "run step layer module head of rank_90"
HEADS = "step layer head module offset stable_rank"


def main(metrics: OutFolder, models: list[Path]) -> None:
    tables = {
        **{name: stacked(models, f"plans/{name}", of) for name, of in TABLES.items()},
        "rounding": stacked(models, "rounding", ROUNDING),
        "heads": head_ranks(stacked(models, "pretrained", SPECTRA)),
    }
    rates = np.sort(tables["pruning"]["rate"].unique())
    rate = float(rates[len(rates) // 2])
    measured = {
        **of_plans(tables["plans"]),
        **of_losses(tables["losses"]),
        **of_rounding(tables["rounding"]),
        **of_early_ranks(tables["rounding"]),
        **of_pruning(tables["pruning"], tables["losses"], rate),
        **of_heads(tables["heads"]),
    }
    setup = {"slight": f"{SLIGHT:g}", "pruning_rate": f"{rate:.0%}"}
    for name, table in tables.items():
        small = compact(table.reset_index(drop=True))
        write_table(small, metrics / "tables" / f"{name}.parquet")
    write_measures(measured, metrics, setup, headlines=["attributed_less_uniform"])


def stacked(models: list[Path], name: str, known_by: str) -> pd.DataFrame:
    """The tables of that name of all models, one after another."""
    tables = []
    for model in models:
        table = read_table(model / f"{name}.parquet", known_by.split(), and_others=True)
        tables.append(table.assign(model=model.name))
    return pd.concat(tables)


def head_ranks(spectra: pd.DataFrame) -> pd.DataFrame:
    """The stable ranks of the updates of the products of heads, from the first step on, by text."""
    found = spectra[(spectra["of"] == "update") & (spectra["head"] > 0) & (spectra["step"] > 0)]
    found = found.rename(columns={"run": "text"}).sort_values("text", kind="stable")
    return found[["model", *HEADS.split(), "text"]]


def by_case(values: pd.Series) -> pd.Series:
    """The values, each by one name that says its case."""
    return values.set_axis([" ".join(map(str, case)) for case in values.index])


def of_plans(plans: pd.DataFrame) -> dict[str, pd.Series]:
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
    return {name: by_case(values) for name, values in differences.items()}


def of_losses(losses: pd.DataFrame) -> dict[str, pd.Series]:
    """How far the attributed losses are from summing to the measured drop, as a share of it."""
    losses = losses.set_index(["model", "run"])
    return {"attribution_error": by_case((losses["attributed"] / losses["drop"] - 1).abs())}


def of_rounding(rounding: pd.DataFrame) -> dict[str, pd.Series]:
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
    return {
        "rounded_over_exact_rank_slight": by_case(ratio[is_slight]),
        "rounded_over_exact_rank": by_case(ratio[~is_slight]),
        "counted_above_edge": by_case(counted[is_slight]),
        "noise_over_edge": by_case(snapshot["noise_over_edge"].max()),
    }


def of_early_ranks(rounding: pd.DataFrame) -> dict[str, pd.Series]:
    """Spearman's correlation over modules between the ranks of the first snapshot and of the last.

    The rank is the one that holds 90 % of the energy. Each run has one correlation.
    """
    found = {}
    for case, rows in rounding.groupby(["model", "run"]):
        by_step = rows.pivot_table(index="module", columns="step", values="rank_90", observed=True)
        if by_step.shape[1] > 1:
            found[case] = by_step.iloc[:, 0].rank().corr(by_step.iloc[:, -1].rank())
    return {"early_rank_order": by_case(pd.Series(found, dtype=float))}


def of_pruning(pruning: pd.DataFrame, losses: pd.DataFrame, rate: float) -> dict[str, pd.Series]:
    """What taking back a share of the updates' entries costs: at random over smallest first."""
    at = pruning[np.isclose(pruning["rate"], rate)]
    cost = at.pivot_table(index=["model", "run"], columns="what", values="loss", observed=True)
    cost = cost.sub(losses.set_index(["model", "run"])["loss_tuned"], axis=0)
    ratio = cost["updates, at random"] / cost["updates, smallest first"]
    return {"random_over_smallest": by_case(ratio)}


def of_heads(heads: pd.DataFrame) -> dict[str, pd.Series]:
    """The final mean stable rank of heads' updates, under the shuffled text over the text."""
    final = heads[(heads["step"] == heads["step"].max()) & (heads["offset"] == 0)]
    means = final.groupby(["module", "text", "model"])["stable_rank"].mean()
    return {
        f"permuted_over_learned_{product}": means[f"W_{product}", "permuted"]
        / means[f"W_{product}", "language"]
        for product in ("KQ", "VO")
    }


if __name__ == "__main__":
    run(main)
