"""Check certificates and lemmas on random cases, and what the trained weights are certified for.

A random case is a task of a few tokens with any law, and weights of any size around what the lists ask for, so that
right and wrong ones both occur.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from torch import Tensor

from lib.analysis.certificate import list_order_margin, logit_margin, longest_certified
from lib.analysis.convergence_bounds import (
    descent_bound,
    first_failing_place,
    least_feasible_length,
    lemma_1,
    lemma_2_bound,
)
from lib.analysis.pruning import fewest_kept
from lib.data.decision_lists import Task, in_list_order, tasks_by_name, whole
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread_kinds, use_threads
from lib.io.files import InputError, clear
from lib.io.params import Count, Interval, Seed, read_params
from lib.io.runs import Run, open_runs
from lib.io.tables import read_table, write_table
from lib.models.list_attention import (
    Rows,
    attention_margins,
    attention_to_star,
    logit_margins,
    loss_gradients,
)

CASES_A_CHUNK = 1000  # drawn from one random generator, by one process
WEIGHTS_A_CASE = 8  # drawn for one task: making a task costs more than a gradient


@dataclass(frozen=True)
class Certify:
    """Random cases for each question, of up to `most_tokens`; lengths of lists for which a least n is sought."""

    seed: Seed
    n_cases: Annotated[int, Interval("[1, 10000000]")]
    most_tokens: Annotated[int, Interval("[4, 9]")]
    list_lengths: tuple[Annotated[int, Interval("[1, 16]")], ...]
    longest_sequence: Annotated[int, Interval("[2, 1000]")]
    monte_carlo_samples: tuple[Count, ...]
    monte_carlo_repeats: Count
    monte_carlo_task: str


def main(section: str, tasks: Path, flows: Path, joint: Path, tables: Path) -> None:
    use_threads(1)
    params = read_params(section, Certify)
    listed = tasks_by_name(read_table(tasks).to_dict("records"))
    if params.monte_carlo_task not in listed:
        raise InputError(f"{section}.monte_carlo_task: wanted one of {sorted(listed)}, got {params.monte_carlo_task!r}")
    opened = [one for folder in (flows, joint) for one in open_runs(folder)]
    questions = {"certificates": certificates, "lemma 1": lemma_1_case, "lemma 2": lemma_2_case}
    starts = range(0, params.n_cases, CASES_A_CHUNK)
    jobs = {
        "trained": [(describe, one, listed[one.layout.cell["task"]], params.longest_sequence) for one in opened],
        **{q: [(sample, ask, q, start, params) for start in starts] for q, ask in questions.items()},
        "monte carlo": [(monte_carlo, listed[params.monte_carlo_task], params)],
    }
    clear(tables, "*.parquet")
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="job")
    for name, parts in found.items():
        write_table(pd.concat(parts, ignore_index=True), tables / f"{name.replace(' ', '_')}.parquet")
    feasible = [{"length": m, "least_n": least_feasible_length(m)} for m in params.list_lengths]
    write_table(pd.DataFrame(feasible), tables / "feasible.parquet")


def sample(ask: Callable[..., list[dict[str, Any]]], question: str, start: int, params: Certify) -> pd.DataFrame:
    """One chunk of random cases of one question, from the case `start` on."""
    draw = generator(params.seed, question, start // CASES_A_CHUNK)
    wanted = min(CASES_A_CHUNK, params.n_cases - start)
    rows: list[dict[str, Any]] = []
    while len(rows) < wanted:
        rows += ask(draw, params.most_tokens)
    return pd.DataFrame(rows[:wanted])


def uniform(draw: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=draw, dtype=torch.float64))


def normal(draw: torch.Generator, n: int) -> Tensor:
    return torch.randn(n, n, generator=draw, dtype=torch.float64)


def certificates(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both certificates on one case, beside every sequence enumerated."""
    task = Task.drawn(most_tokens, draw)
    lists, n, rows = task.lists, task.seq_len, Rows.of(*task.classes)
    W = uniform(draw, 0.5, 4) * in_list_order(lists) + uniform(draw, 0, 1.2) * normal(draw, task.n_tokens)
    V = task.label_matrix + uniform(draw, 0, 0.5) * normal(draw, task.n_tokens)
    at_cP = list_order_margin(W, lists, n, task.repeats), attention_margins(W, rows)
    at_V = logit_margin(W, V, lists, task.permutation, n, task.repeats), logit_margins(W, V, rows, task.labels)
    return [
        {"certificate": name, "repeats": task.repeats, "certified": margin > 0, "right": bool((each > 0).all())}
        for name, (margin, each) in {"V = cP": at_cP, "any V": at_V}.items()
    ]


