r"""Train beyond the theorems: W and V from many starts, V under uniform attention, minibatches.

Gradient descent here takes steps of `step_per_token` · n_tokens: a column's gradient is of the
order of 1 / n_tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.decision_lists.attention import PopulationLoss, Rows, initial_weights
from lib.decision_lists.certificates import logit_margin
from lib.decision_lists.lists import (
    Task,
    determining_tokens,
    random_lists,
    random_permutation,
    random_subsets,
    read_tasks,
    used_for,
)
from lib.decision_lists.runs import publish
from lib.files.params import Count, Interval, Positive, Seeds, Steps, read_cases, read_params
from lib.files.runs import clear_runs
from lib.training.devices import generator, use_threads
from lib.training.gradient_descent import Weights, gradient_descent
from lib.training.sgd import State, saved_steps, sgd
from lib.work.cells import Course, Saved, Tables, spread_cells, write_tables
from lib.work.command import OutFolder, run

Scale = Annotated[float, Interval("[0, 1e6]")]
Size = Annotated[int, Interval("[1, 4096]")]


@dataclass(frozen=True)
class Start:
    """A kind of W_0 and V_0: Gaussian, W against the lists, V a multiple of P or of a wrong P."""

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
    batch_size: Annotated[int, Interval("[1, 1000000]")]
    learning_rate: Positive
    n_steps: Steps
    certify_every: Count

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


def main(section: str, tasks: Path, starts: Path, tables: OutFolder, runs: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Train)
    cases = read_cases(starts, Start)
    listed = read_tasks(tasks)
    joint = used_for(listed, "joint")
    small = params.joint.init_scale
    gaussian = Start("small Gaussian", "gaussian", small, "gaussian", small)
    of_joint = product(joint, [gaussian], params.joint.seeds)
    of_starts = product(used_for(listed, "starts"), cases, params.starts.seeds)
    jobs = {
        "joint": [(train_joint, *one, params) for one in of_joint],
        "starts": [(train_start, *one, params) for one in of_starts],
        "alignment": [(align, task, params) for task in used_for(listed, "alignment")],
        "minibatch": [(minibatch, seed, params.minibatch) for seed in params.minibatch.seeds],
    }
    found = spread_cells(jobs, label=section, unit="run")
    write_tables(tables, found)
    clear_runs(runs)
    n_seeds = params.joint.n_seeds
    for i, task in enumerate(joint):
        courses = found["joint"][i * n_seeds : (i + 1) * n_seeds]
        publish(runs, task, params.joint.seeds, courses, init_scale=small)


def train_joint(task: Task, start: Start, seed: int, params: Train) -> Course:
    """A descent on W and V for all steps: its course and its saved states."""
    n_steps = params.joint.n_steps
    course, states = train_both(task, start, seed, n_steps, saved_steps(n_steps, n_steps), params)
    return Course({"joint": course}, states)


def train_start(task: Task, start: Start, seed: int, params: Train) -> Tables:
    """A descent on W and V until all is right: its course."""
    return {"starts": train_both(task, start, seed, params.starts.n_steps, [], params)[0]}


def train_both(
    task: Task, start: Start, seed: int, n_steps: int, saved: list[int], params: Train
) -> tuple[pd.DataFrame, list[Saved]]:
    """A descent on W and V, and the states of the `saved` steps.

    Without such steps, it ends once all is right.
    """
    exact = PopulationLoss.of(task)
    first = initial_weights(vars(start), task, generator(seed, "start", task.name, start.name))
    rows = []
    states: list[Saved] = []
    for step in gradient_descent(exact, first, params.step_per_token * task.n_tokens):
        at = {"step": step.number, "loss": float(step.loss)}
        W = step.weights["W"]
        V = step.weights["V"]
        if step.number in saved:
            states.append((step.weights, [{"seed": seed, **at}]))
        if step.number % params.every == 0 or step.number == n_steps:
            margin = logit_margin(W, V, task.lists, task.permutation, task.seq_len, repeats=True)
            rows.append({**at, **exact.measured(step.weights), "certified_all": margin > 0})
        if step.number == n_steps or (not saved and rows[-1]["accuracy"] == 1.0):
            break
    about = {"task": task.name, "start": start.name, "seed": seed, "law": task.law}
    about |= {"n_tokens": task.n_tokens, "length": task.longest}
    return pd.DataFrame(rows).assign(**about), states


def align(task: Task, params: Train) -> Tables:
    """Descend on V from 0 with W = 0.

    `along_P` is the mean of ⟨−∇L, P⟩ so far, at V = 0 at least `least_rate`. Beside it stands what
    a wrong P gives, which takes each token to the label after its own.
    """
    exact = PopulationLoss.of(task)
    size = params.step_per_token * task.n_tokens
    P = task.label_matrix
    wrong = P.roll(1, 0)
    zero = torch.zeros_like(P)
    n_steps = params.alignment_steps
    kept = saved_steps(n_steps, n_steps)[1:]
    rows = []
    for step in gradient_descent(partial(exact.gradient_in, "V"), {"W": zero, "V": zero}, size):
        if step.number in kept:
            V = step.weights["V"]
            rows.append(
                {
                    "step": step.number,
                    "loss": float(step.loss),
                    "along_P": float((V * P).sum()) / (step.number * size),
                    "along_wrong_P": float((V * wrong).sum()) / (step.number * size),
                    "argmax_wrong": float((V.argmax(0) == wrong.argmax(0)).double().mean()),
                    "least_rate": 1 / task.seq_len - 1 / task.n_tokens,
                    **exact.measured(step.weights),
                }
            )
        if step.number == n_steps:
            break
    about = {"task": task.name, "law": task.law, "length": task.longest, "repeats": task.repeats}
    return {"alignment": pd.DataFrame(rows).assign(**about)}


def minibatch(seed: int, params: Minibatch) -> Tables:
    """Stochastic gradient descent on W and V from a small random start.

    Each batch is of fresh uniform subsets.
    """
    L = params.n_tokens
    n = params.seq_len
    draw = generator(seed, "minibatch")
    lists = random_lists(L, params.list_length, draw)
    permutation = random_permutation(L, draw)
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
            of = W, V, lists, permutation, n
            found.append(
                {
                    "step": state.step,
                    "loss": float(state.loss),
                    "certified_sets": logit_margin(*of, repeats=False) > 0,
                    "certified_all": logit_margin(*of, repeats=True) > 0,
                }
            )
    about = {"seed": seed, "n_tokens": L, "batch_size": params.batch_size}
    return {"minibatch": pd.DataFrame(found).assign(**about)}


if __name__ == "__main__":
    run(main)
