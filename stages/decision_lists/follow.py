"""Repeat the descents on W and V with the steps of V summed up apart, and draw noise many times.

In float64 most steps of V's entries at P are below half their last place, so that `descend` has
them stand still.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib.decision_lists.attention import PopulationLoss
from lib.decision_lists.descent import Noise, noisy_start
from lib.decision_lists.lists import Task, read_tasks, used_for
from lib.decision_lists.noise import descent_beside, least_share
from lib.decision_lists.tables.descend import BOTH
from lib.decision_lists.tables.follow import FOLDER
from lib.files.params import Seed, read_params
from lib.training.devices import use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there

N_DRAWS = 20  # draws of noise for each task
ASKED = BOTH.only("task noise step_size n_steps")


@dataclass(frozen=True)
class Descent:
    """The seed of the noise of the descents."""

    noise_seed: Seed


def main(section: str, tasks: Path, descents: Path, followed: OutFolder) -> None:
    use_threads(1)
    seed = read_params(section, Descent, part=True).noise_seed
    others = tuple(range(seed + 1, seed + 1 + N_DRAWS))
    listed = {task.name: task for task in used_for(read_tasks(tasks), "both")}
    both = descents / "both.parquet"
    rows = ASKED.read(both).to_dict("records") if both.is_file() else []
    rows.sort(key=lambda row: -row["n_steps"])
    jobs = {
        "followed": [
            (follow, listed[row["task"]], row["noise"], row["step_size"], row["n_steps"], seed)
            for row in rows
        ],
        "draws": [(draw, task, others) for task in listed.values()],
    }
    found = spread_cells(jobs, label="descents and draws", unit="run")
    write_tables_there(FOLDER, found, followed)


def follow(task: Task, noise: Noise, step_size: float, n_steps: int, seed: int) -> Tables:
    """One of the descents until all is right, or for twice its steps; how far V moves at P."""
    loss = PopulationLoss.of(task)
    bound, _, V_0 = noisy_start(task, noise, loss, seed)
    at_P = task.label_matrix > 0
    row = {"task": task.name, "noise": noise, "followed_steps": math.inf, "largest_step": 0.0}
    for at in descent_beside(loss, V_0, step_size):
        largest = float(at.step[at_P].abs().max())
        row["largest_step"] = max(row["largest_step"], largest)
        row["moved"] = float(at.moved[at_P].abs().max())
        if loss.right({"W": at.W, "V": at.V}).all():
            row["followed_steps"] = at.number
            break
        if at.number >= 2 * n_steps:
            break
    half_a_place = np.spacing(bound.scale) / 2
    row["stands_still"] = row["largest_step"] < half_a_place
    return {"followed": pd.DataFrame([row])}


def draw(task: Task, seeds: tuple[int, ...]) -> Tables:
    """The first loss under each seed of uniform noise, and whether it leaves the conditions met."""
    loss = PopulationLoss.of(task)
    n = task.seq_len
    rows = []
    for seed in seeds:
        bound, residual, _ = noisy_start(task, "uniform", loss, seed)
        share = bound.L_0 / math.log(n)
        rows.append(
            {
                "task": task.name,
                "seed": seed,
                "share": share,
                "least_share": least_share(n, task.longest),
                "met": bound.feasible and residual <= 1e-9,
            }
        )
    return {"draws": pd.DataFrame(rows)}


if __name__ == "__main__":
    run(main)
