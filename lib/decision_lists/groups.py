"""Groups of tasks, each a line of a table: settings whose combinations are all made."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from lib.decision_lists.lists import KINDS, OWN, Law, Task, n_classes_of
from lib.files.files import InputError
from lib.files.params import Interval, Name, Seeds

Size = Annotated[int, Interval("[1, 64]")]
ForFlow = Literal["theorem", "bound", "gamma", "repeats"]
ForScales = Literal["law", "spectral"]
ForDescent = Literal["alone", "both", "general"]
ForTraining = Literal["joint", "starts", "alignment", "controls"]
MOST_CLASSES = 1_000_000  # classes of sequences, as the loss is a sum over all


@dataclass(frozen=True)
class Group(Seeds):
    """Tasks of one size, for all combinations of the settings.

    A group goes on in the lines that have its name.
    """

    group: Name
    use: Literal[ForFlow, ForScales, ForDescent, ForTraining]
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
        n_classes = n_classes_of(self.n_tokens, self.seq_len, self.repeats)
        if n_classes > MOST_CLASSES:
            raise ValueError(
                f"seq_len: wanted at most {MOST_CLASSES} sets of as many tokens, got {n_classes}"
            )

    def tasks(self) -> Iterator[Task]:
        """The tasks, each with its group's name; there are several n_heads only where heads are."""
        for length, kind, law in product(self.list_lengths, self.lists, map(Law.named, self.laws)):
            if kind.startswith(OWN) and length != self.list_lengths[0]:
                continue  # own lists have a length of their own
            heads = kind == "shared heads" or law.kind == "frequent heads"
            for n_heads, seed in product(self.n_heads if heads else self.n_heads[:1], self.seeds):
                yield Task.of_setting(
                    group=self.group,
                    n_tokens=self.n_tokens,
                    seq_len=self.seq_len,
                    length=length,
                    kind=kind,
                    n_heads=n_heads,
                    law=law,
                    seed=seed,
                    repeats=self.repeats,
                    use=self.use,
                )


def numbered_tasks(groups: Sequence[Group], file: Path) -> list[Task]:
    """The tasks of all groups, with a number after the group's name."""
    tasks: list[Task] = []
    numbers: Counter[str] = Counter()
    for group in groups:
        try:
            made = list(group.tasks())
        except ValueError as error:
            raise InputError(f"{file}: {group.group}: {error}") from error
        for task in made:
            tasks.append(replace(task, name=f"{task.group}-{numbers[task.group]:03d}"))
            numbers[task.group] += 1
    return tasks
