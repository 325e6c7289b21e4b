"""What a training keeps in scratch: a snapshot with a row of numbers per saved step, and its newest
checkpoints.
"""

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from lib.work.live import Curves
from lib.work.scratch import Pace, Scratch, Tensors

KEPT = 2  # checkpoints: where the newest is broken, the one before is used
Row = dict[str, Any]
Training = TypeVar("Training", bound=Hashable)


class Checkpoints:
    """The snapshots and checkpoints of one training, whose steps to save are known; its rows are
    drawn as curves.
    """

    def __init__(self, scratch: Scratch, steps: Sequence[int], curves: Curves):
        self._scratch = scratch
        self._steps = steps
        self._curves = curves
        self._pace = Pace()
        found = ((step, scratch.load(_snapshot(step))) for step in steps)
        self._rows: dict[int, Row] = {step: snapshot[1] for step, snapshot in found if snapshot}

    def complete(self) -> bool:
        """Whether every snapshot is there; then the curves are drawn again."""
        complete = list(self._rows) == list(self._steps)
        if complete:
            self._draw(self._steps[-1])
        return complete

    def save(self, step: int, tensors: Tensors, scores: Row) -> None:
        """Save the snapshot of a step, with a row of the step and its scores, numbers that are read
        here.
        """
        row = {"step": step, **{name: float(score) for name, score in scores.items()}}
        self._scratch.save(_snapshot(step), tensors, row)
        self._curves.log(row)

    def steps(self) -> list[int]:
        """The steps of the checkpoints, the newest last."""
        return [int(name.split("-")[1]) for name in self._scratch.names("checkpoint")]

    def load(self, step: int) -> dict[str, Any] | None:
        """The tensors of the checkpoint of a step; None where it, or a snapshot up to it, is not
        whole.
        """
        loaded = self._scratch.load(_checkpoint(step))
        if loaded is None or any(saved not in self._rows for saved in self._steps if saved <= step):
            return None
        print(f"resumed at step {step}: {self._scratch.folder}", file=sys.stderr, flush=True)
        self._draw(step)
        return loaded[0]

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._pace.due()

    def checkpoint(self, step: int, tensors: Tensors) -> None:
        """Save all that the training needs to go on; the newest are kept."""
        with self._pace:
            self._scratch.save(_checkpoint(step), tensors, {"step": step})
            self._drop(self._scratch.names("checkpoint")[:-KEPT])

    def end(self) -> None:
        """Remove the checkpoints: a training that has ended needs none."""
        self._drop(self._scratch.names("checkpoint"))

    def _draw(self, last: int) -> None:
        for step, row in self._rows.items():
            if step <= last:
                self._curves.log(row)

    def _drop(self, names: list[str]) -> None:
        for name in names:
            self._scratch.drop(name)


@contextmanager
def unfinished(
    trainings: Mapping[Training, tuple[Scratch, Curves]], steps: Sequence[int]
) -> Iterator[dict[Training, Checkpoints]]:
    """What those trainings keep that are not complete yet; at the end of the `with` statement they
    are.
    """
    with ExitStack() as opened:
        found = {}
        for training, (scratch, curves) in trainings.items():
            kept = Checkpoints(opened.enter_context(scratch), steps, opened.enter_context(curves))
            if not kept.complete():
                found[training] = kept
        yield found
        for kept in found.values():
            kept.end()


def newest(trainings: Sequence[Checkpoints]) -> tuple[int, list[dict[str, Any]]] | None:
    """The newest step of which every training has a whole checkpoint, and its tensors in each; None
    where none is.
    """
    steps = set.intersection(*(set(training.steps()) for training in trainings))
    for step in sorted(steps, reverse=True):
        found = [training.load(step) for training in trainings]
        if None not in found:
            return step, [tensors for tensors in found if tensors is not None]
    return None


def stacked(trainings: Mapping[int, Scratch], step: int) -> tuple[dict[str, Any], list[Row]]:
    """The snapshots of one step of several trainings, by seed: their tensors stacked, and a row per
    seed.

    Raises `OSError` where one broke since it was saved.
    """
    import torch

    found: dict[int, tuple[dict[str, Any], Row]] = {}
    for seed, training in trainings.items():
        with training as scratch:
            snapshot = scratch.load(_snapshot(step))
        if snapshot is None:
            raise OSError(f"{scratch.folder}: a snapshot broke after training; run again")
        found[seed] = snapshot
    parts = [tensors for tensors, _ in found.values()]
    rows = [{"seed": seed, **row} for seed, (_, row) in found.items()]
    return {name: torch.stack([part[name] for part in parts]) for name in parts[0]}, rows


def _checkpoint(step: int) -> str:
    return f"checkpoint-{step:09d}"


def _snapshot(step: int) -> str:
    return f"snapshot-{step:09d}"
