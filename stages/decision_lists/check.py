"""Check certificates and lemmas, and that attention can represent any list, on random cases.

A random case is a task of a few tokens with any law, and weights of any size around what the lists
ask for, so that right and wrong ones both occur.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
import torch
from torch import Tensor

from lib.decision_lists.attention import (
    Rows,
    attention_margins,
    attention_to_star,
    logit_margins,
    loss_gradients,
)
from lib.decision_lists.bounds import (
    descent_bound,
    first_failing_place,
    lemma_1,
    lemma_2_bound,
)
from lib.decision_lists.certificates import list_order_margin, logit_margin
from lib.decision_lists.lists import (
    Task,
    in_list_order,
    whole,
)
from lib.files.files import clear
from lib.files.params import Interval, Seed, read_params
from lib.files.tables import write_table
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run

CASES_A_CHUNK = 1000  # drawn from one random generator, by one process
WEIGHTS_A_CASE = 8  # drawn for one task: making a task costs more than a gradient


@dataclass(frozen=True)
class Check:
    """Random cases for each question, of up to `most_tokens`."""

    seed: Seed
    n_cases: Annotated[int, Interval("[1, 10000000]")]
    most_tokens: Annotated[int, Interval("[4, 9]")]

    @property
    def memory(self) -> int:
        """Bytes: a row per case and question, as it is drawn and in its table."""
        return 4 * 150 * self.n_cases

    @property
    def disk(self) -> int:
        """Bytes: four numbers of every case of a question, and the columns' names."""
        return 4 * (40 * self.n_cases + 4000)


def main(section: str, tables: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Check)
    starts = range(0, params.n_cases, CASES_A_CHUNK)
    jobs = {name: [(sample, name, start, params) for start in starts] for name in QUESTIONS}
    clear(tables, "*.parquet")
    found = spread_cells(
        jobs,
        label=section,
        unit="chunk",
    )
    for name, parts in found.items():
        write_table(joined(parts, "cases"), tables / f"{name}.parquet")


def sample(question: str, start: int, params: Check) -> Tables:
    """One chunk of random cases of one question, from the case `start` on."""
    draw = generator(params.seed, question.replace("_", " "), start // CASES_A_CHUNK)
    wanted = min(CASES_A_CHUNK, params.n_cases - start)
    rows: list[dict[str, Any]] = []
    while len(rows) < wanted:
        rows += QUESTIONS[question](draw, params.most_tokens)
    return {"cases": pd.DataFrame(rows[:wanted])}


def uniform(draw: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=draw, dtype=torch.float64))


def normal(draw: torch.Generator, n: int) -> Tensor:
    return torch.randn(n, n, generator=draw, dtype=torch.float64)


def certificates(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both certificates on one case, beside every sequence enumerated."""
    task = Task.drawn(most_tokens, draw)
    lists, n, rows = task.lists, task.seq_len, Rows.of(*task.classes)
    W = uniform(draw, 0.5, 4) * in_list_order(lists) + uniform(draw, 0, 1.2) * normal(
        draw, task.n_tokens
    )
    V = task.label_matrix + uniform(draw, 0, 0.5) * normal(draw, task.n_tokens)
    at_cP = list_order_margin(W, lists, n, task.repeats), attention_margins(W, rows)
    at_V = (
        logit_margin(W, V, lists, task.permutation, n, task.repeats),
        logit_margins(W, V, rows, task.labels),
    )
    return [
        {
            "certificate": name,
            "repeats": task.repeats,
            "certified": margin > 0,
            "right": bool((each > 0).all()),
        }
        for name, (margin, each) in {"V = cP": at_cP, "any V": at_V}.items()
    ]


def represent(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """W = κ times the places of the lists, V = cP: the least margin over all of [L]^n, and the
    theorem's.
    """
    task = Task.drawn(most_tokens, draw, repeats=True)
    kappa = uniform(draw, 0, 3)
    margin = float(
        attention_margins(kappa * in_list_order(task.lists), Rows.of(*task.classes)).min()
    )
    return [
        {
            "seq_len": task.seq_len,
            "kappa": kappa,
            "margin": margin,
            "wanted": kappa - math.log(task.seq_len - 1),
        }
    ]


def lemma_1_case(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both sides of Lemma 1 at several W, for a law and scale, with repeats or without."""
    task = Task.drawn(most_tokens, draw)
    scale = 10 ** uniform(draw, -1, 4)
    rows, ordered, found = Rows.of(*task.classes), in_list_order(task.lists), []
    for _ in range(WEIGHTS_A_CASE):
        W = (
            10 ** uniform(draw, -3, 0.7) * normal(draw, task.n_tokens)
            + uniform(draw, 0, 2) * ordered
        )
        wrong = attention_margins(W, rows) <= 0
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is None:
            continue
        gradient = loss_gradients(W, scale * task.label_matrix, rows, task.labels)[1]
        to_star = attention_to_star(W, rows)
        sides = lemma_1(
            gradient, to_star, rows.weight, wrong, rows.query, rows.place, task.lists, scale, at
        )
        found.append(
            {
                "repeats": task.repeats,
                "scale": scale,
                "derivative": sides.derivative,
                "bound": sides.bound,
            }
        )
    return found


def lemma_2_case(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both sides of Lemma 2 at several W, where its conditions hold: V near cP, loss at most L_0,
    some row wrong.
    """
    task = Task.drawn(most_tokens, draw, repeats=False)
    n_tokens, n, rows = task.n_tokens, task.seq_len, Rows.of(*task.classes)
    bound = descent_bound(float(task.chances.min()), n_tokens, n, task.longest)
    epsilon = bound.epsilon
    offset = epsilon * (2 * torch.rand(n_tokens, n_tokens, generator=draw, dtype=torch.float64) - 1)
    if whole(0, 1, draw):
        offset = epsilon * offset.sign()
    V = bound.scale * task.label_matrix + offset
    least, ordered = lemma_2_bound(bound.L_0, n, epsilon), in_list_order(task.lists)
    found = []
    for _ in range(WEIGHTS_A_CASE):
        W = uniform(draw, 0, 2) * ordered + 10 ** uniform(draw, -1, 0.3) * normal(draw, n_tokens)
        W = W * 10 ** uniform(draw, 0, 2) / bound.scale
        wrong = logit_margins(W, V, rows, task.labels) <= 0
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is None:
            continue
        loss, gradient, _ = loss_gradients(W, V, rows, task.labels)
        if float(loss) > bound.L_0:
            continue
        a, i = at
        derivative = -float(gradient[list(task.lists[a][:i]), a].sum())
        abstract = bound.L_0 - 6 * epsilon / n
        found.append(
            {"derivative": derivative, "bound": least, "L_0": bound.L_0, "abstract": abstract}
        )
    return found


QUESTIONS: dict[str, Callable[[torch.Generator, int], list[dict[str, Any]]]] = {
    "certificates": certificates,
    "represent": represent,
    "lemma_1": lemma_1_case,
    "lemma_2": lemma_2_case,
}


if __name__ == "__main__":
    run(main)
