"""Make what git keeps of the family: tables for figures, metrics, and measures for claims."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.decision_lists.bounds import closed_form_length
from lib.decision_lists.lists import Task, read_tasks
from lib.decision_lists.measures import (
    Tables,
    attention_shown,
    last_of_runs,
    lemma_ratios,
    measures,
    of_theorem,
    setup,
    thinned,
    weights_by_place,
    when_right,
    with_ranks,
)
from lib.decision_lists.tables.certify import FOLDER as CERTIFY
from lib.decision_lists.tables.check import FOLDER as CHECK
from lib.decision_lists.tables.control import FOLDER as CONTROL
from lib.decision_lists.tables.descend import FOLDER as DESCEND
from lib.decision_lists.tables.drawn import DRAWN
from lib.decision_lists.tables.factored import FOLDER as FACTORED
from lib.decision_lists.tables.flow import FOLDER as FLOW
from lib.decision_lists.tables.follow import FOLDER as FOLLOW
from lib.decision_lists.tables.scales import FOLDER as SCALES
from lib.decision_lists.tables.spectra import SPECTRA
from lib.decision_lists.tables.train import FOLDER as TRAIN
from lib.files.files import InputError, file_name
from lib.files.params import Fraction, Interval, Positive, Seed, read_params
from lib.files.runs import open_run
from lib.files.tables import compact, write_csv
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFile, OutFolder, run
from lib.work.schemas import read_tables_there, write_tables_of

HEADLINES = {"late_slope": ("late_slope", "")}
CURVES = ["task", "step", "cosine", "centred_cosine", "accuracy"]


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
    certify: Path,
    factored: Path,
    follow: Path,
    joint: Path,
    spectra: Path,
    metrics: OutFolder,
    curves: OutFile,
) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics, and the curves of V."""
    params = read_params(section, Evaluate)
    tasks = {task.name: task for task in read_tasks(of_flow, of_scales, of_train)}
    if params.shown_task not in tasks:
        raise InputError(
            f"{section}.shown_task: wanted a task of {of_train}, got {params.shown_task!r}"
        )
    tables = {
        **read_tables_there(FLOW, flow),
        **read_tables_there(SCALES, scales),
        **read_tables_there(DESCEND, descend),
        **read_tables_there(TRAIN, train),
        **read_tables_there(CONTROL, control),
        **read_tables_there(CHECK, check),
        **read_tables_there(CERTIFY, certify),
        **read_tables_there(FACTORED, factored),
        **read_tables_there(FOLLOW, follow),
        "spectra": SPECTRA.read(spectra),
    }
    tables |= condensed_tables(tables, tasks, params, section)
    tables |= shown(tasks[params.shown_task], joint, params)

    early = f"{params.early_begin:g} to {params.early_end:g}"
    said = setup(tables) | {"law_from": params.law_from, "early": early, "rtol": params.rtol}
    measured = setup_rows(said) + measures(tables, params.law_from)
    drawn = {name: one for name, one in DRAWN.items() if name in tables}
    # Times span more decades than single precision has.
    small = {name: compact(tables[name], single_precision=False) for name in drawn}
    write_tables_of(drawn, small, metrics / "tables")
    write_measures(measured, metrics, HEADLINES)
    course = tables.get("alignment", pd.DataFrame(columns=CURVES))
    write_csv(course[CURVES].rename(columns={"task": "variant"}), curves)


def condensed_tables(
    tables: Tables, tasks: dict[str, Task], params: Evaluate, section: str
) -> Tables:
    """The tables that figures and measures use in place of whole courses and of every case."""
    found: Tables = {}
    if "theorem" in tables:
        missing = sorted(set(params.paths) - set(tables["theorem"]["task"]))
        if missing:
            raise InputError(
                f"{section}.paths: wanted tasks whose use is theorem or bound, got {missing}"
            )
        drawn = set(params.paths)
        found |= of_theorem(tables["theorem"], tables["paths"], tasks, drawn, params.path_points)
    if "courses" in tables:
        run_of = ["task", "noise"]
        found["courses"] = thinned(tables["courses"], run_of, params.path_points, logarithmic=True)
    if "factored" in tables:
        found["factored"] = when_right(tables["factored"], params.rtol)
        staircases = tables["staircases"]
        found["staircases"] = thinned(staircases, ["task"], params.path_points, logarithmic=True)
    for name in {"starts", "joint"} & tables.keys():
        found[name] = last_of_runs(tables[name])
    found["lemmas"] = lemma_ratios({1: tables.pop("lemma_1"), 2: tables.pop("lemma_2")})
    closed_form = tables["feasible"]["length"].map(closed_form_length)
    found["feasible"] = tables["feasible"].assign(closed_form=closed_form)
    early = params.early_begin, params.early_end
    found["spectra"] = with_ranks(tables["spectra"], tasks, params.rtol, early)
    return found


def shown(task: Task, runs: Path, params: Evaluate) -> Tables:
    """The weights of one run in the order of the lists, and its attention before and after."""
    opened = open_run(runs / file_name(task.name))
    if params.shown_seed not in opened.layout.seeds:
        raise InputError(
            f"shown_seed: wanted one of {opened.layout.seeds}, got {params.shown_seed}"
        )
    seed = opened.layout.seeds.index(params.shown_seed)
    first = opened.weights(0)["W"][seed]
    last = opened.weights(-1)["W"][seed]
    return {
        "weights": weights_by_place(task, last),
        "attention": attention_shown(task, first, last, params.shown_sequences),
    }


if __name__ == "__main__":
    run(main)
