"""For which sequences the weights of runs are certified, and how few entries that takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
from torch import Tensor

from lib.decision_lists.certificates import logit_margin, longest_certified
from lib.decision_lists.lists import Task, read_tasks
from lib.decision_lists.runs import runs_of
from lib.decision_lists.tables.certify import FOLDER
from lib.files.params import Interval, read_params
from lib.files.runs import open_run
from lib.matrices.pruning import fewest_kept
from lib.training.devices import use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there


@dataclass(frozen=True)
class Certify:
    """The greatest length of sequences for which weights are certified."""

    longest_sequence: Annotated[int, Interval("[2, 1000]")]


def main(
    section: str, of_flows: Path, of_joint: Path, flows: Path, joint: Path, certified: OutFolder
) -> None:
    use_threads(1)
    most = read_params(section, Certify).longest_sequence
    tasks = {task.name: task for task in read_tasks(of_flows, of_joint)}
    followed = runs_of(flows, tasks)
    trained = runs_of(joint, tasks)
    jobs = {
        "trained": [(describe, run.folder, task) for run, task in followed + trained],
        "lengths": [(lengths, run.folder, task, most) for run, task in followed],
    }
    write_tables_there(FOLDER, spread_cells(jobs, label=section, unit="run"), certified)


def describe(folder: Path, task: Task) -> Tables:
    """The fewest entries of the last W of each seed that are right on all sets of tokens."""
    opened = open_run(folder)
    weights = opened.weights(-1)
    rows = []
    for i, seed in enumerate(opened.layout.seeds):
        W = weights["W"][i]
        V = weights["V"][i] if "V" in weights else task.label_matrix

        def right(pruned: Tensor, V: Tensor = V) -> bool:
            return logit_margin(pruned, V, task.lists, task.permutation, task.seq_len, False) > 0

        rows.append(
            {
                "task": task.name,
                "seed": seed,
                "list_entries": sum(map(len, task.lists)),
                "kept_in_gauge": fewest_kept(W - W.median(0).values, right),
                "kept_raw": fewest_kept(W, right),
            }
        )
    return {"trained": pd.DataFrame(rows)}


def lengths(folder: Path, task: Task, longest_sequence: int) -> Tables:
    """The lengths of sequences for which the weights of a flow are certified, at every time."""
    opened = open_run(folder)
    times = opened.steps.groupby("snapshot")["time"].first()
    found = [
        longest_certified(opened.weights(i)["W"][0], task.lists, longest_sequence)
        for i in opened.snapshots
    ]
    table = pd.DataFrame({"time": times[opened.snapshots].to_numpy(), "longest": found})
    about = {"law": task.law, "seq_len": task.seq_len}
    return {"lengths": table.assign(task=task.name, **about)}


if __name__ == "__main__":
    run(main)
