"""What git keeps of the runs: small tables for the figures, metrics to compare, measures for the claims."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib.analysis.curves import beyond_scale_law, exponents, harmless_rates, nearest, worst
from lib.analysis.energy import leading_energy, nuclear_tail
from lib.analysis.ranks import summaries
from lib.io.command import run
from lib.io.params import Fraction, read_params
from lib.io.runs import open_runs
from lib.io.tables import compact, pick, read_table, write_csv, write_measures, write_table

Measures = dict[str, pd.Series]  # a value for each seed
MATRICES = ("W_Q", "W_K", "W_V", "W_O")


@dataclass(frozen=True)
class Judged:
    """The pruning rates at which the claims look at a configuration."""

    pruning_rate: Fraction
    moderate_rate: Fraction
    strong_rate: Fraction


@dataclass(frozen=True)
class Evaluate:
    judged: dict[str, Judged]
    rtol: Fraction
    early_step: int
    harmless_slack: Fraction
    corollary_from: Fraction
    easy_n_relevant: int
    fit_from_n_patterns: int
    grouped_labels: str


def main(section: str, runs: Path, data: list[Path], metrics: Path, curves: Path) -> None:
    params = read_params(section, Evaluate)
    training = pd.concat([opened.steps.assign(**opened.layout.cell) for opened in open_runs(runs)], ignore_index=True)
    tables = {"training": training.drop(columns="snapshot")} | {path.stem: read_table(path) for path in data}
    tables["spectra"] = updates(tables["spectra"], params.rtol)
    sweep = tables.pop("sweep")
    sweep["in_fit"] = (sweep["sweep"] != "patterns") | (sweep["value"] >= params.fit_from_n_patterns)
    measured: Measures = {}
    for name, judged in params.judged.items():
        of = {key: table[table["configuration"] == name] for key, table in tables.items()}
        found = {
            **trained(of["training"]),
            **low_rank(of["spectra"], of["training"]["step"].max(), params.early_step),
            **truncated(of["truncate"]),
            **directed(of["directions"]),
            **sparse(of["neurons"]),
            **pruned(of["prune"], judged, params),
            **adapted(of["adapt"], of["truncate"]),
        }
        measured |= {f"{name}_{key}": series for key, series in found.items()}
    measured |= swept(sweep, params) | relabelled(sweep, params)
    for name, table in {**tables, "sweep": sweep}.items():
        write_table(compact(table), metrics / "tables" / f"{name}.parquet")
    write_measures(measured, metrics)
    curve = training.groupby(["configuration", "step"], as_index=False)[["hinge", "attention_of_relevant"]].mean()
    write_csv(curve.rename(columns={"configuration": "variant"}), curves)


def updates(spectra: pd.DataFrame, rtol: float) -> pd.DataFrame:
    """The spectra of the updates of the four matrices."""
    rows = spectra[spectra["matrix"].isin(MATRICES) & (spectra["of"] == "update")]
    rows = rows[["configuration", "matrix", "step", "seed", "singular_values"]]
    return rows.assign(numerical_rank=summaries(list(rows["singular_values"]), rtol)["numerical_rank"])


def trained(training: pd.DataFrame) -> Measures:
    """What the training reached."""
    first, last = pick(training, step=0), pick(training, step=training["step"].max())
    names = ["hinge", "accuracy", "margin", "least_margin", "attention", "attention_of_relevant"]
    measures = {name: last[name] for name in [*names, "fitted_step"]}
    return measures | {f"initial_{name}": first[name] for name in names[-2:]}


def low_rank(spectra: pd.DataFrame, last_step: int, early_step: int) -> Measures:
    """The spectra of the updates at the end, and of W_K's early on."""
    measures: Measures = {}
    for matrix in MATRICES:
        rows = pick(spectra, matrix=matrix, step=last_step)
        sigma, letter = np.stack(list(rows["singular_values"])), matrix[-1]
        named = {
            f"energy_{letter}": leading_energy(sigma, 2),
            f"gap_{letter}": sigma[:, 2] / sigma[:, 1],
            f"nuclear_tail_{letter}": nuclear_tail(sigma, 2),
            f"numerical_rank_{letter}": rows["numerical_rank"].to_numpy(float),
        }
        measures |= {name: pd.Series(numbers, rows.index) for name, numbers in named.items()}
    early = pick(spectra, matrix="W_K", step=early_step)["singular_values"]
    if len(early):
        measures["early_energy_K"] = pd.Series(leading_energy(np.stack(list(early)), 2), early.index)
    return measures


def truncated(table: pd.DataFrame) -> Measures:
    """What cuts of the updates cost."""
    names = ["hinge", "attention", "attention_of_relevant"]
    cost = pick(table, kind="all", rank=2)[names] - pick(table, kind="all", rank=table["rank"].max())[names]
    return {
        "rank_2_cost": cost["hinge"],
        "rank_2_attention": cost["attention"],
        "rank_2_attention_of_relevant": cost["attention_of_relevant"],
        "rank_1_hinge": pick(table, kind="all", rank=1)["hinge"],
        "rank_1_accuracy": pick(table, kind="all", rank=1)["accuracy"],
        "rank_0_hinge": pick(table, kind="all", rank=0)["hinge"],
        "pairs_3_and_4_hinge": pick(table, kind="pairs 3 and 4")["hinge"],
        "without_attention_hinge": pick(table, kind="W_Q and W_K", rank=0)["hinge"],
        "rank_1_attention_hinge": pick(table, kind="W_Q and W_K", rank=1)["hinge"],
        "rank_0_attention": pick(table, kind="all", rank=0)["attention"],
        "rank_0_attention_of_weights": pick(table, kind="weights, not updates", rank=0)["attention"],
        "rank_2_hinge_of_weights": pick(table, kind="weights, not updates", rank=2)["hinge"],
    }


