"""What git keeps of the family: small tables for the figures, metrics to compare, measures for the claims."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.data.decision_lists import Task, determining_tokens
from lib.io.command import run
from lib.io.files import InputError, file_name
from lib.io.params import Interval, Positive, Seed, read_params
from lib.io.runs import open_run
from lib.io.tables import compact, read_table, write_csv, write_json, write_table
from lib.models.list_attention import Rows, attention_rows

Measures = dict[str, list[float]]


@dataclass(frozen=True)
class Evaluate:
    """What the claims and figures look at.

    The time law from scales of `law_from` on; the rank between `early_begin` and `early_end`; by name, the tasks whose
    course is drawn and the one, with its seed, whose weights and attention are.
    """

    law_from: Positive
    early_begin: Positive
    early_end: Positive
    paths: tuple[str, ...]
    shown_task: str
    shown_seed: Seed
    shown_sequences: Annotated[int, Interval("[1, 6]")]


def main(
    section: str,
    tasks: Path,
    flow: Path,
    descend: Path,
    train: Path,
    joint: Path,
    certify: Path,
    spectra: Path,
    metrics: Path,
    curves: Path,
) -> None:
    params = read_params(section, Evaluate)
    listed = {str(row["name"]): Task.from_row(row) for row in read_table(tasks).to_dict("records")}
    if params.shown_task not in listed:
        raise InputError(f"{section}.shown_task: wanted a task of {tasks}, got {params.shown_task!r}")
    paths = read_table(flow / "paths.parquet")
    missing = sorted(set(params.paths) - set(paths["task"]))
    if missing:
        raise InputError(f"{section}.paths: wanted tasks of {flow}, got {missing}")
    ranks = read_table(spectra)
    lemmas = pd.concat([lemma_ratios(read_table(certify / f"lemma_{i}.parquet"), i) for i in (1, 2)])
    tables = {
        "theorem": with_ties(read_table(flow / "theorem.parquet")),
        "paths": paths[paths["task"].isin(params.paths)],
        "law": read_table(flow / "law.parquet"),
        "repeats": read_table(flow / "repeats.parquet"),
        "many": read_table(flow / "many.parquet"),
        "alone": read_table(descend / "attention_alone.parquet"),
        "both": read_table(descend / "both.parquet"),
        "starts": last_of(read_table(train / "starts.parquet"), ["task", "start", "seed"]),
        "joint": last_of(read_table(train / "joint.parquet"), ["task", "seed"]),
        "alignment": read_table(train / "alignment.parquet"),
        "controls": read_table(train / "controls.parquet"),
        "minibatch": read_table(train / "minibatch.parquet"),
        "lemmas": lemmas,
        "certificates": read_table(certify / "certificates.parquet"),
        "feasible": read_table(certify / "feasible.parquet"),
        "monte_carlo": read_table(certify / "monte_carlo.parquet"),
        "trained": read_table(certify / "trained.parquet"),
        "spectra": ranks[ranks["of"] == "update"],
        **shown(listed[params.shown_task], joint, params),
    }
    measured = {
        **flow_measures(tables, params),
        **descent_measures(tables),
        **certificate_measures(tables),
        **training_measures(tables),
        **spectral_measures(tables, {t.group: t for t in listed.values()}, listed, params),
    }
    tables["certificates"] = tables["certificates"].value_counts().rename("n").reset_index()
    for name, table in tables.items():
        # Times span more decades than single precision has.
        write_table(compact(table, single_precision=False), metrics / f"{name}.parquet")
    described = {name: pd.Series(v, dtype=float).agg(["mean", "std", "min", "max"]) for name, v in measured.items()}
    write_json(
        {name: dict(zip(("mean", "sd", "min", "max"), found, strict=True)) for name, found in described.items()},
        metrics / "summary.json",
    )
    write_json(
        {name: {"seeds": list(range(len(v))), "values": v} for name, v in measured.items()}, metrics / "measures.json"
    )
    alignment = tables["alignment"]
    write_csv(
        alignment.rename(columns={"task": "variant"})[["variant", "step", "cosine", "centred_cosine", "accuracy"]],
        curves,
    )


def last_of(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """The last row of every run, with the steps at which it was right, and certified, for the first time."""
    runs = table.groupby(keys, sort=True)
    found = runs.tail(1).set_index(keys)
    for name, right in (
        ("first_right", table["accuracy"] == 1.0),
        ("first_certified_sets", table["certified_sets"]),
        ("first_certified_all", table["certified_all"]),
    ):
        found[name] = table[right.astype(bool)].groupby(keys)["step"].min()
    return found.reset_index()


def with_ties(theorem: pd.DataFrame) -> pd.DataFrame:
    """Runs whose first velocity ties to rounding are right at once too: their rescaled time T c² is rounding alone."""
    return theorem.assign(at_once=theorem["at_once"] | (theorem["first_time"] * theorem["scale"] ** 2 < 1e-6))


def lemma_ratios(table: pd.DataFrame, number: int) -> pd.DataFrame:
    """The ratio of the sides of every case of a lemma, counted in bins of its logarithm, with the least of each."""
    ratio = table["derivative"] / table["bound"]
    bins = np.floor(np.log10(ratio.clip(lower=1e-12)) * 20).astype(int)
    counted = ratio.groupby(bins).agg(["size", "min"]).reset_index(names="bin")
    return counted.assign(lemma=number, violations=int((ratio < 1 - 1e-12).sum()), cases=len(ratio))


def shown(task: Task, runs: Path, params: Evaluate) -> dict[str, pd.DataFrame]:
    """W of one run by the places of each list, and the attention on a few sequences before and after."""
    opened = open_run(runs / file_name(task.name))
    if params.shown_seed not in opened.layout.seeds:
        raise InputError(f"shown_seed: wanted one of {opened.layout.seeds}, got {params.shown_seed}")
    seed = opened.layout.seeds.index(params.shown_seed)
    first, last = (opened.weights(i)["W"][seed] for i in (0, -1))
    weights = []
    for a, entries in enumerate(task.lists):
        others = [b for b in range(task.n_tokens) if b not in entries]
        for rank, b in enumerate([*entries, *others], 1):
            place = rank if rank <= len(entries) else 0
            weights.append({"query": a, "key": b, "row": rank, "place": place, "W": float(last[b, a])})
    star, place = determining_tokens(task.counts, task.lists)
    step = max(1, len(task.counts) // params.shown_sequences)
    chosen = list(range(0, len(task.counts), step))[: params.shown_sequences]
    rows = Rows.of(
        task.counts[chosen], torch.full((len(chosen),), 1 / len(chosen)).double(), star[chosen], place[chosen]
    )
    attention = []
    for when, W in (("before", first), ("after", last)):
        attention += attention_of(attention_rows(W, rows), rows, when)
    return {"weights": pd.DataFrame(weights), "attention": pd.DataFrame(attention)}


def attention_of(alpha: Tensor, rows: Rows, when: str) -> list[dict[str, object]]:
    """A row for each key and query of each sequence."""
    sequences = {tuple(c.tolist()): i for i, c in enumerate(torch.unique(rows.counts, dim=0))}
    found: list[dict[str, object]] = []
    for weights, counts, query, star in zip(alpha, rows.counts, rows.query.tolist(), rows.star.tolist(), strict=True):
        sequence = sequences[tuple(counts.tolist())]
        found += [
            {"when": when, "sequence": sequence, "query": query, "key": b, "attention": float(weights[b]), "star": star}
            for b in torch.nonzero(counts)[:, 0].tolist()
        ]
    return found


def flow_measures(tables: dict[str, pd.DataFrame], params: Evaluate) -> Measures:
    theorem, law, many = tables["theorem"], tables["law"], tables["many"]
    learned = theorem[~theorem["at_once"]]
    ratio = (learned["first_time"] / learned["bound"]).fillna(math.inf)
    limit = law[np.isinf(law["scale"])].set_index("task")["rescaled_time"]
    large = law[np.isfinite(law["scale"]) & (law["scale"] >= params.law_from)]
    time_ratio = large["rescaled_time"].fillna(math.inf) / large["task"].map(limit)
    errors = large.pivot_table(index="task", columns="scale", values="path_error")
    decades = math.log(float(errors.columns.max()) / float(errors.columns.min()))
    slope = np.log(errors.iloc[:, -1] / errors.iloc[:, 0]) / decades
    reduced = many[~many["at_once"]]
    return {
        "theorem_ratio": ratio.tolist(),
        "theorem_ratio_median": [float(ratio.median())],
        "theorem_runs": [float(len(theorem))],
        "theorem_share_learned_and_not_exchangeable": [
            float(((theorem["law"] != "uniform") & ~theorem["at_once"]).mean())
        ],
        "theorem_perfect_at_bound": theorem["perfect_at_bound"].dropna().tolist(),
        "theorem_lost": [float((theorem["lost"] > 0).sum())],
        "theorem_largest_rise": [float(theorem["largest_rise"].max())],
        "theorem_largest_attention": [float(theorem["largest_attention"].max())],
        "law_time_over_limit": time_ratio.tolist(),
        "law_error_slope": slope.tolist(),
        "many_ratio": (reduced["first_time"] / reduced["bound"]).fillna(math.inf).tolist(),
        "repeats_right": tables["repeats"]["first_time"].notna().astype(float).tolist(),
    }


def descent_measures(tables: dict[str, pd.DataFrame]) -> Measures:
    alone, both = tables["alone"], tables["both"]
    met = both[both["preconditions"]]
    return {
        "alone_ratio": (alone["n_steps"] / alone["bound"]).where(alone["margin"] > 0, math.inf).tolist(),
        "alone_failures": alone["failures"].astype(float).tolist(),
        "both_runs": [float(len(met))],
        "both_list_lengths": [float(met["length"].nunique())],
        "both_ratio": (met["n_steps"] / met["earliest"]).where(met["margin"] > 0, math.inf).tolist(),
        "both_certified": (met["margin"] > 0).astype(float).tolist(),
        "both_failures": met["failures"].astype(float).tolist(),
        "both_deviation": (met["deviation"] / met["epsilon"]).tolist(),
        "both_residual": met["residual"].tolist(),
        "both_curvature_growth": met["curvature_growth"].tolist(),
        "both_V_moved": (met["V_moved"] / met["epsilon"]).tolist(),
    }


def certificate_measures(tables: dict[str, pd.DataFrame]) -> Measures:
    cases, lemmas, feasible = tables["certificates"], tables["lemmas"], tables["feasible"]
    agree = cases["certified"] == cases["right"]
    kinds = cases.groupby(["certificate", "repeats"])["right"].mean()
    least = lemmas.groupby("lemma")["min"].min()
    closed = [next(n for n in range(2, 10**6) if n * math.log(n) ** 2 > 162 * m) for m in feasible["length"]]
    noise = tables["monte_carlo"].groupby("n_samples")["error"].mean()
    slope = np.log(noise.iloc[-1] / noise.iloc[0]) / np.log(noise.index.max() / noise.index.min())
    return {
        "certificates_agree": [float(agree.mean())],
        "certificates_cases": [float(cases.groupby("certificate").size().min())],
        "certificates_rarer_outcome": np.minimum(kinds, 1 - kinds).tolist(),
        "lemma_1_ratio": [float(least[1])],
        "lemma_2_ratio": [float(least[2])],
        "least_n_over_closed_form": (feasible["least_n"] - closed).astype(float).tolist(),
        "monte_carlo_slope": [float(slope)],
    }


def training_measures(tables: dict[str, pd.DataFrame]) -> Measures:
    joint, starts, alignment = tables["joint"], tables["starts"], tables["alignment"]
    end = alignment[alignment["step"] == alignment["step"].max()]
    controls = tables["controls"].pivot_table(index="task", columns="control", values="accuracy")
    batches = tables["minibatch"].groupby("seed").tail(1)
    right = (starts["accuracy"] == 1.0).groupby(starts["start"]).mean()
    return {
        "joint_certified_all": joint.groupby("seed")["certified_all"].mean().astype(float).tolist(),
        "joint_runs": [float(len(joint))],
        "failing_starts": [float((right == 0).sum())],
        "alignment_argmax": end["argmax_right"].tolist(),
        "alignment_cosine": end["cosine"].tolist(),
        "alignment_centred_cosine": end["centred_cosine"].tolist(),
        "minibatch_certified_sets": batches["certified_sets"].astype(float).tolist(),
        **{f"control_{name(str(control))}": controls[control].tolist() for control in controls},
    }


def name(text: str) -> str:
    """The text as a name of a measure."""
    return "_".join("".join(c if c.isalnum() else " " for c in text).lower().split())


def spectral_measures(
    tables: dict[str, pd.DataFrame], groups: dict[str, Task], listed: dict[str, Task], params: Evaluate
) -> Measures:
    spectra, trained = tables["spectra"], tables["trained"]
    early = spectra[spectra["time"].between(params.early_begin, params.early_end)]
    heads, uniform = early[early["group"] == "heads"], early[early["group"] == "no-heads"]

    def n_heads(task: str) -> int:
        return len({entries[0] for entries in listed[task].lists if len(entries) > 1})

    excess = heads["numerical_rank"] - heads["task"].astype(str).map(n_heads)
    full = uniform["numerical_rank"] - (groups["no-heads"].n_tokens - 1)
    gauge = trained["kept_in_gauge"] - trained["list_entries"]
    alone = trained[trained["longest"] >= 0]
    last = spectra["time"] == spectra["time"].max()
    return {
        "early_rank_over_heads": [float(excess.abs().max())],
        "early_rank_uniform_over_full": [float(full.abs().max())],
        "late_rank_with_heads": spectra[last & (spectra["group"] == "heads")]["numerical_rank"].astype(float).tolist(),
        "kept_in_gauge_over_list_entries": gauge.astype(float).tolist(),
        "kept_raw_over_list_entries": (trained["kept_raw"] - trained["list_entries"]).astype(float).tolist(),
        "longest_certified": alone["longest"].astype(float).tolist(),
    }


if __name__ == "__main__":
    run(main)
