"""The constants of the theorems beside those by hand, the least n, and gradients from samples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import torch
from torch import Tensor

from lib.decision_lists.attention import Rows, loss_gradients
from lib.decision_lists.bounds import descent_bound_of, flow_bound_of, least_feasible_length
from lib.decision_lists.lists import Law, Task, own_lists, subsets
from lib.files.files import InputError
from lib.files.params import Interval, Positive, Seed, read_cases, read_params
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, spread_cells, write_tables
from lib.work.command import OutFolder, run

Size = Annotated[int, Interval("[2, 16]")]


@dataclass(frozen=True)
class Constants:
    """A small task, and the constants of both theorems as derived by hand."""

    name: str
    n_tokens: Size
    seq_len: Size
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
        lists = own_lists(self.lists, self.n_tokens)
        law = Law.named(self.law)
        chances = law.probabilities(subsets(self.n_tokens, self.seq_len), 1, generator(0, "none"))
        return Task(
            name=self.name,
            group="constants",
            n_tokens=self.n_tokens,
            seq_len=self.seq_len,
            repeats=False,
            lists=lists,
            permutation=tuple(range(self.n_tokens)),
            probability=tuple(chances.tolist()),
            law=law.label,
        )


@dataclass(frozen=True)
class Settings:
    """The lists' lengths whose least n is sought; the samples, and the task, of gradients."""

    seed: Seed
    list_lengths: tuple[Annotated[int, Interval("[1, 16]")], ...]
    monte_carlo_samples: tuple[Annotated[int, Interval("[1, 1e8]")], ...]
    monte_carlo_repeats: Annotated[int, Interval("[1, 100000]")]
    monte_carlo_task: str


def main(section: str, by_hand: Path, tables: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Settings)
    constants = {case.name: case for case in read_cases(by_hand, Constants)}
    if params.monte_carlo_task not in constants:
        wanted = f"wanted one of {sorted(constants)}, the tasks of {by_hand}"
        raise InputError(f"{section}.monte_carlo_task: {wanted}, got {params.monte_carlo_task!r}")
    jobs = {
        "constants": [(compared, case) for case in constants.values()],
        "feasible": [(feasible, m) for m in params.list_lengths],
        "monte_carlo": [(monte_carlo, constants[params.monte_carlo_task].task, params)],
    }
    write_tables(tables, spread_cells(jobs, label=section, unit="job"))


def compared(case: Constants) -> Tables:
    """The constants of both theorems for one task, beside those derived by hand."""
    flow = flow_bound_of(case.task)
    descent = descent_bound_of(case.task)
    found = {
        "P_min": flow.P_min,
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
        {"constant": name, "found": value, "by_hand": getattr(case, name), "task": case.name}
        for name, value in found.items()
    ]
    return {"constants": pd.DataFrame(rows)}


def feasible(length: int) -> Tables:
    """The least n at which part 2 can be met, whichever ε is chosen, for lists of that length."""
    row = {"length": length, "least_n": least_feasible_length(length)}
    return {"feasible": pd.DataFrame([row])}


def monte_carlo(task: Task, params: Settings) -> Tables:
    """The relative error of the gradient in W at W = 0 from samples of the law."""
    W = torch.zeros(task.n_tokens, task.n_tokens, dtype=torch.float64)
    V = 10 * task.label_matrix

    def gradient(chances: Tensor) -> Tensor:
        rows = Rows.of(task.counts, chances, task.star, task.place)
        return loss_gradients(W, V, rows, task.labels)[1]

    exact = gradient(task.chances)
    found = []
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
