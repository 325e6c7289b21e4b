"""What must fail and what must not, by Adam on the exact loss: W transposed, trained on some rows,
V alone.
"""

from collections import deque
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import pandas as pd
import torch

from lib.decision_lists.attention import PopulationLoss, Rows, SequenceLoss
from lib.decision_lists.lists import COLUMNS, Task, tasks_by_name
from lib.files.files import clear
from lib.files.inputs import read_as
from lib.files.memory import COPIES, check_disk, check_memory
from lib.files.params import Positive, Steps, read_params
from lib.files.tables import read_table, write_table
from lib.training.devices import use_threads
from lib.training.gradient_descent import Weights
from lib.training.sgd import State, sgd
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run


@dataclass(frozen=True)
class Control:
    """By Adam, on the exact loss: V = `scale` · P and W trained from 0, or V alone."""

    scale: Positive
    learning_rate: Positive
    n_steps: Steps


def main(section: str, tasks: Path, tables: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Control)
    rows = read_table(tasks, COLUMNS).to_dict("records")
    listed = read_as("a table of tasks", lambda _: tasks_by_name(rows), tasks).values()
    check_memory(section, max((task.memory for task in listed), default=0))
    jobs = [(control, task, params) for task in listed if task.use == "controls"]
    check_disk(
        tables, COPIES * (1500 * len(jobs) + 5000), section
    )  # seven rows of each, and a table in scratch
    clear(tables, "*.parquet")
    tables.mkdir(parents=True, exist_ok=True)
    found = spread_cells({"": jobs}, label=section, unit="task")[""]
    if found:
        write_table(joined(found, "controls"), tables / "controls.parquet")


def control(task: Task, params: Control) -> Tables:
    """Accuracy over all sequences of the law."""
    exact = PopulationLoss(Rows.of(*task.classes), task.labels)
    with_head = PopulationLoss(exact.rows.only(exact.rows.place == 1), task.labels)
    sequences = (task.counts, task.chances, task.star, task.labels)
    over_keys, over_queries = SequenceLoss(*sequences, "keys"), SequenceLoss(*sequences, "queries")
    zero = torch.zeros_like(task.label_matrix)
    fixed = {"W": zero, "V": params.scale * task.label_matrix}

    def trained(loss: PopulationLoss | SequenceLoss, name: str = "W") -> Weights:
        states = sgd(
            lambda weights: loss.value(fixed | weights),
            State(0, {name: zero}),
            repeat(()),
            params.n_steps,
            optimizer="adam",
            learning_rate=params.learning_rate,
            warmup_steps=0,
        )
        [last] = deque(states, maxlen=1)
        return fixed | {name: last.weights[name].detach()}

    weights, from_heads = trained(exact), trained(with_head)
    found = {
        "trained": exact.accuracy(weights),
        "trained on sequences": over_keys.accuracy(trained(over_keys)),
        "W transposed": exact.accuracy(weights | {"W": weights["W"].T.contiguous()}),
        "softmax over queries": over_queries.accuracy(trained(over_queries)),
        "only rows whose head is present": exact.accuracy(from_heads),
        "the same, on those rows": with_head.accuracy(from_heads),
        "W = 0 with the best V": exact.accuracy(trained(exact, "V")),
    }
    rows = [
        {"task": task.name, "control": name, "accuracy": value} for name, value in found.items()
    ]
    return {"controls": pd.DataFrame(rows)}


if __name__ == "__main__":
    run(main)
