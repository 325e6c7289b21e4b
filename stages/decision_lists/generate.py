"""Make the tasks: lists, labels and a law over sequences, for every group of settings and seed."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from lib.decision_lists.groups import (
    ForDescent,
    ForFlow,
    ForScales,
    ForTraining,
    Group,
    numbered_tasks,
)
from lib.decision_lists.lists import Task
from lib.decision_lists.tables.tasks import TASKS
from lib.files.files import InputError
from lib.files.params import read_cases
from lib.training.devices import use_threads
from lib.work.command import OutFile, run

NEEDED = ("spectral", "joint")  # uses whose runs are opened by stages that want some


def main(groups: Path, flow: OutFile, scales: OutFile, descend: OutFile, train: OutFile) -> None:
    use_threads(1)
    listed = read_cases(groups, Group)
    missing = sorted(set(NEEDED) - {group.use for group in listed})
    if missing:
        raise InputError(
            f"{groups}: wanted a group for each of {list(NEEDED)}, got none for {missing}"
        )
    tasks = numbered_tasks(listed, groups)
    # Each stage has a file of its own, so that a change of one group leaves the other files as they
    # are.
    write_tasks(tasks, get_args(ForFlow), flow)
    write_tasks(tasks, get_args(ForScales), scales)
    write_tasks(tasks, get_args(ForDescent), descend)
    write_tasks(tasks, get_args(ForTraining), train)
    print(f"{len(tasks)} tasks in {len({task.group for task in tasks})} groups")


def write_tasks(tasks: Sequence[Task], uses: Sequence[str], file: Path) -> None:
    """Write the tasks with one of these uses."""
    rows = [asdict(task) for task in tasks if task.use in uses]
    TASKS.write(TASKS.frame(rows), file)


if __name__ == "__main__":
    run(main)
