"""Write what git keeps of the runs: tables for figures, and measures for claims."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.files.params import Fraction, Positive, read_params
from lib.files.runs import open_runs
from lib.files.tables import compact, read_table, write_csv, write_measures, write_table
from lib.low_rank_sparse.measures import (
    Measures,
    adapter_measures,
    direction_measures,
    meets_condition,
    neuron_measures,
    null_measures,
    numbers_needed,
    pruning_measures,
    sweep_measures,
    training_measures,
    truncation_measures,
    update_measures,
)
from lib.matrices.ranks import summaries
from lib.work.command import OutFile, OutFolder, run

MATRICES = ("W_Q", "W_K", "W_V", "W_O")
# The columns by which each table is known.
COLUMNS = {
    "losses": "configuration step seed loss",
    "spectra": "configuration matrix of step seed singular_values",
    "truncate": "configuration labels seed kind rank hinge attention",
    "directions": "configuration labels seed span alignment",
    "prune": "configuration labels seed what order rate weights hinge",
    "neurons": "configuration labels seed threshold small_share norms",
    "adapt": "configuration seed rank fitted_step hinge",
    "sweep": "sweep varies value seed n_relevant n_confusion labels permuted fitted_step hinge",
}


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
    easy_n_relevant: int
    fit_from_n_patterns: int
    decades_from: tuple[Positive, ...]


def main(
    section: str,
    generate: str,
    train: str,
    sweep: str,
    runs: Path,
    tables: list[Path],
    metrics: OutFolder,
    curves: OutFile,
) -> None:
    params = read_params(section, Evaluate)
    setup = setup_of(section, generate, train, sweep)
    training = pd.concat(
        [run.steps.assign(**run.layout.cell) for run in open_runs(runs, "low_rank_sparse")],
        ignore_index=True,
    )
    kept = {"training": training.drop(columns="snapshot")}
    for path in tables:
        kept[path.stem] = read_table(path, COLUMNS[path.stem].split(), and_others=True)
    kept["spectra"] = updates(kept["spectra"][COLUMNS["spectra"].split()], params.rtol)
    of_values = kept["prune"]["what"] == "rows of W_V"
    setup["judged_steps"] = ", ".join(map(str, params.steps))
    setup["values_rate"] = kept["prune"]["rate"][of_values].max()
    swept = kept.pop("sweep")
    measured: Measures = {}
    for name, judged in params.judged.items():
        own = {key: of[of["configuration"] == name] for key, of in kept.items()}
        null = {key: of[of["configuration"] == judged.permuted] for key, of in kept.items()}
        found = measures_of(own, null, judged, params)
        measured |= {f"{name}_{key}": of for key, of in found.items()}
        setup |= {f"{name}_{key}": value for key, value in vars(judged).items()}
        setup[f"{name}_steps"] = int(own["training"]["step"].max())
        setup[f"{name}_seeds"] = own["training"]["seed"].nunique()
    # The number of the first batch that is fitted, from 1 on.
    swept["n_batches"] = swept["fitted_step"].where(swept["fitted_step"] >= 0) + 1
    allowed = meets_condition(swept["n_confusion"], swept["n_relevant"])
    enough = (swept["sweep"] != "patterns") | (swept["value"] >= params.fit_from_n_patterns)
    swept["in_fit"] = allowed & enough
    # Where the number of samples varies, updates are not looked at.
    of_samples = swept["varies"] == "n_train"
    kept["sweep"] = swept[~of_samples].dropna(axis=1, how="all")
    kept["samples"] = numbers_needed(swept[of_samples], params.generalised_loss)
    measured |= sweep_measures(
        kept["sweep"],
        kept["samples"],
        easy_n_relevant=params.easy_n_relevant,
        n_patterns=setup["n_patterns"],
        decades_from=params.decades_from,
    )
    del kept["directions"]  # no figure shows them
    for name, table in kept.items():
        write_table(compact(table), metrics / "tables" / f"{name}.parquet")
    write_measures(measured, metrics, setup, ["tied_energy_K"])
    training = training.rename(columns={"configuration": "variant"})
    by_step = training.groupby(["variant", "step"], as_index=False)
    write_csv(by_step[["hinge", "attention_of_relevant"]].mean(), curves)


def setup_of(section: str, generate: str, train: str, sweep: str) -> dict[str, Any]:
    """The numbers of the sections, for what claims say; names of sweeps begin with `swept_`."""
    setup: dict[str, Any] = {}
    for other, prefix in ((section, ""), (generate, ""), (train, ""), (sweep, "swept_")):
        for key, value in read_params(other, dict).items():
            if isinstance(value, int | float):
                setup[prefix + key] = value
    return setup


def updates(spectra: pd.DataFrame, rtol: float) -> pd.DataFrame:
    """The spectra of the four matrices' updates, and of Gaussian updates of the same norms."""
    rows = spectra[spectra["matrix"].isin(MATRICES) & spectra["of"].isin(["update", "gaussian"])]
    ranks = summaries(list(rows["singular_values"]), rtol)["numerical_rank"]
    return rows.assign(numerical_rank=ranks)


def measures_of(
    own: dict[str, pd.DataFrame],
    null: dict[str, pd.DataFrame],
    judged: Judged,
    params: Evaluate,
) -> Measures:
    """Every measure of one configuration, by the tables of its own and of its null."""
    return {
        **training_measures(own["training"]),
        **update_measures(own["spectra"], params.steps),
        **null_measures(null["spectra"], null["directions"], null["neurons"], params.steps),
        **truncation_measures(own["truncate"]),
        **direction_measures(own["directions"]),
        **neuron_measures(own["neurons"]),
        **pruning_measures(
            own["prune"],
            pruning_rate=judged.pruning_rate,
            corollary_from=params.corollary_from,
        ),
        **adapter_measures(own["adapt"]),
    }


if __name__ == "__main__":
    run(main)
