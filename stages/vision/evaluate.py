"""What git keeps of a data set's runs: small tables for the figures, metrics to compare, measures
for the claims.

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
from lib.matrices.ranks import summaries
from lib.vision.measures import (
    PRODUCTS,
    Measures,
    Tables,
    against_nulls,
    cuts,
    derived,
    finals,
    gaussian_singular_values,
    growth_with_init_scale,
    plain_typed,
)
from lib.work.command import OutFile, OutFolder, run

NULL_SEED = 0  # of the Gaussian products
HEADLINES = ["test_accuracy", "stable_rank_KQ"]  # DVC's metrics, at the reference scale
CURVES = ["train_loss", "test_loss", "test_accuracy"]
CASE = ["control", "init_scale", "variant"]
SPECTRA = [*CASE, "matrix", "of", "step", "seed", "layer", "head", "singular_values"]


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
    """Measure the runs, and with them those whose tables are in the folder `beside`: of other init
    scales.
    """
    params, sizes = read_params(section, Evaluate), read_params(model, Sizes, part=True)
    training = pd.concat(
        [run.steps.assign(**run.layout.cell) for run in open_runs(runs, "vision")],
        ignore_index=True,
    )
    found = read_table(spectra, SPECTRA)
    tables = {
        "training": training.drop(columns="snapshot"),
        "ranks": ranks_of(found, params, sizes),
        "spectra": spectra_for_figures(found, 2 * sizes.d_head),
        "truncate": read_table(truncate),
        "prune": read_table(prune),
    }
    if beside is not None:
        tables = {
            name: joined(read_table(beside / f"{name}.parquet"), table)
            for name, table in tables.items()
        }
    plain = tables["training"][tables["training"]["control"] == "none"]
    trained = sorted(plain["init_scale"].unique())
    if params.reference_scale not in trained:
        raise InputError(
            f"{section}.reference_scale: wanted one that was trained, {trained}; got "
            f"{params.reference_scale:g}"
        )
    compared = {"growth": trained, "reference": [params.reference_scale]}
    rows = [
        {"use": use, "init_scale": scale} for use, scales in compared.items() for scale in scales
    ]
    tables = {name: compact(table) for name, table in tables.items()}
    tables |= {name: compact(table) for name, table in derived(tables).items()}
    found_measures = measured(tables, params)
    for name, table in (tables | {"scales": pd.DataFrame(rows)}).items():
        write_table(table, metrics / "tables" / f"{name}.parquet")
    write_measures(found_measures, metrics, setup_of(params, sizes), HEADLINES)
    write_csv(plain.groupby(["variant", "step"], as_index=False)[CURVES].mean(), curves)


def joined(before: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a published table, and behind them those of a new one, which may have none."""
    before = plain_typed(before)
    return pd.concat([before, table], ignore_index=True) if len(table) else before


def setup_of(params: Evaluate, sizes: Sizes) -> dict[str, float | str]:
    """What statements of claims name: an update of a product has at most `possible_rank`."""
    return {
        "reference_scale": params.reference_scale,
        "d_model": sizes.d_model,
        "possible_rank": min(2 * sizes.d_head, sizes.d_model),
    }


def ranks_of(spectra: pd.DataFrame, params: Evaluate, sizes: Sizes) -> pd.DataFrame:
    """The summaries of all spectra; of every product's last update also those of a Gaussian matrix
    of its norm.
    """
    described = spectra.drop(columns="singular_values")
    measured = described.assign(**summaries(list(spectra["singular_values"]), params.rtol))
    last = (measured["of"] == "update") & (measured["step"] == measured["step"].max())
    last &= measured["matrix"].isin(PRODUCTS)
    norms = measured[last]["norm"].to_numpy(float)
    sigma = gaussian_singular_values(norms, sizes.d_model, np.random.default_rng(NULL_SEED))
    drawn = described[last].assign(of="gaussian product", **summaries(list(sigma), params.rtol))
    return pd.concat([measured, drawn], ignore_index=True)


def spectra_for_figures(spectra: pd.DataFrame, n_singular_values: int) -> pd.DataFrame:
    """The leading singular values of the products of the plain runs, of the first seed, and how
    many there are.

    An update of a product has at most 2 d_head that are not zero.
    """
    chosen = spectra["matrix"].isin(PRODUCTS) & (spectra["seed"] == spectra["seed"].min())
    chosen = spectra[chosen & (spectra["control"] == "none")]
    keep = ["variant", "init_scale", "control", "matrix", "of", "step", "seed", "layer", "head"]
    leading = [
        values[:n_singular_values].astype(np.float32) for values in chosen["singular_values"]
    ]
    return chosen[keep].assign(
        n_singular_values=[*map(len, chosen["singular_values"])], singular_values=leading
    )


def measured(tables: Tables, params: Evaluate) -> dict[str, dict[str, pd.Series]]:
    """Every measure by init scale and seed; the reference scale, whose numbers DVC compares, stands
    last.
    """
    tables = {name: plain_typed(table) for name, table in tables.items()}
    found: Measures = {
        **finals(tables["training"]),
        **against_nulls(tables),
        **growth_with_init_scale(tables),
        **cuts(tables["truncate"], tables["prune"]),
    }
    by_scale: dict[str, dict[str, pd.Series]] = {}
    for name, values in found.items():
        scales = sorted(
            set(values.index.get_level_values("init_scale")),
            key=lambda s: (s == params.reference_scale, s),
        )
        if scales:
            by_scale[name] = {
                f"{scale:g}": values.xs(scale, level="init_scale").sort_index() for scale in scales
            }
    return by_scale


if __name__ == "__main__":
    run(main)
