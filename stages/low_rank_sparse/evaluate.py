"""Write what git keeps of the runs: tables for figures, and measures for claims."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.files.params import Count, Fraction, Positive, read_params
from lib.files.runs import open_runs
from lib.files.tables import write_csv
from lib.low_rank_sparse.measures import (
    as_swept,
    n_trained,
    numbers_needed,
    rows_of_configuration,
    sweep_rows,
    values_rate,
    with_ranks,
)
from lib.low_rank_sparse.tables.adapted import ADAPT
from lib.low_rank_sparse.tables.cut import DIRECTIONS, NEURONS, PRUNE, TRUNCATE
from lib.low_rank_sparse.tables.drawn import DRAWN
from lib.low_rank_sparse.tables.spectra import SPECTRA
from lib.low_rank_sparse.tables.swept import SWEPT
from lib.low_rank_sparse.tables.trained import LOSSES
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFile, OutFolder, run
from lib.work.schemas import write_tables_of

HEADLINES = {"tied_energy_K": ("energy", "tied W_K")}


@dataclass(frozen=True)
class Judged:
    """The configuration's null, with permuted labels, and the pruning rate of its claim."""

    permuted: str
    pruning_rate: Fraction


@dataclass(frozen=True)
class Evaluate:
    judged: dict[str, Judged]
    rtol: Fraction
    steps: tuple[int, ...]
    generalised_loss: Positive
    corollary_from: Fraction
    fit_from_n_patterns: int
    decades_from: tuple[Positive, ...]


@dataclass(frozen=True)
class Samples:
    """The sizes of the samples that claims name."""

    n_patterns: Count
    seq_len: Count
    n_train: Count


@dataclass(frozen=True)
class Training:
    """What claims and a figure name of the trainings."""

    n_neurons: Count
    batch_size: Count
    fitted_loss: Positive


def main(
    section: str,
    generate: str,
    train: str,
    swept_fitted_loss: str,
    runs: Path,
    losses: Path,
    spectra: Path,
    truncate: Path,
    directions: Path,
    prune: Path,
    neurons: Path,
    adapt: Path,
    sweep: Path,
    metrics: OutFolder,
    curves: OutFile,
) -> None:
    """Write `tables`, `measures.csv`, `headlines.json`, and the curves of the test loss."""
    params = read_params(section, Evaluate)
    samples = read_params(generate, Samples, part=True)
    trained = read_params(train, Training, part=True)
    steps = [run.steps.assign(**run.layout.cell) for run in open_runs(runs, "low_rank_sparse")]
    by_configuration = {
        "training": pd.concat(steps, ignore_index=True),
        "losses": LOSSES.read(losses),
        "spectra": with_ranks(SPECTRA.read(spectra), params.rtol),
        "truncate": TRUNCATE.read(truncate),
        "directions": DIRECTIONS.read(directions),
        "prune": PRUNE.read(prune),
        "neurons": NEURONS.read(neurons),
        "adapt": ADAPT.read(adapt),
    }
    swept = as_swept(SWEPT.read(sweep), params.fit_from_n_patterns)
    of_samples = swept["varies"] == "n_train"  # there updates are not looked at
    tables = {
        **by_configuration,
        "sweep": swept[~of_samples],
        "samples": numbers_needed(swept[of_samples], params.generalised_loss),
    }
    measured = setup_rows(
        {
            **vars(samples),
            **vars(trained),
            "swept_fitted_loss": read_params(swept_fitted_loss, float),
            "generalised_loss": params.generalised_loss,
            "corollary_from": params.corollary_from,
            "judged_steps": ", ".join(map(str, params.steps)),
            "values_rate": values_rate(tables["prune"]),
        }
    )
    for name, judged in params.judged.items():
        n_seeds = n_trained(tables["training"], name)
        measured += setup_rows({**vars(judged), "n_seeds": n_seeds}, name)
    for name, judged in params.judged.items():
        measured += rows_of_configuration(
            name,
            judged.permuted,
            by_configuration,
            steps=params.steps,
            pruning_rate=judged.pruning_rate,
            corollary_from=params.corollary_from,
        )
    measured += sweep_rows(
        tables["sweep"],
        tables["samples"],
        n_patterns=samples.n_patterns,
        decades_from=params.decades_from,
    )
    write_tables_of(DRAWN, tables, metrics / "tables", small=True)
    write_measures(measured, metrics, HEADLINES)
    training = tables["training"].rename(columns={"configuration": "variant"})
    by_step = training.groupby(["variant", "step"], as_index=False)
    write_csv(by_step[["hinge", "attention_of_relevant"]].mean(), curves)


if __name__ == "__main__":
    run(main)
