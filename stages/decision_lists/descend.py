r"""Gradient descent as the theorems have it: W alone from 0 at V = cP, and W and V together.

The step size is the inverse of the largest curvature along the path, not at its start
(`compliant_descent`).
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch

from lib.decision_lists.attention import PopulationLoss, attention_margins
from lib.decision_lists.bounds import flow_bound_of
from lib.decision_lists.certificates import list_order_margin, logit_margin
from lib.decision_lists.descent import (
    Noise,
    Solver,
    WarmCurvature,
    compliant_descent,
    noisy_start,
)
from lib.decision_lists.lists import Task, read_tasks, used_for
from lib.decision_lists.tables.descend import FOLDER
from lib.files.params import Seed, read_params
from lib.training.devices import use_threads
from lib.training.gradient_descent import Weights
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there


@dataclass(frozen=True)
class Descend:
    """The kinds of noise that V_0 − cP is made of, up to ε/2 an entry, and its seed."""

    noise: tuple[Noise, ...]
    noise_seed: Seed


def main(section: str, solver: str, tasks: Path, descents: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Descend)
    solve = read_params(solver, Solver)
    listed = read_tasks(tasks)
    both = [(task, noise) for task in used_for(listed, "both") for noise in params.noise]
    both.sort(key=lambda one: -one[0].n_tokens)  # the longest first: no process waits for one
    jobs = {
        "both": [(descend_both, task, noise, params.noise_seed, solve) for task, noise in both],
        "alone": [(descend_alone, task, solve) for task in used_for(listed, "alone")],
        "general": [(descend_general, task, solve) for task in used_for(listed, "general")],
    }
    write_tables_there(FOLDER, spread_cells(jobs, label=section, unit="run"), descents)


def descend_alone(task: Task, solve: Solver) -> Tables:
    """A run of part 1 by gradient descent, whose bound is twice the flow's over the step size."""
    loss = PopulationLoss.of(task)
    bound = flow_bound_of(task)
    P = task.label_matrix

    def right(weights: Weights) -> bool:
        return bool(attention_margins(weights["W"], loss.rows).min() > 0)

    def curvature(weights: Weights, known: float) -> float:
        return loss.attention_curvature(weights)

    start = {"W": torch.zeros_like(P), "V": bound.scale * P}
    found = compliant_descent(loss, start, ["W"], right, curvature, solve)
    W = found.steps[-1].weights["W"]
    row = (
        task.about()
        | {"length": task.longest}
        | found.about()
        | {
            "bound": 2 * bound.time / found.step_size,
            "margin": list_order_margin(W, task.lists, task.seq_len, repeats=False),
        }
    )
    return {"alone": pd.DataFrame([row])}


def descend_general(task: Task, solve: Solver) -> Tables:
    """A run of part 2 without noise, for another law on sequences of distinct tokens."""
    return {"general": descend_both(task, "none", 0, solve)["both"]}


def descend_both(task: Task, noise: Noise, noise_seed: int, solve: Solver) -> Tables:
    """A run of part 2 until all is right, from W_0 = 0 and V_0 within ε/2 of cP, and its course.

    The margin is that of the certificate. Where the law leaves out some sequences, it is the least
    lead of the right label in the others.
    """
    loss = PopulationLoss.of(task)
    bound, residual, V_0 = noisy_start(task, noise, loss, noise_seed)
    P = task.label_matrix

    def right(weights: Weights) -> bool:
        return bool(loss.right(weights).all())

    start = {"W": torch.zeros_like(P), "V": V_0}
    curvature = WarmCurvature(loss, solve.lanczos_iterations)
    found = compliant_descent(loss, start, ["W", "V"], right, curvature, solve)
    last = found.steps[-1].weights
    W = last["W"]
    V = last["V"]
    eta = found.step_size
    start_deviation = float((V_0 - bound.scale * P).abs().max())
    largest = max(found.largest, found.on_a_finer_grid)
    if min(task.probability) > 0:
        lists = task.lists, task.permutation, task.seq_len
        margin = logit_margin(W, V, *lists, repeats=False)
    else:
        margin = float(loss.margins(last).min())
    row = (
        task.about()
        | {"length": task.longest}
        | found.about()
        | {
            "noise": noise,
            "preconditions": bound.met(residual, start_deviation, eta, largest),
            "delta": bound.delta,
            "epsilon": bound.epsilon,
            "earliest": bound.earliest / eta,
            "margin": margin,
        }
    )
    looked = pd.Series(found.curvatures).ffill()  # the last one where there was no look
    course = {
        "step": [step.number for step in found.steps],
        "loss": [float(step.loss) for step in found.steps],
        "step_times_curvature": eta * looked,
        "task": task.name,
        "noise": noise,
    }
    return {"both": pd.DataFrame([row]), "courses": pd.DataFrame(course)}


if __name__ == "__main__":
    run(main)
