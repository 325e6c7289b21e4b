"""Random cases for both lemmas: a small task of any law, and weights of any size.

The weights lie around what the lists ask for, so that right and wrong ones both occur.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lib.decision_lists.attention import PopulationLoss, attention_margins
from lib.decision_lists.bounds import (
    descent_along_list,
    descent_bound_of,
    first_failing_place,
    lemma_1_bound,
    lemma_2_bound,
)
from lib.decision_lists.lists import Task, in_list_order, whole

Rows = list[dict[str, Any]]

WEIGHTS_A_CASE = 8  # W for each task, as making a task costs more than a gradient


def lemma_1(draw: torch.Generator, most_tokens: int) -> Rows:
    """Both sides of Lemma 1 at several W, for a law and scale, with repeats or without."""
    task = Task.drawn(most_tokens, draw)
    scale = 10 ** _uniform(draw, -1, 4)
    loss = PopulationLoss.of(task)
    rows = loss.rows
    ordered = in_list_order(task.lists)
    found = []
    for _ in range(WEIGHTS_A_CASE):
        noise = 10 ** _uniform(draw, -3, 0.7) * _normal(draw, task.n_tokens)
        W = noise + _uniform(draw, 0, 2) * ordered
        wrong = attention_margins(W, rows) <= 0
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is None:
            continue
        _, gradients = loss({"W": W, "V": scale * task.label_matrix})
        derivative = descent_along_list(gradients["W"], task.lists, at)
        least = lemma_1_bound(W, rows, wrong, scale, at)
        found.append({"derivative": derivative, "bound": least})
    return found


def lemma_2(draw: torch.Generator, most_tokens: int) -> Rows:
    """Both sides of Lemma 2 at several W, where its conditions hold.

    V is near cP, the loss at most L_0, and some row wrong.
    """
    task = Task.drawn(most_tokens, draw, repeats=False)
    n_tokens = task.n_tokens
    loss = PopulationLoss.of(task)
    rows = loss.rows
    bound = descent_bound_of(task)
    offset = torch.rand(n_tokens, n_tokens, generator=draw, dtype=torch.float64)
    offset = bound.epsilon * (2 * offset - 1)
    if whole(0, 1, draw):
        offset = bound.epsilon * offset.sign()
    V = bound.scale * task.label_matrix + offset
    least = lemma_2_bound(bound.L_0, task.seq_len, bound.epsilon)
    ordered = in_list_order(task.lists)
    found = []
    for _ in range(WEIGHTS_A_CASE):
        W = _uniform(draw, 0, 2) * ordered + 10 ** _uniform(draw, -1, 0.3) * _normal(draw, n_tokens)
        W = W * 10 ** _uniform(draw, 0, 2) / bound.scale
        weights = {"W": W, "V": V}
        wrong = ~loss.right(weights)
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is None:
            continue
        value, gradients = loss(weights)
        if float(value) <= bound.L_0:
            derivative = descent_along_list(gradients["W"], task.lists, at)
            found.append({"derivative": derivative, "bound": least})
    return found


QUESTIONS: dict[str, Callable[[torch.Generator, int], Rows]] = {
    "lemma_1": lemma_1,
    "lemma_2": lemma_2,
}


def _uniform(draw: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=draw, dtype=torch.float64))


def _normal(draw: torch.Generator, n: int) -> Tensor:
    return torch.randn(n, n, generator=draw, dtype=torch.float64)
