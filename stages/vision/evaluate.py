"""Write what git keeps of a data set's runs: small tables, metrics to compare, and measures.

All measures come from the tables, so that those of a published run are made again from what is in
git.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from lib.files.files import InputError
from lib.files.params import Count, Interval, Positive, read_params
from lib.files.runs import open_runs
from lib.files.tables import compact, read_table, write_csv, write_measures, write_table
from lib.training.devices import use_threads
from lib.vision.measures import PRODUCTS, derived, measured, plain_typed, ranks_of
from lib.vision.updates import directions, whole_ranks
from lib.work.command import OutFile, OutFolder, run

HEADLINES = ["test_accuracy", "stable_rank_KQ"]  # DVC's metrics, at the reference scale
CURVES = ["train_loss", "test_loss", "test_accuracy"]
PLACE = ["variant", "init_scale", "control", "matrix", "of", "step", "seed", "layer", "head"]
CELL = ["control", "init_scale", "variant"]
SPECTRA = [*CELL, "matrix", "of", "step", "seed", "layer", "head", "singular_values"]
SCORES = ["test_loss", "test_accuracy"]
TRUNCATE = ["kind", "rank", *SCORES, *CELL, "seed"]
PRUNE = ["what", "order", "rate", "removed", *SCORES, "parameters", "flops", *CELL, "seed"]


@dataclass(frozen=True)
class Evaluate:
    reference_scale: Positive
    rtol: Annotated[float, Interval("(0, 1)")]


@dataclass(frozen=True)
class Sizes:
    d_model: Count
    d_head: Count


def main(
    section: str,
    model: str,
    runs: Path,
    spectra: Path,
    truncate: Path,
    prune: Path,
    metrics: OutFolder,
    curves: OutFile,
    beside: Path | None = None,
) -> None:
    """Measure the runs, and those of other init scales whose tables are in the folder `beside`."""
    use_threads(1)  # for the singular values of whole updates: their last digits depend on it
    params = read_params(section, Evaluate)
    sizes = read_params(model, Sizes, part=True)
    opened = open_runs(runs, "vision")
    steps = [run.steps.assign(**run.layout.cell) for run in opened]
    found = read_table(spectra, SPECTRA)
    tables = {
        "training": pd.concat(steps, ignore_index=True).drop(columns="snapshot"),
        "ranks": ranks_of(found, params.rtol, sizes.d_model),
        "spectra": spectra_for_figures(found, 2 * sizes.d_head),
        "truncate": read_table(truncate, TRUNCATE),
        "prune": read_table(prune, PRUNE),
        "directions": directions(found),
        "whole_ranks": whole_ranks(opened),
    }
    if beside is not None:
        tables = {name: with_published(table, beside, name) for name, table in tables.items()}
    plain = tables["training"][tables["training"]["control"] == "none"]
    scales = scales_of(plain, params.reference_scale, section)
    tables = {name: compact(table) for name, table in tables.items()}
    tables |= {name: compact(table) for name, table in derived(tables).items()}
    for name, table in (tables | {"scales": scales}).items():
        write_table(table, metrics / "tables" / f"{name}.parquet")
    of_claims = measured(tables, params.reference_scale)
    write_measures(of_claims, metrics, setup_of(params, sizes), HEADLINES)
    write_csv(plain.groupby(["variant", "step"], as_index=False)[CURVES].mean(), curves)


def with_published(table: pd.DataFrame, beside: Path, name: str) -> pd.DataFrame:
    """The rows of a published table, and behind them those of a new one, which may have none."""
    before = plain_typed(read_table(beside / f"{name}.parquet", table.columns.tolist()))
    return pd.concat([before, table], ignore_index=True) if len(table) else before


def scales_of(plain: pd.DataFrame, reference: float, section: str) -> pd.DataFrame:
    """Which init scales figures show, by use; raises `InputError` without the reference scale."""
    trained = sorted(plain["init_scale"].unique())
    if reference not in trained:
        wanted = f"wanted one that was trained, {trained}"
        raise InputError(f"{section}.reference_scale: {wanted}; got {reference:g}")
    rows = [{"use": "growth", "init_scale": scale} for scale in trained]
    return pd.DataFrame([*rows, {"use": "reference", "init_scale": reference}])


def setup_of(params: Evaluate, sizes: Sizes) -> dict[str, float | str]:
    """What statements of claims name: an update of a product has at most `possible_rank`."""
    return {
        "reference_scale": params.reference_scale,
        "d_model": sizes.d_model,
        "possible_rank": min(2 * sizes.d_head, sizes.d_model),
    }


def spectra_for_figures(spectra: pd.DataFrame, n_leading: int) -> pd.DataFrame:
    """The leading singular values of the products of the plain runs' first seed.

    The number of all stands beside them; an update of a product has at most 2 d_head that are not
    zero.
    """
    chosen = spectra["matrix"].isin(PRODUCTS) & (spectra["control"] == "none")
    chosen = spectra[chosen & (spectra["seed"] == spectra["seed"].min())]
    sigma = chosen["singular_values"]
    return chosen[PLACE].assign(
        n_singular_values=[len(values) for values in sigma],
        singular_values=[values[:n_leading].astype(np.float32) for values in sigma],
    )


if __name__ == "__main__":
    run(main)
