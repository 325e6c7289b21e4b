"""What git keeps of the family: small tables for the figures, metrics to compare, measures for the claims."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch

from lib.analysis.convergence_bounds import closed_form_length
from lib.analysis.list_measures import (
    certificate_measures,
    descent_measures,
    flow_measures,
    lemma_ratios,
    spectral_measures,
    training_measures,
    with_ties,
)
from lib.analysis.ranks import summaries
from lib.data.decision_lists import Task, tasks_by_name
from lib.io.command import run
from lib.io.files import InputError, clear, file_name
from lib.io.params import Fraction, Interval, Positive, Seed, read_params
from lib.io.runs import open_run
from lib.io.tables import compact, read_table, write_csv, write_measures, write_table
from lib.models.list_attention import Rows, attention_on_sequences


@dataclass(frozen=True)
class Evaluate:
    """What the claims and figures look at.

    The time law from scales of `law_from` on; the rank, of singular values above `rtol` of the largest, between
    `early_begin` and `early_end`; by name, the tasks whose course is drawn and the one, with its seed, whose weights
    and attention are.
    """

    paths: tuple[str, ...]
    shown_task: str
    shown_seed: Seed
    shown_sequences: Annotated[int, Interval("[1, 6]")]
    law_from: Positive
    early_begin: Positive
    early_end: Positive
    rtol: Fraction


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
    listed = tasks_by_name(read_table(tasks).to_dict("records"))
    if params.shown_task not in listed:
        raise InputError(f"{section}.shown_task: wanted a task of {tasks}, got {params.shown_task!r}")
    folders = {
        flow: ("theorem", "paths", "law", "repeats", "many"),
        descend: ("alone", "both", "controls"),
        train: ("starts", "joint", "alignment", "minibatch"),
        certify: ("certificates", "feasible", "monte_carlo", "trained", "lemma_1", "lemma_2"),
    }
    tables = {name: read_table(folder / f"{name}.parquet") for folder, names in folders.items() for name in names}
    missing = sorted(set(params.paths) - set(tables["paths"]["task"]))
    if missing:
        raise InputError(f"{section}.paths: wanted tasks of {flow}, got {missing}")
    feasible = tables["feasible"]
    tables |= {
        "theorem": with_ties(tables["theorem"]),
        "paths": tables["paths"][tables["paths"]["task"].isin(params.paths)],
        "starts": last_of(tables["starts"], ["task", "start", "seed"]),
        "joint": last_of(tables["joint"], ["task", "seed"]),
        "lemmas": pd.concat([lemma_ratios(tables.pop(f"lemma_{number}"), number) for number in (1, 2)]),
        "feasible": feasible.assign(closed_form=[closed_form_length(m) for m in feasible["length"]]),
        "spectra": with_ranks(read_table(spectra), listed, params.rtol),
        **shown(listed[params.shown_task], joint, params),
    }
    measured = {
        **flow_measures(tables, params.law_from),
        **descent_measures(tables),
        **certificate_measures(tables),
        **training_measures(tables),
        **spectral_measures(tables, params.early_begin, params.early_end),
    }
    tables["certificates"] = tables["certificates"].value_counts().rename("n").reset_index()
    clear(metrics / "tables", "*.parquet")
    for name, table in tables.items():
        # Times span more decades than single precision has.
        write_table(compact(table, single_precision=False), metrics / "tables" / f"{name}.parquet")
    write_measures(measured, metrics)
    kept = ["variant", "step", "cosine", "centred_cosine", "accuracy"]
    write_csv(tables["alignment"].rename(columns={"task": "variant"})[kept], curves)


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


def with_ranks(spectra: pd.DataFrame, listed: dict[str, Task], rtol: float) -> pd.DataFrame:
    """The rank of W, and what it is expected to be early: the number of heads; with a uniform law, all but one."""
    updates = spectra[spectra["of"] == "update"]
    columns = updates[["task", "law", "time", "singular_values"]]
    rank = summaries(list(updates["singular_values"]), rtol)["numerical_rank"]
    tasks = [listed[name] for name in updates["task"]]
    expected = [task.n_tokens - 1 if task.law == "uniform" else len(task.heads) for task in tasks]
    return columns.assign(numerical_rank=rank, expected_rank=expected)


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
    step = max(1, len(task.counts) // params.shown_sequences)
    chosen = list(range(0, len(task.counts), step))[: params.shown_sequences]
    chances = torch.full((len(chosen),), 1 / len(chosen)).double()
    rows = Rows.of(task.counts[chosen], chances, task.star[chosen], task.place[chosen])
    attention = [
        pd.DataFrame(attention_on_sequences(W, rows)).assign(when=when)
        for when, W in (("before", first), ("after", last))
    ]
    return {"weights": pd.DataFrame(weights), "attention": pd.concat(attention, ignore_index=True)}


if __name__ == "__main__":
    run(main)