def lemma_1_case(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both sides of Lemma 1 at several W, for a law and scale, with repeats or without."""
    task = Task.drawn(most_tokens, draw)
    scale = 10 ** uniform(draw, -1, 4)
    rows, ordered, found = Rows.of(*task.classes), in_list_order(task.lists), []
    for _ in range(WEIGHTS_A_CASE):
        W = 10 ** uniform(draw, -3, 0.7) * normal(draw, task.n_tokens) + uniform(draw, 0, 2) * ordered
        wrong = attention_margins(W, rows) <= 0
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is None:
            continue
        gradient = loss_gradients(W, scale * task.label_matrix, rows, task.labels)[1]
        to_star = attention_to_star(W, rows)
        sides = lemma_1(gradient, to_star, rows.weight, wrong, rows.query, rows.place, task.lists, scale, at)
        found.append({"repeats": task.repeats, "scale": scale, "derivative": sides.derivative, "bound": sides.bound})
    return found


def lemma_2_case(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both sides of Lemma 2 at several W, where its conditions hold: V near cP, loss at most L_0, some row wrong."""
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
        found.append({"derivative": derivative, "bound": least, "L_0": bound.L_0, "abstract": abstract})
    return found


def monte_carlo(task: Task, params: Certify) -> pd.DataFrame:
    """The relative error of the gradient in W at W = 0 from samples of the law, beside the exact one."""
    W, V = torch.zeros(task.n_tokens, task.n_tokens, dtype=torch.float64), 10 * task.label_matrix

    def gradient(chances: Tensor) -> Tensor:
        rows = Rows.of(task.counts, chances, task.star, task.place)
        return loss_gradients(W, V, rows, task.labels)[1]

    exact, found = gradient(task.chances), []
    for n_samples in params.monte_carlo_samples:
        for number in range(params.monte_carlo_repeats):
            drawn = generator(params.seed, "monte carlo", n_samples, number)
            sampled = torch.multinomial(task.chances, n_samples, replacement=True, generator=drawn)
            share = torch.bincount(sampled, minlength=len(task.chances)).double() / n_samples
            error = (gradient(share) - exact).norm() / exact.norm()
            found.append({"n_samples": n_samples, "error": float(error)})
    return pd.DataFrame(found)


def describe(opened: Run, task: Task, longest_sequence: int) -> pd.DataFrame:
    """What the last weights of a run are certified for, and how few entries of W that takes: one row per seed."""
    weights, rows = opened.weights(-1), []
    for i, seed in enumerate(opened.layout.seeds):
        W = weights["W"][i]
        V = weights["V"][i] if "V" in weights else task.label_matrix

        def perfect(pruned: Tensor, V: Tensor = V, repeats: bool = False) -> bool:
            return logit_margin(pruned, V, task.lists, task.permutation, task.seq_len, repeats) > 0

        row: dict[str, Any] = {"task": task.name, "group": task.group, "law": task.law, "seed": seed}
        row |= {"certified_sets": perfect(W), "certified_all": perfect(W, repeats=True)}
        row["longest"] = -1 if "V" in weights else longest_certified(W, task.lists, longest_sequence)
        row |= {"n_entries": W.numel(), "list_entries": sum(len(entries) for entries in task.lists)}
        row["kept_in_gauge"] = fewest_kept(W - W.median(0).values, perfect)
        row["kept_raw"] = fewest_kept(W, perfect)
        rows.append(row)
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run(main)
