"""What git keeps of the family: small tables for the figures, metrics to compare, measures for the
claims.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.decision_lists.attention import attention_on_sequences
from lib.decision_lists.bounds import closed_form_length, late_loss_constant
from lib.decision_lists.lists import COLUMNS, Task, tasks_by_name
from lib.decision_lists.measures import (
    Tables,
    check_measures,
    descent_measures,
    flow_measures,
    last_of_runs,
    late_losses,
    law_measures,
    lemma_ratios,
    spectral_measures,
    thinned,
    training_measures,
    with_ties,
)
from lib.files.files import InputError, clear, file_name
from lib.files.params import Fraction, Interval, Positive, Seed, read_params
from lib.files.runs import open_run
from lib.files.tables import compact, read_table, write_csv, write_measures, write_table
from lib.matrices.ranks import summaries
from lib.work.command import OutFile, OutFolder, run

CASES_SHOWN = 500  # random cases, in a figure


@dataclass(frozen=True)
class Evaluate:
    """What the claims and figures look at.

    The time law from scales of `law_from` on; the rank, of singular values above `rtol` of the
    largest, between `early_begin` and `early_end`; by name, the tasks whose course is drawn, at
    about `path_points` points, and the one, with its seed, whose weights and attention are.
    """

    paths: tuple[str, ...]
    path_points: Annotated[int, Interval("[2, 10000]")]
    shown_task: str
    shown_seed: Seed
    shown_sequences: Annotated[int, Interval("[1, 6]")]
    law_from: Positive
    early_begin: Positive
    early_end: Positive
    rtol: Fraction


def main(
    section: str,
    of_flow: Path,
    of_scales: Path,
    of_train: Path,
    flow: Path,
    scales: Path,
    descend: Path,
    train: Path,
    control: Path,
    check: Path,
    constants: Path,
    certify: Path,
    joint: Path,
    spectra: Path,
    metrics: OutFolder,
    curves: OutFile,
) -> None:
    params = read_params(section, Evaluate)
    files = of_flow, of_scales, of_train
    listed = tasks_by_name(
        row for file in files for row in read_table(file, COLUMNS).to_dict("records")
    )
    if params.shown_task not in listed:
        raise InputError(
            f"{section}.shown_task: wanted a task of {of_train}, got {params.shown_task!r}"
        )
    folders = (flow, scales, descend, train, control, check, constants, certify)
    tables = {
        file.stem: read_table(file)
        for folder in folders
        for file in sorted(folder.glob("*.parquet"))
    }
    tables |= {
        **of_theorem(tables, listed, params, section),
        **{
            name: last_of_runs(tables[name], ["task", "start", "seed"])
            for name in ("starts", "joint")
            if name in tables
        },
        "lemmas": pd.concat(
            [lemma_ratios(tables.pop(f"lemma_{number}"), number) for number in (1, 2)]
        ),
        "feasible": tables["feasible"].assign(
            closed_form=tables["feasible"]["length"].map(closed_form_length)
        ),
        "spectra": with_ranks(read_table(spectra), listed, params),
        **shown(listed[params.shown_task], joint, params),
    }
    if "courses" in tables:
        by_run = tables["courses"].groupby(["task", "noise"], sort=False, group_keys=False)
        tables["courses"] = pd.concat(
            [thinned(course, params.path_points, logarithmic=True) for _, course in by_run]
        )
    measured = {
        **flow_measures(tables),
        **law_measures(tables, params.law_from),
        **descent_measures(tables),
        **check_measures(tables),
        **training_measures(tables),
        **spectral_measures(tables),
    }
    setup = setup_of(tables, params)
    counted = tables["certificates"].value_counts().rename("n").reset_index()
    tables |= {"certificates": counted, "represent": tables["represent"].head(CASES_SHOWN)}
    kept = ["task", "step", "cosine", "centred_cosine", "accuracy"]
    course = tables["alignment"][kept] if "alignment" in tables else pd.DataFrame(columns=kept)
    # Times span more decades than single precision has.
    small = {name: compact(table, single_precision=False) for name, table in tables.items()}
    clear(metrics / "tables", "*.parquet")
    for name, table in small.items():
        write_table(table, metrics / "tables" / f"{name}.parquet")
    write_measures(measured, metrics, setup, ["late_slope"])
    write_csv(course.rename(columns={"task": "variant"}), curves)


def of_theorem(tables: Tables, listed: dict[str, Task], params: Evaluate, section: str) -> Tables:
    """The runs at the theorem's scale, their late losses, and the courses that are drawn: chosen,
    or right and lost.
    """
    if "theorem" not in tables:
        return {}
    theorem, paths = with_ties(tables["theorem"]), tables["paths"]
    missing = sorted(set(params.paths) - set(theorem["task"]))
    if missing:
        raise InputError(
            f"{section}.paths: wanted tasks whose use is theorem or bound, got {missing}"
        )
    chosen = {*params.paths, *theorem["task"][theorem["lost"] > 0]}
    limits = {name: limit_of(listed[name]) for name in theorem["task"]}
    found = {"theorem": theorem.assign(late_limit=theorem["task"].map(limits))}
    by_task = paths[paths["task"].isin(chosen)].groupby("task", sort=False)
    found["paths"] = (
        pd.concat([thinned(path, params.path_points) for _, path in by_task])
        if chosen
        else paths.head(0)
    )
    late = late_losses(theorem, paths, limits)
    return found | {"late": late} if len(late) else found


def limit_of(task: Task) -> float:
    """What the loss times c² t comes to; NaN where the support of the law may leave some order
    open.
    """
    every_order = (
        not task.repeats
        and min(task.probability) > 0
        and task.n_tokens - task.longest >= task.seq_len - 1
    )
    return late_loss_constant(task.lists, task.n_tokens, task.seq_len) if every_order else math.nan


def setup_of(tables: Tables, params: Evaluate) -> dict[str, float | str]:
    """The sizes that statements name."""

    def among(name: str, column: str, between: str = " to ") -> str:
        values = (
            [f"{value:g}" for value in sorted(tables[name][column].unique())]
            if name in tables
            else []
        )
        return (
            between.join(dict.fromkeys(values[:1] + values[-1:] if between == " to " else values))
            or "no"
        )

    def number(name: str) -> int:
        return len(tables[name]) if name in tables else 0

    last = {
        name: int(tables[name]["step"].max()) for name in ("alignment", "starts") if name in tables
    }
    return {
        "theorem_runs": number("theorem"),
        "learned_runs": int((~tables["theorem"]["at_once"]).sum()) if "theorem" in tables else 0,
        "theorem_tokens": among("theorem", "n_tokens"),
        "bound_runs": number("late"),
        "gammas": among("gamma", "gamma"),
        "many_tokens": among("many", "n_tokens", ", "),
        "law_from": params.law_from,
        "lemma_cases": int(tables["lemmas"]["cases"].max()),
        "certificate_cases": len(tables["certificates"]),
        "represent_cases": number("represent"),
        "constants_tasks": tables["constants"]["task"].nunique(),
        "both_runs": number("both"),
        "both_lengths": among("both", "length"),
        "both_seq_len": among("both", "seq_len"),
        "feasible_lengths": among("feasible", "length", ", "),
        "alignment_steps": last.get("alignment", 0),
        "starts_steps": last.get("starts", 0),
        "joint_runs": number("joint"),
        "joint_tokens": among("joint", "n_tokens"),
        "minibatch_tokens": among("minibatch", "n_tokens"),
        "minibatch_size": among("minibatch", "batch_size"),
        "length_trained": among("lengths", "seq_len"),
        "n_heads": among("lengths", "n_heads"),
        "early": f"{params.early_begin:g} to {params.early_end:g}",
        "rtol": params.rtol,
    }


def with_ranks(spectra: pd.DataFrame, listed: dict[str, Task], params: Evaluate) -> pd.DataFrame:
    """The rank of W, and what it is expected to be early: the number of heads; with a uniform law,
    all but one.
    """
    updates = spectra[spectra["of"] == "update"]
    columns = updates[["task", "law", "time", "singular_values"]]
    rank = summaries(list(updates["singular_values"]), params.rtol)["numerical_rank"]
    tasks = [listed[name] for name in updates["task"]]
    expected = [task.n_tokens - 1 if task.law == "uniform" else len(task.heads) for task in tasks]
    early = columns["time"].between(params.early_begin, params.early_end)
    return columns.assign(
        numerical_rank=rank, expected_rank=expected, early=early, rtol=params.rtol
    )


def shown(task: Task, runs: Path, params: Evaluate) -> Tables:
    """W of one run by the places of each list, and the attention on a few sequences before and
    after.
    """
    opened = open_run(runs / file_name(task.name))
    if params.shown_seed not in opened.layout.seeds:
        raise InputError(
            f"shown_seed: wanted one of {opened.layout.seeds}, got {params.shown_seed}"
        )
    first, last = (
        opened.weights(i)["W"][opened.layout.seeds.index(params.shown_seed)] for i in (0, -1)
    )
    weights = []
    for a, entries in enumerate(task.lists):
        for rank, b in enumerate(
            [*entries, *(b for b in range(task.n_tokens) if b not in entries)], 1
        ):
            place = rank if rank <= len(entries) else 0
            weights.append(
                {"query": a, "key": b, "row": rank, "place": place, "W": float(last[b, a])}
            )
    step = max(1, len(task.counts) // params.shown_sequences)
    chosen = list(range(0, len(task.counts), step))[: params.shown_sequences]
    attention = [
        pd.DataFrame(attention_on_sequences(W, task.counts[chosen], task.star[chosen])).assign(
            when=when
        )
        for when, W in (("before", first), ("after", last))
    ]
    return {"weights": pd.DataFrame(weights), "attention": pd.concat(attention, ignore_index=True)}


if __name__ == "__main__":
    run(main)
