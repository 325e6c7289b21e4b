"""What git keeps of the runs: small tables for the figures, metrics to compare, measures for the claims."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib.analysis.scaling import log_log_slope
from lib.analysis.sparsity import harmless_rate
from lib.io.command import run
from lib.io.params import Fraction, read_params
from lib.io.runs import open_runs
from lib.io.tables import compact, read_table, write_csv, write_json, write_table

Measures = dict[str, pd.Series]  # a value for each seed
MATRICES = ("W_Q", "W_K", "W_V", "W_O")


@dataclass(frozen=True)
class Judged:
    """The pruning rates at which the claims look at a configuration."""

    configuration: str
    pruning_rate: Fraction
    moderate_rate: Fraction
    strong_rate: Fraction


@dataclass(frozen=True)
class Evaluate:
    judged: tuple[Judged, ...]
    early_step: int
    harmless_slack: Fraction
    corollary_from: Fraction
    values_rate: Fraction
    easy_n_relevant: int
    fit_from_n_patterns: int
    grouped_labels: str


def main(
    section: str,
    runs: Path,
    spectra: Path,
    truncate: Path,
    directions: Path,
    prune: Path,
    neurons: Path,
    adapt: Path,
    sweep: Path,
    metrics: Path,
    curves: Path,
) -> None:
    params = read_params(section, Evaluate)
    training = pd.concat([opened.steps.assign(**opened.layout.cell) for opened in open_runs(runs)], ignore_index=True)
    values = read_table(spectra)
    values = values[values["matrix"].isin(MATRICES) & (values["of"] == "update")]
    keep = ["configuration", "matrix", "step", "seed", "norm", "stable_rank", "numerical_rank", "singular_values"]
    tables = {
        "training": training.drop(columns="snapshot"),
        "spectra": values[keep],
        "truncate": read_table(truncate),
        "directions": read_table(directions),
        "prune": read_table(prune),
        "neurons": read_table(neurons),
        "adapt": read_table(adapt),
        "sweep": read_table(sweep),
    }
    measured: Measures = {}
    for judged in params.judged:
        name = judged.configuration
        of = {key: table[table["configuration"] == name] for key, table in tables.items() if key != "sweep"}
        found = {
            **trained(of["training"]),
            **low_rank(of["spectra"], of["training"], params.early_step),
            **truncated(of["truncate"]),
            **directed(of["directions"]),
            **sparse(of["neurons"]),
            **pruned(of["prune"], judged, params),
            **adapted(of["adapt"], of["truncate"]),
        }
        measured |= {f"{name}_{key}": series for key, series in found.items()}
    measured |= swept(tables["sweep"], params) | relabelled(tables["sweep"], params)
    for name, table in tables.items():
        write_table(compact(table), metrics / f"{name}.parquet")
    write_json(
        {name: {"mean": series.mean(), "sd": series.std()} for name, series in measured.items()},
        metrics / "summary.json",
    )
    write_json(
        {
            name: {"seeds": [int(seed) for seed in series.index], "values": [float(value) for value in series]}
            for name, series in measured.items()
        },
        metrics / "measures.json",
    )
    curve = training.groupby(["configuration", "step"], as_index=False)[["hinge", "attention_of_relevant"]].mean()
    write_csv(curve.rename(columns={"configuration": "variant"}), curves)


def at(table: pd.DataFrame, **where: str | float) -> pd.DataFrame:
    """The rows whose columns have these values, by seed; of a rate, those of the nearest in the table."""
    for column, value in where.items():
        if column == "rate":
            rates = sorted(table["rate"].unique())
            value = min(rates, key=lambda rate, wanted=float(value): abs(rate - wanted))
        table = table[table[column] == value]
    return table.set_index("seed").sort_index()


def trained(training: pd.DataFrame) -> Measures:
    """What the training reached."""
    first, last = at(training, step=0), at(training, step=training["step"].max())
    names = ["hinge", "accuracy", "margin", "least_margin", "attention", "attention_of_relevant"]
    measures = {name: last[name] for name in names}
    measures["fitted_step"] = last["fitted_step"].astype(float)
    return measures | {f"initial_{name}": first[name] for name in names[-2:]}


def low_rank(spectra: pd.DataFrame, training: pd.DataFrame, early_step: int) -> Measures:
    """The spectra of the updates at the end, and of W_K's early on."""
    measures: Measures = {}
    for matrix in MATRICES:
        rows = at(spectra, matrix=matrix, step=training["step"].max())
        sigma, letter = np.stack(list(rows["singular_values"])), matrix[-1]
        named = {
            f"energy_{letter}": leading_share(sigma),
            f"gap_{letter}": sigma[:, 2] / sigma[:, 1],
            f"nuclear_tail_{letter}": sigma[:, 2:].sum(1) / sigma.sum(1),
            f"numerical_rank_{letter}": rows["numerical_rank"].to_numpy(float),
        }
        measures |= {name: pd.Series(numbers, rows.index) for name, numbers in named.items()}
    early = at(spectra, matrix="W_K", step=early_step)
    if len(early):
        measures["early_energy_K"] = pd.Series(leading_share(np.stack(list(early["singular_values"]))), early.index)
    return measures


