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
from lib.files.files import InputError, clear, file_name
from lib.files.params import Fraction, Interval, Positive, Seed, read_params
from lib.files.runs import open_run
from lib.files.tables import compact, read_table, write_csv, write_measures, write_table
from lib.work.command import OutFile, OutFolder, run

JUDGED_ALONE = (
    "alone",
    "draws",
    "followed",
    "gamma",
    "general",
    "many",
    "minibatch",
)  # tables that measures alone use, and no figure
COURSE = "task start seed step accuracy certified_all n_tokens"
TABLES = {  # the columns that are read of each table before; a use that was not run has no table
    "theorem": "task n_tokens seq_len length law scale bound at_once first_time perfect_at_bound "
    "lost lost_time regained_time largest_attention",
    "gamma": "task gamma bound at_once first_time",
    "paths": "time loss accuracy margin task",
    "repeats": "task law seq_len length first_time largest_W attention_to_star",
    "many": "n_tokens seq_len length bound first_time at_once",
    "law": "task law seq_len scale at_once rescaled_time path_error attention_to_star",
    "alone": "task n_steps bound margin",
    "both": "task noise law seq_len length preconditions delta epsilon n_steps earliest margin "
    "curvature_growth",
    "general": "task law preconditions n_steps earliest margin",
    "courses": "task noise step loss step_times_curvature",
    "followed": "task noise followed_steps moved stands_still",
    "draws": "task seed share least_share met",
    "joint": COURSE,
    "starts": COURSE,
    "alignment": "task step along_P along_wrong_P least_rate accuracy cosine centred_cosine "
    "argmax_right argmax_wrong length repeats",
    "minibatch": "seed step certified_sets n_tokens batch_size",
    "controls": "task control accuracy",
    "lemma_1": "derivative bound",
    "lemma_2": "derivative bound",
    "feasible": "length least_n",
    "trained": "task seed list_entries kept_in_gauge kept_raw",
    "lengths": "time longest task law seq_len",
    "factored": "task of seed log10_init_scale until n_heads n_large shared sigma_1 "
    "learning_rate first_rise next_rise right singular_values sigma_then fewest right_when_cut",
    "staircases": "task log10_init_scale time singular_values",
}
SPECTRA = ["law", "task", "of", "time", "singular_values"]
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
    params = read_params(section, Evaluate)
    tasks = {task.name: task for task in read_tasks(of_flow, of_scales, of_train)}
    if params.shown_task not in tasks:
        raise InputError(
            f"{section}.shown_task: wanted a task of {of_train}, got {params.shown_task!r}"
        )
    folders = flow, scales, descend, train, control, check, certify
    tables = read_tables(*folders, factored, follow)
    tables["spectra"] = read_table(spectra, SPECTRA)
    tables |= condensed_tables(tables, tasks, params, section)
    tables |= shown(tasks[params.shown_task], joint, params)

    early = f"{params.early_begin:g} to {params.early_end:g}"
    sizes = setup(tables) | {"law_from": params.law_from, "early": early, "rtol": params.rtol}
    measured = measures(tables, params.law_from)
    clear(metrics / "tables", "*.parquet")
    for name in tables.keys() - set(JUDGED_ALONE):
        # Times span more decades than single precision has.
        small = compact(tables[name], single_precision=False)
        write_table(small, metrics / "tables" / f"{name}.parquet")
    write_measures(measured, metrics, sizes, ["late_slope"])
    course = tables.get("alignment", pd.DataFrame(columns=CURVES))
    write_csv(course[CURVES].rename(columns={"task": "variant"}), curves)


def read_tables(*folders: Path) -> Tables:
    """The tables among `TABLES` that are in the folders, by name."""
    files = [file for folder in folders for file in sorted(folder.glob("*.parquet"))]
    wanted = [file for file in files if file.stem in TABLES]
    return {file.stem: read_table(file, TABLES[file.stem].split()) for file in wanted}


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
