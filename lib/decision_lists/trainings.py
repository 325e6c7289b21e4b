"""Trainings beyond the theorems: both matrices from any start, V alone, and minibatches."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from lib.decision_lists.attention import PopulationLoss, Rows
from lib.decision_lists.certificates import logit_margin
from lib.decision_lists.lists import (
    Task,
    determining_tokens,
    random_lists,
    random_permutation,
    random_subsets,
)
from lib.training.devices import generator
from lib.training.gradient_descent import Weights, gradient_descent
from lib.training.sgd import State, saved_steps, sgd

Saved = tuple[Weights, list[dict[str, Any]]]  # weights, and the row that is kept beside them


def course_of_both(
    task: Task,
    start: Weights,
    seed: int,
    *,
    step_size: float,
    n_steps: int,
    every: int,
    saved: Sequence[int] = (),
) -> tuple[pd.DataFrame, list[Saved]]:
    """A descent on W and V, looked at every so many steps, and the states of the `saved` steps.

    Without such steps, it ends once all is right.
    """
    exact = PopulationLoss.of(task)
    rows: list[dict[str, Any]] = []
    states: list[Saved] = []
    for step in gradient_descent(exact, start, step_size):
        at = {"step": step.number, "loss": float(step.loss)}
        W = step.weights["W"]
        V = step.weights["V"]
        if step.number in saved:
            states.append((step.weights, [{"seed": seed, **at}]))
        if step.number % every == 0 or step.number == n_steps:
            margin = logit_margin(W, V, task.lists, task.permutation, task.seq_len, repeats=True)
            rows.append({**at, **exact.measured(step.weights), "certified_all": margin > 0})
        if step.number == n_steps or (not saved and rows[-1]["accuracy"] == 1.0):
            break
    return pd.DataFrame(rows), states


def course_of_values(task: Task, step_size: float, n_steps: int) -> pd.DataFrame:
    r"""A descent on V from 0 with W = 0.

    `along_P` is the mean of $\langle -\nabla L, P \rangle$ so far, at V = 0 at least `least_rate`.
    Beside it stands what a wrong P gives, which takes each token to the label after its own.
    """
    exact = PopulationLoss.of(task)
    P = task.label_matrix
    wrong = P.roll(1, 0)
    start = {"W": torch.zeros_like(P), "V": torch.zeros_like(P)}
    kept = saved_steps(n_steps, n_steps)[1:]
    rows = []
    for step in gradient_descent(partial(exact.gradient_in, "V"), start, step_size):
        if step.number in kept:
            V = step.weights["V"]
            rows.append(
                {
                    "step": step.number,
                    "loss": float(step.loss),
                    "along_P": float((V * P).sum()) / (step.number * step_size),
                    "along_wrong_P": float((V * wrong).sum()) / (step.number * step_size),
                    "argmax_wrong": float((V.argmax(0) == wrong.argmax(0)).double().mean()),
                    "least_rate": 1 / task.seq_len - 1 / task.n_tokens,
                    **exact.measured(step.weights),
                }
            )
        if step.number == n_steps:
            break
    return pd.DataFrame(rows)


def course_of_minibatches(
    seed: int,
    *,
    n_tokens: int,
    seq_len: int,
    list_length: int,
    init_scale: float,
    batch_size: int,
    learning_rate: float,
    n_steps: int,
    certify_every: int,
) -> pd.DataFrame:
    """Stochastic gradient descent on W and V from a small random start.

    Each batch is of fresh uniform subsets.
    """
    draw = generator(seed, "minibatch")
    lists = random_lists(n_tokens, list_length, draw)
    permutation = random_permutation(n_tokens, draw)
    size = n_tokens, n_tokens
    start = {
        name: init_scale * torch.randn(size, generator=draw, dtype=torch.float64)
        for name in ("W", "V")
    }

    def batches() -> Iterator[tuple[Tensor]]:
        while True:
            yield (random_subsets(n_tokens, seq_len, batch_size, draw),)

    def loss(weights: Weights, counts: Tensor) -> Tensor:
        chance = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
        rows = Rows.of(counts, chance, *determining_tokens(counts, lists))
        return PopulationLoss(rows, torch.tensor(permutation)).value(weights)

    found = []
    states = sgd(
        loss,
        State(0, start),
        batches(),
        n_steps,
        optimizer="sgd",
        learning_rate=learning_rate,
        warmup_steps=0,
    )
    for state in states:
        if state.step % certify_every == 0 or state.step == n_steps:
            W, V = (state.weights[name].detach() for name in ("W", "V"))
            of = W, V, lists, permutation, seq_len
            found.append(
                {
                    "step": state.step,
                    "loss": float(state.loss),
                    "certified_sets": logit_margin(*of, repeats=False) > 0,
                    "certified_all": logit_margin(*of, repeats=True) > 0,
                }
            )
    return pd.DataFrame(found)
