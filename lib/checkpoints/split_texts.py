"""A text in three parts: by one losses are attributed, one is measured, and one chooses a rule."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from lib.checkpoints.folders import Checkpoint
from lib.checkpoints.texts import Batch, read_batches
from lib.files.params import Count, Interval


@dataclass(frozen=True)
class Measure:
    """The budgets of plans, each a uniform rank, and the batches of a text that measure them."""

    budgets: tuple[Annotated[int, Interval("[1, 65536]")], ...]
    n_batches: Count
    n_measured_batches: Count
    n_choosing_batches: Count
    batch_size: Count
    seq_len: Annotated[int, Interval("[2, 1e6]")]
    n_labels: Annotated[int, Interval("[0, 1e9]")] = 0

    @property
    def n_labels_a_batch(self) -> int:
        """The number of labels in a batch, if the text has as many."""
        return -(-self.n_labels // self.n_measured_batches)


class Split(NamedTuple):
    """The batches of a text, no sample in two of its parts."""

    attributing: list[Batch]
    measured: list[Batch]
    choosing: list[Batch]

    @property
    def batches(self) -> list[Batch]:
        """All of them."""
        return [*self.attributing, *self.measured, *self.choosing]


def split_text(
    base: Checkpoint, tuned: Checkpoint, text: Path, sizes: Measure, device: str = "cpu"
) -> Split:
    """The parts of a text in the tokens of a base, and in the samples of what was tuned from it."""
    n_others = sizes.n_batches + sizes.n_measured_batches
    batches = read_batches(
        base.folder,
        base.config | {"architectures": tuned.config.get("architectures")},
        text,
        sizes.seq_len,
        sizes.batch_size,
        n_others + sizes.n_choosing_batches,
        device,
        n_labels=sizes.n_labels_a_batch,
    )
    measured = batches[sizes.n_batches : n_others]
    return Split(batches[: sizes.n_batches], measured, batches[n_others:])
