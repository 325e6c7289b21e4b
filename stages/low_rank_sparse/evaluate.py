"""What git keeps of the runs: small tables for the figures, metrics to compare, measures for the
claims.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.files.params import Fraction, Positive, read_params
from lib.files.runs import open_runs
from lib.files.tables import compact, pick, read_table, write_csv, write_measures, write_table
from lib.low_rank_sparse.energy import gap, leading_energy, nuclear_tail, of_matrices
from lib.low_rank_sparse.measures import (
    by_value,
    direction_measures,
    exponents,
    harmless_rates,
    least_rise,
    nearest,
    neuron_measures,
    numbers_needed,
    of_null,
    of_sweep,
    truncation_measures,
)
from lib.matrices.ranks import summaries
from lib.work.command import OutFile, OutFolder, run

Measures = dict[
    str, pd.Series | Mapping[str, pd.Series]
]  # a value for each seed, or such values by what varies
PAIRS = {"QK": ["Q", "K"], "VO": ["V", "O"]}  # matrices that are judged together, by the worse
ALONE = {"QK": ["Q", "K"], "V": ["V"], "O": ["O"]}  # of nulls: V comes near to low rank by itself
OF_CHANCE = {"random_directions": "hinge_in_random_directions", "gaussian": "hinge_of_gaussian"}
MATRICES = [f"W_{letter}" for pair in PAIRS.values() for letter in pair]
EXPONENTS = {
    f"steps_in_{name}": (name, "n_batches")
    for name in ("relevant", "relevant_with_confusion", "step_size")
}
EXPONENTS |= {
    f"{what}_in_patterns": ("patterns", f"W_K_{key}")
    for what, key in (("third", "next"), ("tail", "tail"))
}


@dataclass(frozen=True)
class Judged:
    """The configuration with permuted labels, a null, and the pruning rates at which the claims
    look.
    """

    permuted: str
    pruning_rate: Fraction
    moderate_rate: Fraction
    strong_rate: Fraction


@dataclass(frozen=True)
class Evaluate:
    judged: dict[str, Judged]
    rtol: Fraction
    steps: tuple[int, ...]
    harmless_slack: Fraction
    generalised_loss: Positive
    corollary_from: Fraction
    easy_n_relevant: int
    fit_from_n_patterns: int


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
    setup: dict = {
        key: value for key, value in vars(params).items() if isinstance(value, int | float)
    }
    for prefix, other in (("", generate), ("", train), ("swept_", sweep)):
        numbers = read_params(other, dict)  # of sections that their own stages check
        setup |= {
            prefix + key: value for key, value in numbers.items() if isinstance(value, int | float)
        }
    every = open_runs(runs, "low_rank_sparse")
    steps = pd.concat(
        [opened.steps.assign(**opened.layout.cell) for opened in every], ignore_index=True
    )
    kept = {"training": steps.drop(columns="snapshot")} | {
        path.stem: read_table(path) for path in tables
    }
    kept["spectra"] = updates(kept["spectra"], params.rtol)
    of_values = kept["prune"]["what"] == "rows of W_V"
    setup |= {
        "judged_steps": ", ".join(map(str, params.steps)),
        "values_rate": kept["prune"]["rate"][of_values].max(),
    }
    sweeps = kept.pop("sweep")
    # The number of the first batch that is fitted, from 1 on.
    sweeps["n_batches"] = sweeps["fitted_step"].where(sweeps["fitted_step"] >= 0) + 1
    sweeps["in_fit"] = (sweeps["sweep"] != "patterns") | (
        sweeps["value"] >= params.fit_from_n_patterns
    )
    measured: Measures = {}
    for name, judged in params.judged.items():
        of, null = (
            {k: t[t["configuration"] == c] for k, t in kept.items()}
            for c in (name, judged.permuted)
        )
        found = {
            **trained(of["training"], of["losses"]),
            **low_rank(of["spectra"], params.steps, setup["n_patterns"]),
            **nulls(null, params.steps),
            **truncation_measures(of["truncate"]),
            **direction_measures(of["directions"]),
            **neuron_measures(of["neurons"]),
            **pruned(of["prune"], judged, params),
            **adapted(of["adapt"]),
        }
        measured |= {f"{name}_{key}": series for key, series in found.items()}
        setup |= {f"{name}_{key}": value for key, value in vars(judged).items()}
        setup |= {
            f"{name}_steps": int(of["training"]["step"].max()),
            f"{name}_seeds": of["training"]["seed"].nunique(),
        }
    # Where the number of samples varies, updates are not looked at.
    scored, sweeps = (
        of.dropna(axis=1, how="all") for _, of in sweeps.groupby(sweeps["varies"] != "n_train")
    )
    kept |= {
        "sweep": sweeps,
        "generalisation": scored,
        "samples": numbers_needed(scored, params.generalised_loss),
    }
    measured |= swept(sweeps, kept["samples"], params.easy_n_relevant, setup["n_patterns"])
    small = {name: compact(table) for name, table in kept.items()}
    curve = steps.rename(columns={"configuration": "variant"}).groupby(
        ["variant", "step"], as_index=False
    )
    for name, table in small.items():
        write_table(table, metrics / "tables" / f"{name}.parquet")
    write_measures(measured, metrics, setup, ["tied_energy_K"])
    write_csv(curve[["hinge", "attention_of_relevant"]].mean(), curves)


def updates(spectra: pd.DataFrame, rtol: float) -> pd.DataFrame:
    """The spectra of the updates of the four matrices, and of Gaussian ones of the same norms."""
    rows = spectra[spectra["matrix"].isin(MATRICES) & spectra["of"].isin(["update", "gaussian"])]
    rows = rows[["configuration", "matrix", "of", "step", "seed", "singular_values"]]
    return rows.assign(
        numerical_rank=summaries(list(rows["singular_values"]), rtol)["numerical_rank"]
    )


def trained(training: pd.DataFrame, losses: pd.DataFrame) -> Measures:
    """What the training reached, and the largest loss of a batch after the first that was
    fitted.
    """
    last = pick(training, step=training["step"].max())
    names = ["hinge", "accuracy", "margin", "attention", "attention_of_relevant", "fitted_step"]
    after = losses[
        losses["step"] >= losses["seed"].map(last["fitted_step"].where(last["fitted_step"] >= 0))
    ]
    highest = after.groupby("seed")["loss"].max().reindex(last.index)
    return {**{name: last[name] for name in names}, "loss_once_fitted": highest}


def low_rank(spectra: pd.DataFrame, steps: tuple[int, ...], n_patterns: int) -> Measures:
    """The spectra of the updates at the end, also of Gaussian ones, and on the way, by step."""
    moved = spectra[spectra["of"] == "update"]
    ends = moved[moved["step"] == spectra["step"].max()]
    energy, gaps, tails = (
        of_matrices(ends, MATRICES, summary) for summary in (leading_energy, gap, nuclear_tail)
    )
    measures: Measures = {f"energy_{letter}": energy[letter] for letter in energy}
    measures |= {
        f"numerical_rank_{matrix[-1]}": pick(ends, matrix=matrix)["numerical_rank"]
        for matrix in MATRICES
    }
    gaussian = spectra[spectra["of"] == "gaussian"]
    for name, of in (("", ends), ("gaussian_", gaussian)):
        measures[f"{name}rank_beyond_K"] = pick(of, matrix="W_K")["numerical_rank"] - (
            n_patterns - 1
        )
    measures["gaussian_energy"] = of_matrices(gaussian, MATRICES, leading_energy).max(axis=1)
    on_the_way = by_step(moved, steps)
    for name, pair in PAIRS.items():
        measures |= {
            f"gap_{name}": gaps[pair].max(axis=1),
            f"nuclear_tail_{name}": tails[pair].max(axis=1),
        }
        measures[f"energy_{name}_by_step"] = {
            step: of[pair].min(axis=1) for step, of in on_the_way.items()
        }
    return measures


def by_step(moved: pd.DataFrame, steps: tuple[int, ...]) -> dict[str, pd.DataFrame]:
    """The energies of updates at those of the steps at which they were saved."""
    return {
        str(step): of_matrices(of, MATRICES, leading_energy)
        for step, of in moved.groupby("step")
        if step in steps
    }


def nulls(of: Mapping[str, pd.DataFrame], steps: tuple[int, ...]) -> Measures:
    """The same of trainings on permuted labels: of matrices that are judged together, by the
    nearest to low rank.
    """
    if of["spectra"].empty:
        return {}
    moved = of["spectra"][of["spectra"]["of"] == "update"]
    ends, on_the_way = moved[moved["step"] == of["spectra"]["step"].max()], by_step(moved, steps)
    energy, gaps, tails = (
        of_matrices(ends, MATRICES, summary) for summary in (leading_energy, gap, nuclear_tail)
    )
    measures: Measures = {f"permuted_energy_{letter}": energy[letter] for letter in energy}
    measures |= {f"permuted_gap_{name}": gaps[pair].min(axis=1) for name, pair in PAIRS.items()}
    measures |= {
        f"permuted_nuclear_tail_{name}": tails[pair].min(axis=1) for name, pair in PAIRS.items()
    }
    for name, group in ALONE.items():
        nearest_of = {step: energies[group].max(axis=1) for step, energies in on_the_way.items()}
        measures[f"permuted_energy_{name}_by_step"] = nearest_of
    lies = direction_measures(of["directions"])
    measures |= {f"permuted_{key}": lies[key] for key in ("alignment_K", "alignment_QVO")}
    return measures | {"permuted_bimodality": pick(of["neurons"])["bimodality"]}


def pruned(table: pd.DataFrame, judged: Judged, params: Evaluate) -> Measures:
    """What can be removed, and the two halves of corollary 1: all small neurons, then a share of
    the large ones.
    """

    def near(rows: pd.DataFrame, rate: float) -> pd.DataFrame:
        """The rows of the nearest rate in the table."""
        return pick(rows, rate=nearest(list(rows["rate"]), rate))

    neurons, large = (table[table["what"] == what] for what in ("neurons", "large neurons"))
    measures: Measures = {}
    for order in ("smallest", "random", "largest"):
        rows = neurons[neurons["order"] == order]
        measures[f"harmless_{order}"] = harmless_rates(rows, "hinge", params.harmless_slack)
        measures[f"pruned_{order}"] = near(rows, judged.pruning_rate)["hinge"]
        measures[f"as_many_{order}"] = pick(table, what="as many as small", order=order)["hinge"]
    smallest = neurons[neurons["order"] == "smallest"]
    for name, rate in {"moderate": judged.moderate_rate, "strong": judged.strong_rate}.items():
        measures[f"neurons_{name}_rescaled"] = near(smallest, rate)["rescaled_hinge"]
    hinge = large.pivot_table(index="seed", columns="rate", values="hinge")
    return measures | {
        "values": pick(table, what="rows of W_V")["hinge"],
        "without_small_cost": hinge[0.0] - pick(smallest, rate=0)["hinge"],
        "large_least_rise": least_rise(hinge, params.corollary_from),
    }


def adapted(table: pd.DataFrame) -> Measures:
    """Adapters, by rank."""
    return {"adapter_hinge": by_value(table, "hinge", "rank")} if len(table) else {}


def swept(
    sweep: pd.DataFrame, samples: pd.DataFrame, easy_n_relevant: int, n_patterns: int
) -> Measures:
    """The exponents of each seed's power laws, what each sweep shows by its values, its nulls, and
    two controls.
    """
    measures: Measures = {}
    for name, rows in sweep.groupby("sweep"):
        found = of_null(rows, ALONE) if rows["permuted"].all() else of_sweep(rows, PAIRS)
        if (rows["varies"] == "labels").all() and not rows["permuted"].all():
            found |= {
                f"gaussian_{key}": of
                for key, of in of_null(rows, {"": "QKVO"}, "gaussian_").items()
            }
            found |= {f"{null}_hinge": by_value(rows, column) for null, column in OF_CHANCE.items()}
        measures |= {f"{name}_{key}": series for key, series in found.items()}
    laws = {
        name: (sweep[sweep["in_fit"] & (sweep["sweep"] == one)], "value", y)
        for name, (one, y) in EXPONENTS.items()
    }
    laws |= {
        f"{name}_in_relevant": (of, "n_relevant", "n_needed")
        for name, of in samples.groupby("sweep")
    }
    measures |= {f"slope_of_{name}": exponents(*law) for name, law in laws.items()}
    easy = pick(sweep, sweep="relevant_with_confusion", value=easy_n_relevant)
    clean = pick(sweep, sweep="noise", value=0)
    beyond = [sigma[n_patterns - 1] / sigma[0] for sigma in clean["W_K_singular_values"]]
    measures["beyond_patterns_without_noise"] = pd.Series(beyond, clean.index, dtype=float)
    return measures | {"easy_without_attention_hinge": easy["hinge_without_attention"]}


if __name__ == "__main__":
    run(main)
