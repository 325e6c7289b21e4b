"""What must fail and what must not, by Adam on the exact loss.

W transposed, W trained on some rows, V alone.
"""

from collections import deque
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import pandas as pd
import torch

from lib.decision_lists.attention import PopulationLoss, SequenceLoss
from lib.decision_lists.lists import Task, read_tasks, used_for
from lib.decision_lists.tables.control import FOLDER
from lib.files.params import Positive, Steps, read_params
from lib.training.devices import use_threads
from lib.training.gradient_descent import Weights
from lib.training.sgd import State, sgd
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there


@dataclass(frozen=True)
class Control:
    """How Adam trains on the exact loss: W from 0 at V = `scale` · P, or V alone."""

    scale: Positive
    learning_rate: Positive
    n_steps: Steps


def main(section: str, tasks: Path, controls: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Control)
    jobs = [(control, task, params) for task in used_for(read_tasks(tasks), "controls")]
    write_tables_there(
        FOLDER, spread_cells({"controls": jobs}, label=section, unit="task"), controls
    )


def control(task: Task, params: Control) -> Tables:
    """The accuracy of each control over all sequences of the law."""
    exact = PopulationLoss.of(task)
    with_head = PopulationLoss(exact.rows.only(exact.rows.place == 1), task.labels)
    over_keys = SequenceLoss(task, "keys")
    over_queries = SequenceLoss(task, "queries")
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

    weights = trained(exact)
    from_heads = trained(with_head)
    found = {
        "trained": exact.accuracy(weights),
        "trained on sequences": over_keys.accuracy(trained(over_keys)),
        "W transposed": exact.accuracy(weights | {"W": weights["W"].T.contiguous()}),
        "softmax over queries": over_queries.accuracy(trained(over_queries)),
        "only rows whose head is present": exact.accuracy(from_heads),
        "the same, on those rows": with_head.accuracy(from_heads),
        "W = 0 with the best V": exact.accuracy(trained(exact, "V")),
    }
    accuracy = pd.Series(found, name="accuracy").rename_axis("control").reset_index()
    accuracy.insert(0, "task", task.name)
    return {"controls": accuracy}


if __name__ == "__main__":
    run(main)
