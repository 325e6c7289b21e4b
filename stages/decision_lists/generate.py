"""Make the tasks: lists, labels, and a law over sequences, for every group of settings and every seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.data.decision_lists import (
    Lists,
    Task,
    cyclic_lists,
    dirichlet_law,
    frequent_heads,
    log_normal_frequencies,
    multisets,
    product_law,
    random_lists,
    random_permutation,
    shared_heads_lists,
    subsets,
    zipf_frequencies,
)
from lib.io.command import run
from lib.io.compute import generator, use_threads
from lib.io.files import InputError
from lib.io.params import Interval, Name, Positive, Seed, read_params
from lib.io.tables import write_table

Size = Annotated[int, Interval("[1, 64]")]


@dataclass(frozen=True)
class Sizes:
    n_tokens: Size
    seq_len: Size


@dataclass(frozen=True)
class Law:
    """A law over sequences; `value` is the exponent of Zipf's law, the sigma of log-normal ones, the heads' ratio."""

    kind: Literal["uniform", "zipf", "log-normal", "frequent heads", "dirichlet"]
    value: Positive | None

    @property
    def name(self) -> str:
        return self.kind if self.value is None else f"{self.kind} {self.value:g}"


@dataclass(frozen=True)
class Group:
    """All combinations of these settings."""

    name: Name
    sizes: tuple[Sizes, ...]
    list_lengths: tuple[Size, ...]
    lists: tuple[Literal["cyclic", "random", "shared heads"], ...]
    n_heads: tuple[Size, ...]
    laws: tuple[Law, ...]
    repeats: bool
    seeds: tuple[Seed, ...]


@dataclass(frozen=True)
class Generate:
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        for law in (law for group in self.groups for law in group.laws):
            if (law.value is None) != (law.kind in ("uniform", "dirichlet")):
                raise ValueError(f"value: wanted one for zipf, log-normal and frequent heads alone, got {law}")


def main(section: str, tasks: Path) -> None:
    use_threads(1)
    params = read_params(section, Generate)
    try:
        made = [task for group in params.groups for task in group_tasks(group)]
    except ValueError as error:
        raise InputError(f"{section}.groups: {error}") from error
    if not made:
        raise InputError(f"{section}.groups: wanted tasks, got none")
    write_table(pd.DataFrame([task.as_row() for task in made]), tasks)
    print(f"{len(made)} tasks in {len(params.groups)} groups")


def group_tasks(group: Group) -> Iterator[Task]:
    """The tasks of a group; the number of heads matters where there are heads."""
    number = 0
    for sizes in group.sizes:
        for length in group.list_lengths:
            for kind in group.lists:
                for law in group.laws:
                    heads = kind == "shared heads" or law.kind == "frequent heads"
                    for n_heads in group.n_heads if heads else group.n_heads[:1]:
                        for seed in group.seeds:
                            yield make(group, f"{group.name}-{number:03d}", sizes, length, kind, n_heads, law, seed)
                            number += 1


def make(group: Group, name: str, sizes: Sizes, length: int, kind: str, n_heads: int, law: Law, seed: int) -> Task:
    n_tokens, seq_len = sizes.n_tokens, sizes.seq_len
    place = f"{n_tokens}, {seq_len}, {length}, {kind}, {n_heads}, {law.name}"
    draw = generator(seed, "task", place)
    counts = (multisets if group.repeats else subsets)(n_tokens, seq_len)
    lists: Lists
    if kind == "cyclic":
        lists = cyclic_lists(n_tokens, length)
    elif kind == "random":
        lists = random_lists(n_tokens, length, draw)
    else:
        lists = shared_heads_lists(n_tokens, length, n_heads, draw)
    return Task(
        name=name,
        group=group.name,
        n_tokens=n_tokens,
        seq_len=seq_len,
        repeats=group.repeats,
        lists=lists,
        permutation=random_permutation(n_tokens, draw),
        probability=tuple(probabilities(counts, law, n_heads, draw).tolist()),
        law=law.name,
    )


def probabilities(counts: Tensor, law: Law, n_heads: int, draw: torch.Generator) -> Tensor:
    """The chance of each class of sequences."""
    n_tokens, value = counts.shape[1], law.value or 1.0
    if law.kind == "dirichlet":
        return dirichlet_law(len(counts), draw)
    frequencies = {
        "uniform": lambda: torch.ones(n_tokens, dtype=torch.float64),
        "zipf": lambda: zipf_frequencies(n_tokens, value, draw),
        "log-normal": lambda: log_normal_frequencies(n_tokens, value, draw),
        "frequent heads": lambda: frequent_heads(n_tokens, n_heads, value),
    }
    return product_law(counts, frequencies[law.kind]())


if __name__ == "__main__":
    run(main)
