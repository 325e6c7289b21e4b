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
from lib.analysis.pruning import magnitude_masks
from lib.data.decision_lists import (
    Lists,
    Task,
    determining_tokens,
    dirichlet_law,
    label_matrix,
    multisets,
    random_lists,
    random_permutation,
    subsets,
)
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread_kinds, use_threads
from lib.io.files import InputError, clear
from lib.io.params import Count, Interval, Seed, read_params
from lib.io.runs import Run, open_runs
from lib.io.tables import read_table, write_table
from lib.models.list_attention import Rows, attention_margins, attention_rows, logit_margins, loss_gradients

WEIGHTS_A_CASE = 8  # drawn for one task: making a task costs more than a gradient


@dataclass(frozen=True)
class Certify:
    """`n_chunks` of `chunk` random cases for each question; sizes up to `most_tokens`."""

    seed: Seed
    n_chunks: Annotated[int, Interval("[1, 10000]")]
    chunk: Count
    most_tokens: Annotated[int, Interval("[4, 9]")]
    list_lengths: tuple[Annotated[int, Interval("[1, 16]")], ...]
    longest_sequence: Annotated[int, Interval("[2, 1000]")]
    monte_carlo_samples: tuple[Count, ...]
    monte_carlo_repeats: Count
    monte_carlo_task: str


def main(section: str, tasks: Path, flows: Path, joint: Path, tables: Path) -> None:
    use_threads(1)
    params = read_params(section, Certify)
    listed = {str(row["name"]): Task.from_row(row) for row in read_table(tasks).to_dict("records")}
    if params.monte_carlo_task not in listed:
        raise InputError(f"{section}.monte_carlo_task: wanted one of {sorted(listed)}, got {params.monte_carlo_task!r}")
    opened = [one for folder in (flows, joint) for one in open_runs(folder)]
    questions = {"certificates": certificates, "lemma 1": lemma_1_case, "lemma 2": lemma_2_case}
    jobs = {
        "trained": [(describe, one, listed[one.layout.cell["task"]], params) for one in opened],
        **{q: [(sample, ask, q, i, params) for i in range(params.n_chunks)] for q, ask in questions.items()},
        "monte carlo": [(monte_carlo, listed[params.monte_carlo_task], params)],
    }
    clear(tables, "*.parquet")
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="job")
    for name, parts in found.items():
        write_table(pd.concat(parts, ignore_index=True), tables / f"{name.replace(' ', '_')}.parquet")
    feasible = [{"length": m, "least_n": least_feasible_length(m)} for m in params.list_lengths]
    write_table(pd.DataFrame(feasible), tables / "feasible.parquet")


def sample(ask: Callable[..., list[dict[str, Any]]], question: str, chunk: int, params: Certify) -> pd.DataFrame:
    """One chunk of random cases of one question."""
    draw = generator(params.seed, question, chunk)
    rows: list[dict[str, Any]] = []
    while len(rows) < params.chunk:
        rows += ask(draw, params.most_tokens)
    return pd.DataFrame(rows[: params.chunk])


@dataclass(frozen=True)
class Case:
    """A random task with its rows."""

    lists: Lists
    permutation: tuple[int, ...]
    seq_len: int
    repeats: bool
    chances: Tensor
    rows: Rows


def random_case(draw: torch.Generator, most_tokens: int, repeats: bool | None = None) -> Case:
    n_tokens = whole(draw, 3, most_tokens)
    repeats = bool(whole(draw, 0, 1)) if repeats is None else repeats
    seq_len = whole(draw, 2, min(5, n_tokens - 1))
    lists = random_lists(n_tokens, whole(draw, 1, min(4, n_tokens)), draw)
    lists = tuple(entries[whole(draw, 0, len(entries) - 1) :] for entries in lists)  # of any lengths
    counts = (multisets if repeats else subsets)(n_tokens, seq_len)
    chances = dirichlet_law(len(counts), draw)
    rows = Rows.of(counts, chances, *determining_tokens(counts, lists))
    return Case(lists, random_permutation(n_tokens, draw), seq_len, repeats, chances, rows)


def whole(draw: torch.Generator, low: int, high: int) -> int:
    """A whole number, both ends possible."""
    return int(torch.randint(low, high + 1, (), generator=draw))


def uniform(draw: torch.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand((), generator=draw, dtype=torch.float64))


def normal(draw: torch.Generator, n: int) -> Tensor:
    return torch.randn(n, n, generator=draw, dtype=torch.float64)


def in_list_order(lists: Lists) -> Tensor:
    """W that orders every column by its list: 0 outside, and one more for every place towards the head."""
    places = [(b, a, len(entries) - i) for a, entries in enumerate(lists) for i, b in enumerate(entries)]
    keys, queries, values = torch.tensor(places).T
    return torch.zeros(len(lists), len(lists), dtype=torch.float64).index_put((keys, queries), values.double())


