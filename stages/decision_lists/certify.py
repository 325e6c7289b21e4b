"""What the weights of runs are certified for, for which lengths of sequences, and how few entries
that takes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from torch import Tensor

from lib.decision_lists.certificates import logit_margin, longest_certified
from lib.decision_lists.lists import COLUMNS, Task, tasks_by_name
from lib.files.files import InputError, clear
from lib.files.memory import COPIES, check_disk
from lib.files.params import Interval, read_params
from lib.files.runs import open_run, open_runs
from lib.files.tables import read_table, write_table
from lib.matrices.pruning import fewest_kept
from lib.training.devices import use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run


@dataclass(frozen=True)
class Certify:
    """The longest sequences that are asked for."""

    longest_sequence: Annotated[int, Interval("[2, 1000]")]


def main(
    section: str, of_flows: Path, of_joint: Path, flows: Path, joint: Path, tables: OutFolder
) -> None:
    use_threads(1)
    most = read_params(section, Certify).longest_sequence
    read = [
        row for file in (of_flows, of_joint) for row in read_table(file, COLUMNS).to_dict("records")
    ]
    listed = tasks_by_name(read)
    of_flow, of_both = open_runs(flows, "decision_lists"), open_runs(joint, "decision_lists")
    for one in (*of_flow, *of_both):
        if one.layout.cell.get("task") not in listed:
            wanted = f"wanted the run of a task of {of_flows} or {of_joint}"
            raise InputError(f"{one.folder}: {wanted}, got one of {one.layout.cell.get('task')}")
    jobs = {
        "trained": [
            (describe, one.folder, listed[one.layout.cell["task"]], most)
            for one in (*of_flow, *of_both)
        ],
        "lengths": [
            (lengths, one.folder, listed[one.layout.cell["task"]], most) for one in of_flow
        ],
    }
    # A row for each seed, and for each snapshot of a flow; tables' own, also of each run in
    # scratch.
    of_trained = sum(100 * len(one.layout.seeds) + 2000 for one in (*of_flow, *of_both))
    of_lengths = sum(30 * len(one.snapshots) + 2000 for one in of_flow)
    check_disk(tables, COPIES * (of_trained + of_lengths + 10_000), section)
    clear(tables, "*.parquet")
    found = spread_cells(
        jobs,
        label=section,
        unit="run",
    )
    for name, parts in found.items():
        write_table(joined(parts, name), tables / f"{name}.parquet")


def describe(folder: Path, task: Task, longest_sequence: int) -> Tables:
    """What the last weights of a run are certified for, and how few entries of W that takes: one
    row per seed.
    """
    opened, rows = open_run(folder), []
    weights = opened.weights(-1)
    for i, seed in enumerate(opened.layout.seeds):
        W = weights["W"][i]
        V = weights["V"][i] if "V" in weights else task.label_matrix

        def perfect(pruned: Tensor, V: Tensor = V, repeats: bool = False) -> bool:
            return logit_margin(pruned, V, task.lists, task.permutation, task.seq_len, repeats) > 0

        row: dict[str, Any] = {
            "task": task.name,
            "group": task.group,
            "law": task.law,
            "seed": seed,
        }
        row |= {"certified_sets": perfect(W), "certified_all": perfect(W, repeats=True)}
        row["longest"] = (
            -1 if "V" in weights else longest_certified(W, task.lists, longest_sequence)
        )
        row |= {"n_entries": W.numel(), "list_entries": sum(len(entries) for entries in task.lists)}
        row["kept_in_gauge"] = fewest_kept(W - W.median(0).values, perfect)
        row["kept_raw"] = fewest_kept(W, perfect)
        rows.append(row)
    return {"trained": pd.DataFrame(rows)}


def lengths(folder: Path, task: Task, longest_sequence: int) -> Tables:
    """For which lengths of sequences the weights of a flow are certified, at every time."""
    opened = open_run(folder)
    times = opened.steps.groupby("snapshot")["time"].first()
    found = [
        longest_certified(opened.weights(i)["W"][0], task.lists, longest_sequence)
        for i in opened.snapshots
    ]
    table = pd.DataFrame({"time": times[opened.snapshots].to_numpy(), "longest": found})
    about = {
        "task": task.name,
        "law": task.law,
        "seq_len": task.seq_len,
        "n_heads": len(task.heads),
    }
    return {"lengths": table.assign(**about)}


if __name__ == "__main__":
    run(main)
