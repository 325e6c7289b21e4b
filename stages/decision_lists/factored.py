r"""Train W_K and W_Q apart, from small random starts at V = cP, and note when directions of W rise.

Beside them stand W itself, from the same starts, and the same lists of other tokens.
"""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd

from lib.decision_lists.keys_and_queries import (
    Factored,
    StackedLoss,
    Staircase,
    Until,
    Weights,
    Whole,
    outcome,
    permuted,
    spectral_norm,
    staircases,
)
from lib.decision_lists.lists import Law, Task
from lib.decision_lists.tables.factored import FOLDER
from lib.files.files import InputError
from lib.files.params import Interval, Name, Positive, Seeds, read_cases
from lib.training.devices import use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there

Size = Annotated[int, Interval("[2, 20]")]
Scale = Annotated[float, Interval("[-100, 0)")]
RISEN = 0.05  # the singular value of a direction of W that has risen
LOOK_EVERY = 10  # steps from one look to the next
MAX_STEPS = 40_000
Kind = Literal["factored", "whole", "permuted"]


@dataclass(frozen=True)
class Case(Seeds):
    """Lists and a law, how W_K and W_Q descend at V = `scale` · P, and how far from which scales.

    The seeds are those of the starts.
    """

    group: Name
    n_tokens: Size
    seq_len: Size
    list_length: Size
    lists: Literal["shared heads", "random", "cyclic"]
    n_heads: Annotated[int, Interval("[0, 20]")]
    law: str
    scale: Positive
    learning_rate: Positive
    log10_init_scales: tuple[Scale, ...]
    staircase_scales: tuple[Scale, ...]
    until: Literal["right", "next rise"]

    def __post_init__(self) -> None:
        known = set(self.log10_init_scales)
        if not self.staircase_scales or not known.issuperset(self.staircase_scales):
            wanted = f"wanted some of {list(self.log10_init_scales)}"
            raise ValueError(f"staircase_scales: {wanted}, got {list(self.staircase_scales)}")
        try:
            Law.named(self.law)
        except ValueError as error:
            raise ValueError(f"law: {error}") from error

    @property
    def n_large(self) -> int:
        """How many directions are expected to be large when every sequence is right."""
        return max(1, self.n_heads - 1)

    @property
    def shared(self) -> bool:
        """Whether some head is in the lists of several other tokens."""
        return self.n_tokens > 2 * self.n_heads

    def task(self, number: int) -> Task:
        """The task, the `number`th."""
        task = Task.of_setting(
            group=self.group,
            n_tokens=self.n_tokens,
            seq_len=self.seq_len,
            length=self.list_length,
            kind=self.lists,
            n_heads=self.n_heads,
            law=Law.named(self.law),
            seed=0,
        )
        return replace(task, name=f"{self.group}-{number:03d}")


def main(cases: Path, descents: OutFolder) -> None:
    use_threads(1)
    jobs = []
    for number, case in enumerate(read_cases(cases, Case)):
        try:
            task = case.task(number)
        except ValueError as error:
            raise InputError(f"{cases}: case {number + 1}: {error}") from error
        kinds = ("factored", "whole", "permuted") if case.n_heads else ("factored",)
        jobs += [(descend, case, task, of) for of in kinds]
    found = spread_cells({"factored": jobs}, label="W_K and W_Q", unit="descent")
    write_tables_there(FOLDER, found, descents)


def descend(case: Case, task: Task, of: Kind) -> Tables:
    """A descent for every seed and scale: on W_K and W_Q, on W itself, or with permuted lists."""
    if of == "permuted":
        task = permuted(task, case.n_heads)
    loss = StackedLoss(task, case.scale)
    starts = list(product(case.seeds, case.log10_init_scales))
    seeds = [seed for seed, _ in starts]
    scales = [10**log10_scale for _, log10_scale in starts]
    weights: Weights = Factored.gaussian(task.n_tokens, seeds, scales)
    G = loss.ascent(np.zeros_like(weights.W))
    if of == "whole":
        weights = Whole(weights.W)
    untils: list[Until] = [
        case.until if scale in case.staircase_scales else "first rise" for _, scale in starts
    ]
    found = staircases(
        loss,
        weights,
        [Staircase(case.n_large, RISEN, until) for until in untils],
        case.learning_rate,
        LOOK_EVERY,
        MAX_STEPS,
    )
    about = task.about() | {"of": of, "length": task.longest}
    about |= {"n_heads": case.n_heads, "n_large": case.n_large, "shared": case.shared}
    about |= {"sigma_1": spectral_norm(G[0]), "learning_rate": case.learning_rate}
    rows = []
    for (seed, scale), one in zip(starts, found, strict=True):
        rows.append({**about, "seed": seed, "log10_init_scale": scale, **outcome(loss, one)})
    tables = {"factored": pd.DataFrame(rows)}
    drawn = case.first_seed, min(case.staircase_scales)
    if of == "factored":
        one = found[starts.index(drawn)]
        course = {"time": one.times, "singular_values": one.singular_values}
        about = {"task": task.name, "log10_init_scale": drawn[1]}
        tables["staircases"] = pd.DataFrame(course).assign(**about)
    return tables


if __name__ == "__main__":
    run(main)
