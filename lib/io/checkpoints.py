"""What a training keeps in scratch: a snapshot with a row of numbers per saved step, and its newest checkpoints."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lib.io.live import Curves
from lib.io.scratch import Pace, Scratch, Tensors

KEPT = 2  # checkpoints: where the newest is broken, the one before is used
Row = dict[str, Any]


class Checkpoints:
    """The snapshots and checkpoints of one training, whose steps to save are known; its rows are drawn as curves."""

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
        """Save the snapshot of a step, with a row of the step and its scores."""
        row = {"step": step, **scores}
        self._scratch.save(_snapshot(step), tensors, row)
        self._curves.log(row)

    def newest(self) -> tuple[int, dict[str, Any]] | None:
        """Step and tensors of the newest whole checkpoint all of whose earlier snapshots are whole, or None."""
        for name in reversed(self._scratch.names("checkpoint")):
            loaded = self._scratch.load(name)
            if loaded is None:
                continue
            tensors, note = loaded
            if all(step in self._rows for step in self._steps if step <= note["step"]):
                print(f"resumed at step {note['step']}: {self._scratch.folder}", file=sys.stderr, flush=True)
                self._draw(note["step"])
                return note["step"], tensors
        return None

    def checkpoint(self, step: int, tensors: Tensors) -> None:
        """Where it is time, save all that the training needs to go on; the newest are kept."""
        if not self._pace.due():
            return
        with self._pace:
            self._scratch.save(f"checkpoint-{step:09d}", tensors, {"step": step})
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


def stacked(trainings: Mapping[int, Scratch], step: int) -> tuple[dict[str, Any], list[Row]]:
    """The snapshots of one step of several trainings, by seed: their tensors stacked, and a row per seed.

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


def _snapshot(step: int) -> str:
    return f"snapshot-{step:09d}"
