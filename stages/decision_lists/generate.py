"""Make the tasks: lists, labels, and a law over sequences, for every group of settings and every
seed.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, get_args

import pandas as pd

from lib.decision_lists.lists import (
    Law,
    Lists,
    Task,
    cyclic_lists,
    multisets,
    own_lists,
    random_lists,
    random_permutation,
    shared_heads_lists,
    subsets,
)
from lib.files.files import InputError
from lib.files.memory import COPIES, check_disk, check_memory
from lib.files.params import Interval, Name, Seeds, read_cases
from lib.files.tables import write_table
from lib.training.devices import generator, use_threads
from lib.work.command import OutFile, run

Size = Annotated[int, Interval("[1, 64]")]
KINDS, OWN = ("cyclic", "random", "shared heads"), "own "
ForFlow = Literal["theorem", "bound", "gamma", "repeats"]
ForScales = Literal["law", "spectral"]
ForDescent = Literal["alone", "both"]
ForTraining = Literal["joint", "starts", "alignment", "controls"]
Use = Literal[ForFlow, ForScales, ForDescent, ForTraining]
NEEDED = ("spectral", "joint")  # their runs are opened by stages that want some


@dataclass(frozen=True)
class Group(Seeds):
    """Tasks of one size: all combinations of these settings. A group goes on in the lines that have
    its name.
    """

    group: Name
    use: Use
    n_tokens: Size
    seq_len: Size
    repeats: bool
    list_lengths: tuple[Size, ...]
    lists: tuple[str, ...]
    n_heads: tuple[Size, ...]
    laws: tuple[str, ...]

    def __post_init__(self) -> None:
        for kind in self.lists:
            if kind not in KINDS and not kind.startswith(OWN):
                raise ValueError(
                    f"lists: wanted {', '.join(KINDS)}, or such as own 1 0 / 1, got {kind!r}"
                )
        for law in self.laws:
            try:
                Law.named(law)
            except ValueError as error:
                raise ValueError(f"laws: {error}") from error

    @property
    def n_classes(self) -> int:
        return math.comb(self.n_tokens + (self.seq_len - 1 if self.repeats else 0), self.seq_len)

    @property
    def n_tasks(self) -> int:
        return (
            len(self.list_lengths)
            * len(self.lists)
            * len(self.laws)
            * len(self.n_heads)
            * self.n_seeds
        )

    @property
    def memory(self) -> int:
        """Bytes: the sequences of the law, as counts and as texts on the way to a table, and every
        task's law.
        """
        of_classes = self.n_classes * (
            56 + 16 * self.seq_len + 32 * self.n_tokens + 64 * self.n_tasks
        )
        return of_classes + self.n_tasks * 500

    @property
    def disk(self) -> int:
        """Bytes: of every task its law, its lists, which may be own ones, its labels and names."""
        return (
            8
            * self.n_tasks
            * (self.n_classes + self.n_tokens * (1 + max(self.longest, default=0)) + 100)
        )

    @property
    def longest(self) -> list[int]:
        """The lengths that lists have at most."""
        return [self.n_tokens for kind in self.lists if kind.startswith(OWN)] + [*self.list_lengths]

    def tasks(self) -> Iterator[Task]:
        """The tasks, each with its group's name; the number of heads matters where there are
        heads.
        """
        for length, kind, law in product(self.list_lengths, self.lists, map(Law.named, self.laws)):
            if kind.startswith(OWN) and length != self.list_lengths[0]:
                continue  # own lists are as long as they are
            heads = kind == "shared heads" or law.kind == "frequent heads"
            for n_heads, seed in product(self.n_heads if heads else self.n_heads[:1], self.seeds):
                yield self.task(length, kind, law, n_heads, seed)

    def task(self, length: int, kind: str, law: Law, n_heads: int, seed: int) -> Task:
        n_tokens, seq_len = self.n_tokens, self.seq_len
        draw = generator(
            seed, "task", f"{n_tokens}, {seq_len}, {length}, {kind}, {n_heads}, {law.name}"
        )
        counts = (multisets if self.repeats else subsets)(n_tokens, seq_len)
        lists: Lists
        if kind == "cyclic":
            lists = cyclic_lists(n_tokens, length)
        elif kind == "random":
            lists = random_lists(n_tokens, length, draw)
        elif kind == "shared heads":
            lists = shared_heads_lists(n_tokens, length, n_heads, draw)
        else:
            lists = own_lists(kind.removeprefix(OWN), n_tokens)
        permutation = random_permutation(n_tokens, draw)
        probability = tuple(law.probabilities(counts, n_heads, draw).tolist())
        return Task(
            self.group,
            self.group,
            n_tokens,
            seq_len,
            self.repeats,
            lists,
            permutation,
            probability,
            law.label,
            self.use,
        )


def main(groups: Path, flow: OutFile, scales: OutFile, descend: OutFile, train: OutFile) -> None:
    use_threads(1)
    listed = read_cases(groups, Group)
    missing = sorted(set(NEEDED) - {group.use for group in listed})
    if missing:
        raise InputError(
            f"{groups}: wanted a group for each of {list(NEEDED)}, got none for {missing}"
        )
    check_memory(str(groups), sum(group.memory for group in listed))
    check_disk(
        flow, COPIES * (40_000 + sum(group.disk for group in listed)), str(groups)
    )  # and the tables' own
    made: list[Task] = []
    for group in listed:
        try:
            made += group.tasks()
        except ValueError as error:
            raise InputError(f"{groups}: {group.group}: {error}") from error
    numbers: Counter[str] = Counter()
    rows = []
    for task in made:
        rows.append(task.as_row() | {"name": f"{task.group}-{numbers[task.group]:03d}"})
        numbers[task.group] += 1
    columns = list(made[0].as_row())
    # A file for the stages that read it: a change of one group leaves what the others are for as it
    # is.
    for file, uses in (
        (flow, ForFlow),
        (scales, ForScales),
        (descend, ForDescent),
        (train, ForTraining),
    ):
        write_table(
            pd.DataFrame([row for row in rows if row["use"] in get_args(uses)], columns=columns),
            file,
        )
    print(f"{len(made)} tasks in {len(numbers)} groups")


if __name__ == "__main__":
    run(main)