def certificates(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both certificates on one case, beside every sequence enumerated."""
    case = random_case(draw, most_tokens)
    n_tokens, n, rows = len(case.lists), case.seq_len, case.rows
    permutation = torch.tensor(case.permutation)
    W = uniform(draw, 0.5, 4) * in_list_order(case.lists) + uniform(draw, 0, 1.2) * normal(draw, n_tokens)
    V = label_matrix(case.permutation) + uniform(draw, 0, 0.5) * normal(draw, n_tokens)
    found = {
        "V = cP": (list_order_margin(W, case.lists, n, case.repeats), attention_margins(W, rows)),
        "any V": (
            logit_margin(W, V, case.lists, case.permutation, n, case.repeats),
            logit_margins(W, V, rows, permutation),
        ),
    }
    return [
        {"certificate": name, "repeats": case.repeats, "certified": margin > 0, "right": bool((each > 0).all())}
        for name, (margin, each) in found.items()
    ]


def lemma_1_case(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both sides of Lemma 1 at several W, for a law and scale, with repeats or without."""
    case = random_case(draw, most_tokens)
    scale = 10 ** uniform(draw, -1, 4)
    n_tokens, rows = len(case.lists), case.rows
    permutation, cP = torch.tensor(case.permutation), scale * label_matrix(case.permutation)
    ordered, found = in_list_order(case.lists), []
    for _ in range(WEIGHTS_A_CASE):
        W = 10 ** uniform(draw, -3, 0.7) * normal(draw, n_tokens) + uniform(draw, 0, 2) * ordered
        wrong = attention_margins(W, rows) <= 0
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is None:
            continue
        gradient = loss_gradients(W, cP, rows, permutation)[1]
        to_star = attention_rows(W, rows).gather(1, rows.star[:, None])[:, 0]
        sides = lemma_1(gradient, to_star, rows.weight, wrong, rows.query, rows.place, case.lists, scale, at)
        found.append({"repeats": case.repeats, "scale": scale, "derivative": sides.derivative, "bound": sides.bound})
    return found


def lemma_2_case(draw: torch.Generator, most_tokens: int) -> list[dict[str, Any]]:
    """Both sides of Lemma 2 at several W, where its conditions hold: V near cP, loss at most L_0, some row wrong."""
    case = random_case(draw, most_tokens, repeats=False)
    n_tokens, n, rows = len(case.lists), case.seq_len, case.rows
    permutation = torch.tensor(case.permutation)
    bound = descent_bound(float(case.chances.min()), n_tokens, n, max(len(entries) for entries in case.lists))
    epsilon = bound.epsilon
    offset = epsilon * (2 * torch.rand(n_tokens, n_tokens, generator=draw, dtype=torch.float64) - 1)
    if whole(draw, 0, 1):
        offset = epsilon * offset.sign()
    V = bound.scale * label_matrix(case.permutation) + offset
    least, ordered = lemma_2_bound(bound.L_0, n, epsilon), in_list_order(case.lists)
    found = []
    for _ in range(WEIGHTS_A_CASE):
        W = uniform(draw, 0, 2) * ordered + 10 ** uniform(draw, -1, 0.3) * normal(draw, n_tokens)
        W = W * 10 ** uniform(draw, 0, 2) / bound.scale
        wrong = logit_margins(W, V, rows, permutation) <= 0
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is None:
            continue
        loss, gradient, _ = loss_gradients(W, V, rows, permutation)
        if float(loss) > bound.L_0:
            continue
        a, i = at
        derivative = -float(gradient[list(case.lists[a][:i]), a].sum())
        abstract = bound.L_0 - 6 * epsilon / n
        found.append({"derivative": derivative, "bound": least, "L_0": bound.L_0, "abstract": abstract})
    return found


def monte_carlo(task: Task, params: Certify) -> pd.DataFrame:
    """The relative error of the gradient in W at W = 0 from samples of the law, beside the exact one."""
    star, place = determining_tokens(task.counts, task.lists)
    permutation = torch.tensor(task.permutation)
    W, V = torch.zeros(task.n_tokens, task.n_tokens, dtype=torch.float64), 10 * label_matrix(task.permutation)
    exact = loss_gradients(W, V, Rows.of(task.counts, task.chances, star, place), permutation)[1]
    rows = []
    for n_samples in params.monte_carlo_samples:
        for number in range(params.monte_carlo_repeats):
            drawn = generator(params.seed, "monte carlo", n_samples, number)
            sample = torch.multinomial(task.chances, n_samples, replacement=True, generator=drawn)
            share = torch.bincount(sample, minlength=len(task.chances)).double() / n_samples
            found = loss_gradients(W, V, Rows.of(task.counts, share, star, place), permutation)[1]
            rows.append({"n_samples": n_samples, "error": float((found - exact).norm() / exact.norm())})
    return pd.DataFrame(rows)


def describe(opened: Run, task: Task, params: Certify) -> pd.DataFrame:
    """What the last weights of a run are certified for, and how few entries of W that takes, a row a seed."""
    weights, seeds = opened.weights(-1), opened.layout.seeds
    rows = []
    for i, seed in enumerate(seeds):
        one = {name: tensor[i] for name, tensor in weights.items()}
        W = one["W"]
        V = one.get("V", label_matrix(task.permutation))

        def perfect(pruned: Tensor, V: Tensor = V) -> bool:
            return logit_margin(pruned, V, task.lists, task.permutation, task.seq_len, repeats=False) > 0

        row: dict[str, Any] = {"task": task.name, "group": task.group, "law": task.law, "seed": seed}
        row["certified_sets"] = perfect(W)
        row["certified_all"] = logit_margin(W, V, task.lists, task.permutation, task.seq_len, repeats=True) > 0
        row["longest"] = longest_certified(W, task.lists, params.longest_sequence) if "V" not in one else -1
        row["n_entries"], row["list_entries"] = W.numel(), sum(len(entries) for entries in task.lists)
        row["kept_in_gauge"] = fewest_kept(W - W.median(0).values, perfect)
        row["kept_raw"] = fewest_kept(W, perfect)
        rows.append(row)
    return pd.DataFrame(rows)


def fewest_kept(W: Tensor, perfect: Callable[[Tensor], bool]) -> int:
    """The least number of entries of W, largest first, with which all is right, and with every larger number too."""
    fewest, n = W.numel() + 1, W.numel()
    for rate, masks in magnitude_masks({"W": W}, [removed / n for removed in range(n + 1)]):
        if not perfect(W * masks["W"]):
            break
        fewest = n - round(rate * n)
    return fewest


if __name__ == "__main__":
    run(main)