def leading_share(sigma: np.ndarray) -> np.ndarray:
    """e_2 of each row."""
    return (sigma[:, :2] ** 2).sum(1) / (sigma**2).sum(1)


def truncated(table: pd.DataFrame) -> Measures:
    """What cuts of the updates cost."""
    names = ["hinge", "attention", "attention_of_relevant"]
    cost = at(table, kind="all", rank=2)[names] - at(table, kind="all", rank=table["rank"].max())[names]
    return {
        "rank_2_cost": cost["hinge"],
        "rank_2_attention": cost["attention"],
        "rank_2_attention_of_relevant": cost["attention_of_relevant"],
        "rank_1_hinge": at(table, kind="all", rank=1)["hinge"],
        "rank_1_accuracy": at(table, kind="all", rank=1)["accuracy"],
        "rank_0_hinge": at(table, kind="all", rank=0)["hinge"],
        "pairs_3_and_4_hinge": at(table, kind="pairs 3 and 4")["hinge"],
        "without_attention_hinge": at(table, kind="W_Q and W_K", rank=0)["hinge"],
        "rank_1_attention_hinge": at(table, kind="W_Q and W_K", rank=1)["hinge"],
        "rank_0_attention": at(table, kind="all", rank=0)["attention"],
        "rank_0_attention_of_weights": at(table, kind="weights, not updates", rank=0)["attention"],
        "rank_2_hinge_of_weights": at(table, kind="weights, not updates", rank=2)["hinge"],
    }


def directed(table: pd.DataFrame) -> Measures:
    """Where the leading directions of W_K's update lie, in the space of its tokens."""
    rows = table[(table["matrix"] == "W_K") & (table["side"] == "input") & (table["step"] == table["step"].max())]
    return {
        "alignment": at(rows, span="with mean irrelevant")["alignment"],
        "alignment_without_mean": at(rows, span="discriminative")["alignment"],
    }


def sparse(table: pd.DataFrame) -> Measures:
    """How the neurons part."""
    rows = at(table)
    measures = {
        "small_share": rows["small_share"],
        "large_over_small": rows["large_norm"] / rows["small_norm"],
        "bimodality": rows["bimodality"],
    }
    return measures | ({"cosine": rows["cosine"]} if rows["cosine"].notna().all() else {})


def pruned(table: pd.DataFrame, judged: Judged, params: Evaluate) -> Measures:
    """What can be removed, and corollary 1."""
    measures: Measures = {}
    for order in ("smallest", "random", "largest"):
        rows = table[(table["what"] == "neurons") & (table["order"] == order)]
        harmless = {
            seed: harmless_rate(list(chosen["rate"]), list(chosen["hinge"]), params.harmless_slack)
            for seed, chosen in rows.sort_values("rate").groupby("seed")
        }
        measures[f"harmless_{order}"] = pd.Series(harmless)
        measures[f"pruned_{order}"] = at(rows, rate=judged.pruning_rate)["hinge"]
    for name, rate in {"moderate": judged.moderate_rate, "strong": judged.strong_rate}.items():
        neurons = at(table, what="neurons", order="smallest", rate=rate)
        measures |= {
            f"neurons_{name}": neurons["hinge"],
            f"neurons_{name}_rescaled": neurons["rescaled_hinge"],
            f"weights_{name}": at(table, what="weights", rate=rate)["hinge"],
        }
    groups = at(table[table["what"].str.contains(":")])
    if len(groups):
        measures["groups"] = groups["hinge"]
    measures["values"] = at(table, what="rows of W_V", rate=params.values_rate)["hinge"]
    return measures | corollary(table[table["what"] == "large neurons"], params)


