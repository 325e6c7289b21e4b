"""The constants of the theorems against those derived by hand, the least feasible n, and gradients
from samples.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
from torch import Tensor

from lib.decision_lists.attention import Rows, loss_gradients
from lib.decision_lists.bounds import (
    descent_bound,
    flow_bound,
    least_feasible_length,
    rarest_conflict,
)
from lib.decision_lists.lists import Law, Task, own_lists, subsets
from lib.files.files import InputError, clear
from lib.files.memory import COPIES, check_disk, table_memory
from lib.files.params import Count, Interval, Positive, Seed, read_cases, read_params
from lib.files.tables import write_table
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run


@dataclass(frozen=True)
class Constants:
    """A small task, and the constants of both theorems as derived by hand."""

    name: str
    n_tokens: Annotated[int, Interval("[2, 16]")]
    seq_len: Annotated[int, Interval("[2, 16]")]
    lists: str
    law: str
    P_min: Positive
    delta: Positive
    c: Positive
    bound: Positive
    P_set: Positive
    epsilon: Positive
    c_of_part_2: Positive
    earliest: Positive
    latest: Positive

    def __post_init__(self) -> None:
        _ = self.task.chances

    @property
    def gamma(self) -> float:
        """(4 P_min / (n delta) - 1)² by hand, the same for every task: delta is P_min / n."""
        return 9.0

    @property
    def task(self) -> Task:
        """The task itself."""
        lists, law = own_lists(self.lists, self.n_tokens), Law.named(self.law)
        chances = law.probabilities(subsets(self.n_tokens, self.seq_len), 1, generator(0, "none"))
        names = tuple(range(self.n_tokens))
        return Task(
            self.name,
            "constants",
            self.n_tokens,
            self.seq_len,
            False,
            lists,
            names,
            tuple(chances.tolist()),
            law.label,
        )


@dataclass(frozen=True)
class Settings:
    """Lengths of lists for which the least n is sought; the samples, and the task, of gradients
    from samples.
    """

    seed: Seed
    list_lengths: tuple[Annotated[int, Interval("[1, 16]")], ...]
    monte_carlo_samples: tuple[Count, ...]
    monte_carlo_repeats: Count
    monte_carlo_task: str

    @property
    def memory(self) -> float:
        """Bytes: the sequences of one sample, as they are drawn and counted, and a row for each
        sample.
        """
        n_rows = len(self.monte_carlo_samples) * self.monte_carlo_repeats
        return 3 * 8 * max(self.monte_carlo_samples, default=0) + table_memory(n_rows)


def main(section: str, by_hand: Path, tables: OutFolder) -> None:
    use_threads(1)
    params, constants = (
        read_params(section, Settings),
        {case.name: case for case in read_cases(by_hand, Constants)},
    )
    if params.monte_carlo_task not in constants:
        wanted = f"wanted one of {sorted(constants)}, the tasks of {by_hand}"
        raise InputError(f"{section}.monte_carlo_task: {wanted}, got {params.monte_carlo_task!r}")
    jobs = {
        "constants": [(compared, case) for case in constants.values()],
        "feasible": [(feasible, m) for m in params.list_lengths],
        "monte_carlo": [(monte_carlo, constants[params.monte_carlo_task].task, params)],
    }
    n_samples = len(params.monte_carlo_samples) * params.monte_carlo_repeats
    # Two numbers of each sample, few rows of each other job; tables' own, also of each job in
    # scratch.
    check_disk(
        tables,
        COPIES * (16 * n_samples + 1500 * (len(constants) + len(params.list_lengths)) + 10_000),
        section,
    )
    clear(tables, "*.parquet")
    found = spread_cells(jobs, label=section, unit="job")
    for name, parts in found.items():
        write_table(joined(parts, name), tables / f"{name}.parquet")


def compared(case: Constants) -> Tables:
    """The constants of both theorems for one task, beside those derived by hand."""
    task = case.task
    P_min = rarest_conflict(task.counts, task.chances, task.place, task.lists)
    flow = flow_bound(P_min, task.n_tokens, task.seq_len, task.longest)
    rarest = float(task.chances[task.chances > 0].min())
    descent = descent_bound(rarest, task.n_tokens, task.seq_len, task.longest)
    found = {
        "P_min": P_min,
        "delta": flow.delta,
        "gamma": flow.gamma,
        "c": flow.scale,
        "bound": flow.time,
        "P_set": descent.delta,
        "epsilon": descent.epsilon,
        "c_of_part_2": descent.scale,
        "earliest": descent.earliest,
        "latest": descent.latest,
    }
    rows = [
        {"constant": name, "found": value, "by_hand": getattr(case, name)}
        for name, value in found.items()
    ]
    return {"constants": pd.DataFrame(rows).assign(task=case.name)}


def feasible(length: int) -> Tables:
    """The least n at which part 2 can be met, whichever ε is chosen, for lists of that length."""
    return {
        "feasible": pd.DataFrame([{"length": length, "least_n": least_feasible_length(length)}])
    }


def monte_carlo(task: Task, params: Settings) -> Tables:
    """The relative error of the gradient in W at W = 0 from samples of the law, beside the exact
    one.
    """
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
    return {"monte_carlo": pd.DataFrame(found)}


if __name__ == "__main__":
    run(main)
