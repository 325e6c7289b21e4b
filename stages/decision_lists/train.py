r"""Train beyond the theorems: W and V together from many starts, V under uniform attention,
minibatches.

Gradient descent here takes steps of `step_per_token` · n_tokens: a column's gradient is of the
order of 1 / n_tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.decision_lists.attention import PopulationLoss, Rows, initial_weights
from lib.decision_lists.certificates import certified
from lib.decision_lists.lists import (
    COLUMNS,
    Task,
    determining_tokens,
    in_list_order,
    random_lists,
    random_permutation,
    random_subsets,
    tasks_by_name,
)
from lib.files.files import clear
from lib.files.inputs import read_as
from lib.files.memory import COPIES, check_disk, check_memory, table_memory
from lib.files.params import Count, Interval, Positive, Seeds, Steps, read_cases, read_params
from lib.files.runs import Layout, clear_runs, write_run
from lib.files.tables import read_table, write_table
from lib.training.devices import generator, use_threads
from lib.training.gradient_descent import Weights, gradient_descent
from lib.training.sgd import State, saved_steps, sgd
from lib.work.cells import Course, Saved, Tables, joined, spread_cells
from lib.work.command import OutFolder, run

Scale = Annotated[float, Interval("[0, 1e6]")]
Size = Annotated[int, Interval("[1, 4096]")]


@dataclass(frozen=True)
class Start:
    """W_0 and V_0: Gaussian, zero (scale 0), W in the reverse order of the lists, V a multiple of P
    or of a wrong P.
    """

    name: str
    W: Literal["gaussian", "reverse order"]
    W_scale: Scale
    V: Literal["gaussian", "P", "-P", "wrong P"]
    V_scale: Scale


@dataclass(frozen=True)
class Joint(Seeds):
    init_scale: Positive
    n_steps: Steps


@dataclass(frozen=True)
class Starts(Seeds):
    n_steps: Steps


@dataclass(frozen=True)
class Minibatch(Seeds):
    n_tokens: Size
    seq_len: Size
    list_length: Size
    init_scale: Positive
    batch_size: Count
    learning_rate: Positive
    n_steps: Steps
    certify_every: Count

    @property
    def memory(self) -> int:
        """Bytes: a batch, its counts over the tokens and their slopes, and the weights."""
        return 8 * self.n_tokens * (8 * self.batch_size + 10 * self.n_tokens)

    def __post_init__(self) -> None:
        if max(self.seq_len, self.list_length, 2) > self.n_tokens:
            raise ValueError(
                f"n_tokens: wanted at least 2, seq_len and list_length, got {self.n_tokens}"
            )


@dataclass(frozen=True)
class Train:
    step_per_token: Positive
    every: Count
    joint: Joint
    starts: Starts
    alignment_steps: Steps
    minibatch: Minibatch

    @property
    def memory(self) -> float:
        """Bytes of the courses of one task."""
        return table_memory(self.n_rows(1, 1))

    def n_rows(self, n_joint: int, n_starts: int) -> float:
        """Of the courses of so many trainings from every seed: every so many steps give one."""
        of_batches = 1, self.minibatch, self.minibatch.certify_every
        trainings = (
            (n_joint, self.joint, self.every),
            (n_starts, self.starts, self.every),
            of_batches,
        )
        return sum(n * one.n_seeds * (2 + one.n_steps / every) for n, one, every in trainings)


def main(section: str, tasks: Path, starts: Path, tables: OutFolder, runs: OutFolder) -> None:
    use_threads(1)
    params, cases = read_params(section, Train), read_cases(starts, Start)
    rows = read_table(tasks, COLUMNS).to_dict("records")
    listed = read_as("a table of tasks", lambda _: tasks_by_name(rows), tasks).values()
    by_use = {
        use: [task for task in listed if task.use == use]
        for use in ("joint", "starts", "alignment")
    }
    joint, others = params.joint, params.starts
    n_rows = params.n_rows(len(by_use["joint"]), len(by_use["starts"]) * len(cases)) + 24 * len(
        by_use["alignment"]
    )
    check_memory(section, table_memory(n_rows))
    n_states = joint.n_seeds * len(saved_steps(joint.n_steps, joint.n_steps))
    of_runs = sum(n_states * (16 * task.n_tokens**2 + 1000) + 10_000 for task in by_use["joint"])
    check_disk(runs, COPIES * (of_runs + 200 * n_rows + 40_000), section)
    small = Start("small Gaussian", "gaussian", joint.init_scale, "gaussian", joint.init_scale)
    of_joint = product(by_use["joint"], [small], joint.seeds)
    of_starts = product(by_use["starts"], cases, others.seeds)
    jobs = {
        "joint": [(train_both, *one, joint.n_steps, True, params) for one in of_joint],
        "starts": [(train_both, *one, others.n_steps, False, params) for one in of_starts],
        "alignment": [(align, task, params) for task in by_use["alignment"]],
        "minibatch": [(minibatch, seed, params.minibatch) for seed in params.minibatch.seeds],
    }
    clear(tables, "*.parquet")
    clear_runs(runs)
    found = spread_cells(jobs, label=section, unit="run")
    states = iter([course.states for course in found["joint"]])
    found |= {name: [course.tables for course in found[name]] for name in ("joint", "starts")}
    for name, parts in found.items():
        if parts:
            write_table(joined(parts, "rows"), tables / f"{name}.parquet")
    for task in by_use["joint"]:
        publish(runs, task, joint, list(islice(states, joint.n_seeds)))


def train_both(
    task: Task, start: Start, seed: int, n_steps: int, whole: bool, params: Train
) -> Course:
    """Descend on W and V; the course and the saved states. Unless `whole`, it ends when all is
    right.
    """
    exact, size = (
        PopulationLoss(Rows.of(*task.classes), task.labels),
        params.step_per_token * task.n_tokens,
    )
    saved = set(saved_steps(n_steps, n_steps)) if whole else set()
    rows, states = [], list[Saved]()
    draw = generator(seed, "start", task.name, start.name)
    first = initial_weights(vars(start), in_list_order(task.lists), task.label_matrix, draw)
    for step in gradient_descent(exact, first, size):
        row = {"step": step.number, "loss": float(step.loss)}
        if step.number % params.every == 0 or step.number == n_steps:
            row |= exact.measured(step.weights)
            row |= certified(
                step.weights["W"], step.weights["V"], task.lists, task.permutation, task.seq_len
            )
            row["gradient"] = float(
                torch.cat([g.flatten() for g in step.gradients.values()]).norm()
            )
            rows.append(row)
        if step.number in saved:
            states.append(
                (step.weights, [{"seed": seed, "step": step.number, "loss": float(step.loss)}])
            )
        if step.number == n_steps or (not whole and rows[-1]["accuracy"] == 1.0):
            break
    table = pd.DataFrame(rows).assign(task=task.name, start=start.name, seed=seed, law=task.law)
    return Course({"rows": table.assign(n_tokens=task.n_tokens, length=task.longest)}, states)


def align(task: Task, params: Train) -> Tables:
    """Descend on V from 0 with W = 0. `along_P`, the mean of ⟨−∇L, P⟩ so far, is at V = 0 at least
    `least_rate`.
    """
    exact, size = (
        PopulationLoss(Rows.of(*task.classes), task.labels),
        params.step_per_token * task.n_tokens,
    )
    least_rate, P = 1 / task.seq_len - 1 / task.n_tokens, task.label_matrix
    zero = torch.zeros(task.n_tokens, task.n_tokens, dtype=torch.float64)
    kept, rows = set(saved_steps(params.alignment_steps, params.alignment_steps)), []
    for step in gradient_descent(exact, {"W": zero, "V": zero}, {"V": size}):
        if step.number in kept and step.number:
            along_P = float((step.weights["V"] * P).sum()) / (step.number * size)
            row = {
                "step": step.number,
                "loss": float(step.loss),
                "along_P": along_P,
                "least_rate": least_rate,
            }
            rows.append(row | exact.measured(step.weights))
        if step.number == params.alignment_steps:
            break
    about = {"task": task.name, "law": task.law, "length": task.longest, "repeats": task.repeats}
    return {"rows": pd.DataFrame(rows).assign(**about)}


def minibatch(seed: int, params: Minibatch) -> Tables:
    """Stochastic gradient descent on W and V from a small random start, each batch of fresh uniform
    subsets.
    """
    L, n, draw = params.n_tokens, params.seq_len, generator(seed, "minibatch")
    lists, permutation = random_lists(L, params.list_length, draw), random_permutation(L, draw)
    start = {
        name: params.init_scale * torch.randn(L, L, generator=draw, dtype=torch.float64)
        for name in ("W", "V")
    }

    def batches() -> Iterator[tuple[Tensor]]:
        while True:
            yield (random_subsets(L, n, params.batch_size, draw),)

    def loss(weights: Weights, counts: Tensor) -> Tensor:
        chance = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
        rows = Rows.of(counts, chance, *determining_tokens(counts, lists))
        return PopulationLoss(rows, torch.tensor(permutation)).value(weights)

    found = []
    states = sgd(
        loss,
        State(0, start),
        batches(),
        params.n_steps,
        optimizer="sgd",
        learning_rate=params.learning_rate,
        warmup_steps=0,
    )
    for state in states:
        if state.step % params.certify_every == 0 or state.step == params.n_steps:
            W, V = (state.weights[name].detach() for name in ("W", "V"))
            right = certified(W, V, lists, permutation, n)
            found.append({"step": state.step, "loss": float(state.loss), **right})
    return {"rows": pd.DataFrame(found).assign(seed=seed, n_tokens=L, batch_size=params.batch_size)}


def publish(runs: Path, task: Task, joint: Joint, courses: list[list[Saved]]) -> None:
    """Write the runs of one task, stacked over the seeds."""
    axes = ["seed", "row", "col"]
    cell = {"task": task.name, "group": task.group, "law": task.law, "init_scale": joint.init_scale}
    layout = Layout(
        "decision_lists", {"W": axes, "V": axes}, {}, {"W": "column shift"}, cell, list(joint.seeds)
    )
    with write_run(runs, task.name, layout) as writer:
        for states in zip(*courses, strict=True):
            weights = {
                name: torch.stack([state[name] for state, _ in states]) for name in ("W", "V")
            }
            writer.add(weights, [row for _, rows in states for row in rows])


if __name__ == "__main__":
    run(main)
