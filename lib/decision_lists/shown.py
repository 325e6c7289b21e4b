"""What figures and measures use in place of whole courses and of every case, and one run shown."""

from collections.abc import Collection, Mapping
from pathlib import Path

from lib.decision_lists.bounds import closed_form_length
from lib.decision_lists.lists import Task
from lib.decision_lists.measures import (
    Tables,
    attention_shown,
    last_of_runs,
    lemma_ratios,
    of_theorem,
    thinned,
    weights_by_place,
    when_right,
    with_ranks,
)
from lib.files.files import InputError, file_name
from lib.files.runs import open_run


def condensed(
    tables: Tables,
    tasks: Mapping[str, Task],
    *,
    paths: Collection[str],
    n_points: int,
    rtol: float,
    early: tuple[float, float],
    where: str,
) -> Tables:
    """The tables that take the place of others, which are long.

    The courses of the tasks `paths` are kept, all at about `n_points` points. The rank of singular
    values above `rtol` of the largest is that between the times `early`. Raises `InputError`, which
    begins with `where`, if no theorem was tried on one of `paths`.
    """
    found: Tables = {}
    if "theorem" in tables:
        missing = sorted(set(paths) - set(tables["theorem"]["task"]))
        if missing:
            wanted = "wanted tasks whose use is theorem or bound"
            raise InputError(f"{where}: {wanted}, got {missing}")
        found |= of_theorem(tables["theorem"], tables["paths"], tasks, set(paths), n_points)
    if "courses" in tables:
        run_of = ["task", "noise"]
        found["courses"] = thinned(tables["courses"], run_of, n_points, logarithmic=True)
    if "factored" in tables:
        found["factored"] = when_right(tables["factored"], rtol)
        staircases = tables["staircases"]
        found["staircases"] = thinned(staircases, ["task"], n_points, logarithmic=True)
    for name in {"starts", "joint"} & tables.keys():
        found[name] = last_of_runs(tables[name])
    found["lemmas"] = lemma_ratios({1: tables["lemma_1"], 2: tables["lemma_2"]})
    closed_form = tables["feasible"]["length"].map(closed_form_length)
    found["feasible"] = tables["feasible"].assign(closed_form=closed_form)
    found["spectra"] = with_ranks(tables["spectra"], tasks, rtol, early)
    return found


def run_shown(task: Task, runs: Path, seed: int, n_sequences: int) -> Tables:
    """The weights of one run in the order of the lists, and its attention before and after.

    Raises `InputError` if the run has no such seed.
    """
    opened = open_run(runs / file_name(task.name))
    if seed not in opened.layout.seeds:
        raise InputError(f"shown_seed: wanted one of {opened.layout.seeds}, got {seed}")
    index = opened.layout.seeds.index(seed)
    first = opened.weights(0)["W"][index]
    last = opened.weights(-1)["W"][index]
    return {
        "weights": weights_by_place(task, last),
        "attention": attention_shown(task, first, last, n_sequences),
    }
