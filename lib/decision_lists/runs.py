"""The runs of the family on disk: W, or W and V, of one task, a snapshot for each saved state."""

from collections.abc import Sequence
from pathlib import Path

import torch

from lib.decision_lists.lists import Task
from lib.files.files import InputError
from lib.files.runs import Layout, Run, open_runs, write_run
from lib.work.cells import Course


def publish(
    runs: Path, task: Task, seeds: Sequence[int], courses: Sequence[Course], **setting: float
) -> None:
    """Write the run of a task, whose courses are stacked over the seeds."""
    matrices = {name: ["seed", "row", "col"] for name in courses[0].states[0][0]}
    cell = {"task": task.name, "group": task.group, "law": task.law, **setting}
    gauge = {"W": "column shift"}
    layout = Layout("decision_lists", matrices, gauge=gauge, cell=cell, seeds=list(seeds))
    with write_run(runs, task.name, layout) as writer:
        for states in zip(*(course.states for course in courses), strict=True):
            stacked = {
                name: torch.stack([tensors[name] for tensors, _ in states]) for name in matrices
            }
            writer.add(stacked, [row for _, rows in states for row in rows])


def runs_of(folder: Path, tasks: dict[str, Task]) -> list[tuple[Run, Task]]:
    """Every run of a folder with its task; raises `InputError` for another family's or task's."""
    found = []
    for run in open_runs(folder, "decision_lists"):
        name = run.layout.cell.get("task")
        if name not in tasks:
            raise InputError(f"{run.folder}: wanted the run of a task that is listed, got {name!r}")
        found.append((run, tasks[name]))
    return found
