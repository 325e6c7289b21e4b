"""Write what git keeps of a data set's runs: small tables, metrics to compare, and measures.

All measures come from the tables, so that those of a published run are made again from what is in
git.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.files.params import Count, Interval, Positive, read_params
from lib.files.runs import open_runs
from lib.files.tables import compact, write_csv
from lib.pages.measures import setup_rows, write_measures
from lib.training.devices import use_threads
from lib.vision.measures import derived, measured, ranks_of
from lib.vision.shown import scales_shown, spectra_shown, with_published
from lib.vision.tables.cut import PRUNE, TRUNCATE
from lib.vision.tables.drawn import DRAWN
from lib.vision.tables.trained import SPECTRA
from lib.vision.updates import directions, whole_ranks
from lib.work.command import OutFile, OutFolder, run
from lib.work.schemas import write_tables_of

HEADLINES = {  # DVC's metrics, at the reference scale
    "test_accuracy": ("test_accuracy", ""),
    "stable_rank_KQ": ("stable_rank", "W_KQ"),
}
CURVES = ["train_loss", "test_loss", "test_accuracy"]


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
    found = SPECTRA.read(spectra)
    tables = {
        "training": pd.concat(steps, ignore_index=True),
        "ranks": ranks_of(found, params.rtol, sizes.d_model),
        "spectra": spectra_shown(found, 2 * sizes.d_head),
        "truncate": TRUNCATE.read(truncate),
        "prune": PRUNE.read(prune),
        "directions": directions(found),
        "whole_ranks": whole_ranks(opened),
    }
    if beside is not None:
        tables = {name: with_published(table, beside, name) for name, table in tables.items()}
    plain = tables["training"][tables["training"]["control"] == "none"]
    scales = scales_shown(plain, params.reference_scale, f"{section}.reference_scale")
    tables = {name: compact(table) for name, table in tables.items()}
    tables |= {name: compact(table) for name, table in derived(tables).items()}
    write_tables_of(DRAWN, tables | {"scales": scales}, metrics / "tables")
    of_claims = measured(tables, params.reference_scale)
    write_measures(setup_rows({"d_model": sizes.d_model}) + of_claims, metrics, HEADLINES)
    write_csv(plain.groupby(["variant", "step"], as_index=False)[CURVES].mean(), curves)


if __name__ == "__main__":
    run(main)