def corollary(table: pd.DataFrame, params: Evaluate) -> Measures:
    r"""Hinge against $\max(0, 1 - (1 - R) \lvert F_0 \rvert)$, F_0 the mean margin when all small neurons are gone.

    The deviation is that at the R where it is largest on the mean over seeds.
    """
    hinge = table.pivot_table(index="seed", columns="rate", values="hinge")
    start = at(table, rate=0)["margin"]
    rates = hinge.columns.to_numpy(float)
    deviation = hinge - np.maximum(0, 1 - np.outer(start, 1 - rates))
    return {
        "margin_without_small": start,
        "corollary_deviation": worst(deviation.loc[:, rates >= params.corollary_from - 1e-6]),
        "corollary_least_rise": hinge.T.diff().iloc[1:].min(),
    }


def adapted(table: pd.DataFrame, truncate: pd.DataFrame) -> Measures:
    """Adapters of the smallest rank beside updates cut to it, and the worst adapter."""
    if table.empty:
        return {}
    hinges = table.pivot_table(index="seed", columns="rank", values="hinge")
    least = int(table["rank"].min())
    cut = at(truncate, kind="all", rank=least)["hinge"]
    return {
        "adapter_hinge": worst(hinges),
        "adapter_hinge_of_least_rank": hinges[least],
        "cut_hinge_of_least_rank": cut[cut.index.isin(hinges.index)],
    }


def swept(sweep: pd.DataFrame, params: Evaluate) -> Measures:
    """Slopes of each seed in log-log, and what the sweeps control for."""
    measures: Measures = {}
    fits = {
        "slope_of_steps_in_relevant": ("relevant", "fitted_step"),
        "slope_of_steps_in_relevant_with_confusion": ("relevant_with_confusion", "fitted_step"),
        "slope_of_steps_in_step_size": ("step_size", "fitted_step"),
        "slope_of_third_in_patterns": ("patterns", "W_K_next"),
        "slope_of_tail_in_patterns": ("patterns", "W_K_tail"),
    }
    for measure, (name, column) in fits.items():
        rows = sweep[sweep["sweep"] == name]
        if name == "patterns":
            rows = rows[rows["value"] >= params.fit_from_n_patterns]
        fitted = {
            seed: log_log_slope(chosen["value"].tolist(), chosen[column].tolist())
            if len(chosen) > 1 and (chosen[column] > 0).all()
            else np.nan  # a training of the sweep was not fitted
            for seed, chosen in rows.groupby("seed")
        }
        measures[measure] = pd.Series(fitted, dtype=float)
    easy = at(sweep, sweep="relevant_with_confusion", value=params.easy_n_relevant)
    measures["easy_without_attention_hinge"] = easy["hinge_without_attention"]
    noise = sweep[sweep["sweep"] == "noise"]
    noise = noise.assign(cost=noise["hinge_at_rank_2"] - noise["hinge"])
    measures["noise_rank_2_cost"] = worst(noise.pivot_table(index="seed", columns="value", values="cost"))
    return measures


def relabelled(sweep: pd.DataFrame, params: Evaluate) -> Measures:
    """Whether the rank follows the number of label-relevant patterns."""
    labels = sweep[sweep["sweep"] == "labels"]
    measures: Measures = {}
    for readout, rows in labels[labels["n_outputs"] > 1].groupby("readout"):

        def table(column: str, rows: pd.DataFrame = rows) -> pd.DataFrame:
            return rows.pivot_table(index="seed", columns="labels", values=column)

        measures |= {
            f"classes_{readout}_hinge_below": worst(table("hinge_at_rank_below"), largest=False),
            f"classes_{readout}_hinge_at": worst(table("hinge_at_rank_k")),
            f"classes_{readout}_hinge": worst(table("hinge")),
        }
        for matrix in MATRICES:
            measures[f"classes_{readout}_energy_{matrix[-1]}"] = worst(table(f"{matrix}_energy"), largest=False)
    grouped = at(labels[labels["n_outputs"] == 1], labels=params.grouped_labels)
    return measures | {
        "grouped_gap_K": grouped["W_K_gap"],
        "grouped_second_gap_K": grouped["W_K_gap_2"],
        "grouped_energy_V": grouped["W_V_energy_2"],
        "grouped_energy_O": grouped["W_O_energy_2"],
        "grouped_rank_2_hinge": grouped["hinge_at_rank_2"],
    }


def worst(table: pd.DataFrame, largest: bool = True) -> pd.Series:
    """The seeds' values in the column whose mean is the largest in size, or the smallest."""
    means = table.mean().abs()
    return table[means.idxmax() if largest else means.idxmin()].dropna()


if __name__ == "__main__":
    run(main)
