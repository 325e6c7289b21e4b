"""Make the tasks: lists, labels and a law over sequences, for every group of settings and seed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, get_args

from lib.decision_lists.lists import KINDS, OWN, Law, Task, n_classes_of
from lib.decision_lists.tables.tasks import TASKS
from lib.files.files import InputError
from lib.files.params import Interval, Name, Seeds, read_cases
from lib.training.devices import use_threads
from lib.work.command import OutFile, run

Size = Annotated[int, Interval("[1, 64]")]
ForFlow = Literal["theorem", "bound", "gamma", "repeats"]
ForScales = Literal["law", "spectral"]
ForDescent = Literal["alone", "both", "general"]
ForTraining = Literal["joint", "starts", "alignment", "controls"]
NEEDED = ("spectral", "joint")  # uses whose runs are opened by stages that want some
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


def main(groups: Path, flow: OutFile, scales: OutFile, descend: OutFile, train: OutFile) -> None:
    use_threads(1)
    listed = read_cases(groups, Group)
    missing = sorted(set(NEEDED) - {group.use for group in listed})
    if missing:
        raise InputError(
            f"{groups}: wanted a group for each of {list(NEEDED)}, got none for {missing}"
        )
    tasks = numbered_tasks(listed, groups)
    # Each stage has a file of its own, so that a change of one group leaves the other files as they
    # are.
    write_tasks(tasks, get_args(ForFlow), flow)
    write_tasks(tasks, get_args(ForScales), scales)
    write_tasks(tasks, get_args(ForDescent), descend)
    write_tasks(tasks, get_args(ForTraining), train)
    print(f"{len(tasks)} tasks in {len({task.group for task in tasks})} groups")


def numbered_tasks(groups: tuple[Group, ...], file: Path) -> list[Task]:
    """The tasks of all groups, with a number behind the group's name."""
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


def write_tasks(tasks: list[Task], uses: tuple[str, ...], file: Path) -> None:
    """Write the tasks with one of these uses."""
    rows = [asdict(task) for task in tasks if task.use in uses]
    TASKS.write(TASKS.frame(rows), file)


if __name__ == "__main__":
    run(main)