def directed(table: pd.DataFrame) -> Measures:
    """Where the leading directions of W_K's update lie, in the space of its tokens."""
    names = {"alignment": "with mean irrelevant", "alignment_without_mean": "discriminative"}
    where = {"matrix": "W_K", "side": "input", "step": table["step"].max()}
    return {name: pick(table, span=span, **where)["alignment"] for name, span in names.items()}


def sparse(table: pd.DataFrame) -> Measures:
    """How the neurons part."""
    rows = pick(table)
    ratio = rows["large_norm"] / rows["small_norm"]
    measures = {"small_share": rows["small_share"], "large_over_small": ratio, "bimodality": rows["bimodality"]}
    return measures | ({"cosine": rows["cosine"]} if rows["cosine"].notna().all() else {})


def pruned(table: pd.DataFrame, judged: Judged, params: Evaluate) -> Measures:
    """What can be removed, and corollary 1."""

    def near(rows: pd.DataFrame, rate: float) -> pd.DataFrame:
        """The rows of the nearest rate in the table."""
        return pick(rows, rate=nearest(list(rows["rate"]), rate))

    neurons, weights, large = (table[table["what"] == what] for what in ("neurons", "weights", "large neurons"))
    measures: Measures = {}
    for order in ("smallest", "random", "largest"):
        rows = neurons[neurons["order"] == order]
        measures[f"harmless_{order}"] = harmless_rates(rows, "hinge", params.harmless_slack)
        measures[f"pruned_{order}"] = near(rows, judged.pruning_rate)["hinge"]
    smallest = neurons[neurons["order"] == "smallest"]
    for name, rate in {"moderate": judged.moderate_rate, "strong": judged.strong_rate}.items():
        measures |= {
            f"neurons_{name}": near(smallest, rate)["hinge"],
            f"neurons_{name}_rescaled": near(smallest, rate)["rescaled_hinge"],
            f"weights_{name}": near(weights, rate)["hinge"],
        }
    groups = pick(table[table["what"].str.contains(":")])
    if len(groups):
        measures["groups"] = groups["hinge"]
    measures["values"] = pick(table, what="rows of W_V")["hinge"]
    hinge, start = large.pivot_table(index="seed", columns="rate", values="hinge"), pick(large, rate=0)["margin"]
    return measures | {
        "margin_without_small": start,
        "corollary_deviation": worst(beyond_scale_law(hinge, start, params.corollary_from)),
        "corollary_least_rise": hinge.T.diff().iloc[1:].min(),
    }


def adapted(table: pd.DataFrame, truncate: pd.DataFrame) -> Measures:
    """Adapters of the smallest rank beside updates cut to it, and the worst adapter."""
    if table.empty:
        return {}
    hinges = table.pivot_table(index="seed", columns="rank", values="hinge")
    least = int(table["rank"].min())
    cut = pick(truncate, kind="all", rank=least)["hinge"]
    return {
        "adapter_hinge": worst(hinges),
        "adapter_hinge_of_least_rank": hinges[least],
        "cut_hinge_of_least_rank": cut[cut.index.isin(hinges.index)],
    }


def swept(sweep: pd.DataFrame, params: Evaluate) -> Measures:
    """Exponents of each seed, and what the sweeps control for."""
    fits = {
        "slope_of_steps_in_relevant": ("relevant", "fitted_step"),
        "slope_of_steps_in_relevant_with_confusion": ("relevant_with_confusion", "fitted_step"),
        "slope_of_steps_in_step_size": ("step_size", "fitted_step"),
        "slope_of_third_in_patterns": ("patterns", "W_K_next"),
        "slope_of_tail_in_patterns": ("patterns", "W_K_tail"),
    }
    fitted = sweep[sweep["in_fit"]]
    measures = {key: exponents(fitted[fitted["sweep"] == name], "value", y) for key, (name, y) in fits.items()}
    easy = pick(sweep, sweep="relevant_with_confusion", value=params.easy_n_relevant)
    measures["easy_without_attention_hinge"] = easy["hinge_without_attention"]
    noise = sweep[sweep["sweep"] == "noise"]
    noise = noise.assign(cost=noise["hinge_at_rank_2"] - noise["hinge"])
    measures["noise_rank_2_cost"] = worst(noise.pivot_table(index="seed", columns="value", values="cost"))
    return measures


def relabelled(sweep: pd.DataFrame, params: Evaluate) -> Measures:
    """Whether the rank follows the number of label-relevant patterns."""
    measures: Measures = {}
    for name in ("classes_tied", "classes_untied"):
        columns = {"hinge_below": "hinge_at_rank_below", "hinge_at": "hinge_at_rank_k", "hinge": "hinge"}
        columns |= {f"energy_{matrix[-1]}": f"{matrix}_energy" for matrix in MATRICES}
        for key, column in columns.items():
            of = sweep[sweep["sweep"] == name].pivot_table(index="seed", columns="labels", values=column)
            measures[f"{name}_{key}"] = worst(of, largest=key in ("hinge_at", "hinge"))
    grouped = pick(sweep, sweep="grouped", labels=params.grouped_labels)
    columns = {"gap_K": "W_K_gap", "second_gap_K": "W_K_gap_2", "energy_V": "W_V_energy_2", "energy_O": "W_O_energy_2"}
    columns |= {"rank_2_hinge": "hinge_at_rank_2"}
    return measures | {f"grouped_{key}": grouped[column] for key, column in columns.items()}


if __name__ == "__main__":
    run(main)
