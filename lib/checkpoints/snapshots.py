"""Snapshots of trainings, and audits: which equal the one before, and which jump away from it."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.adapters import LISTED
from lib.checkpoints.folders import (
    INDEX,
    NUMBER,
    TUNED,
    WHOLE,
    Checkpoint,
    check_pair,
    n_matrices,
    open_checkpoint,
)
from lib.checkpoints.stored import CONFIG, WEIGHTS
from lib.checkpoints.tables.audited import AUDITED
from lib.checkpoints.tuned_adapters import is_adapter, open_adapter
from lib.checkpoints.update_spectra import squared_norm, update_of
from lib.files.files import InputError
from lib.files.inputs import read_json

STATE = "trainer_state.json"  # beside the weights that transformers' trainer wrote
JUMP = 10.0  # times the median rate of its run: so far does no neighbour of a smooth training move


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint of a training: its run, and its step (0 where its name has none)."""

    run: str
    step: int
    checkpoint: Checkpoint


def open_tuned(folder: Path, base: Checkpoint | None) -> Checkpoint:
    """Open a checkpoint that was tuned from a base, or an adapter, which wants its base."""
    return open_adapter(base, folder) if base and is_adapter(folder) else open_checkpoint(folder)


def open_snapshots(folder: Path, base: Checkpoint | None = None) -> list[Snapshot]:
    """The checkpoint or the adapter that a folder is, or all that stand in it, by run and step.

    A folder such as `large-0/checkpoint-300` is step 300 of the run `large-0`. Adapters that were
    cut beside `adapters.json` are none of them. Weights in the folder itself come after the
    snapshots in it, as a trainer leaves them. Raises `InputError` where there is none.
    """
    if any((folder / name).is_file() for name in ("config.json", CONFIG)):
        name = folder.resolve().name
        inside = sorted(
            (Snapshot(name, _step(path.name), open_tuned(path, base)) for path in _inside(folder)),
            key=lambda one: one.step,
        )
        step = _last_step(folder, inside) if inside else _step(name)
        return [*inside, Snapshot(name, step, open_tuned(folder, base))]
    made = {path.parent for path in folder.glob(f"**/{LISTED}")}
    found = sorted(
        {
            path.parent
            for name in ("config.json", CONFIG)
            for path in folder.glob(f"**/{name}")
            if not made & set(path.parents)
        }
    )
    if not found:
        raise InputError(f"{folder}: wanted a checkpoint, or a folder of them, got no config.json")
    snapshots = []
    for path in found:
        inside = path.relative_to(folder)
        numbered = re.search(r"\d+$", inside.name) and inside.name.startswith(
            ("step", "checkpoint", "snapshot")
        )
        run = inside.parent if numbered else inside
        name = folder.resolve().name if run == Path() else run.as_posix()
        step = _step(inside.name) if numbered else 0
        snapshots.append(Snapshot(name, step, open_tuned(path, base)))
    return sorted(snapshots, key=lambda one: (one.run, one.step))


def tuned_snapshots(base: Checkpoint, folder: Path) -> list[Snapshot]:
    """The snapshots of a folder that were tuned from a base; raises `InputError` for others.

    The base itself may stand among them, and is left out.
    """
    found = open_snapshots(folder, base)
    at = base.folder.resolve()
    tuned = [one for one in found if one.checkpoint.folder.resolve() != at]
    if not tuned:
        raise InputError(f"{folder}: {TUNED}, got the base itself")
    for one in tuned:
        check_pair(base, one.checkpoint)
    return tuned


def last_of_runs(base: Checkpoint, folder: Path) -> dict[str, Snapshot]:
    """The last of the snapshots of each run that were tuned from a base, by the run."""
    return {one.run: one for one in tuned_snapshots(base, folder)}


def neighbours(snapshots: Sequence[Snapshot]) -> Iterator[tuple[Snapshot, Snapshot]]:
    """Each snapshot of a run and the next one, in the order of their steps."""
    ordered = sorted(snapshots, key=lambda one: (one.run, one.step))
    for one, other in pairwise(ordered):
        if one.run == other.run:
            yield one, other


def audited(snapshots: Sequence[Snapshot]) -> pd.DataFrame:
    r"""A row for each matrix and each two neighbours: $\|W_t - W_{t-1}\|_F$, and the digest of W_t.

    Experts that are stored together are one matrix. Tensors are read one at a time. What only one
    of the two has, or has in another shape, is left out.
    """
    rows = []
    for one, other in neighbours(snapshots):
        before, after = one.checkpoint, other.checkpoint
        place = {"run": one.run, "before": one.step, "step": other.step}
        for name in _matrices(before, after):
            W, W_before = (one.load(name).flatten(0, -2) for one in (after, before))
            moved = squared_norm(update_of(W, W_before)) ** 0.5
            rows.append({**place, "tensor": name, "digest": digest(W), "moved": moved})
    return AUDITED.frame(rows)


def findings(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Neighbours that are equal in every matrix, and those that jump.

    A jump is more than ten times the median of its run, of the root of Σ moved² per step.
    """
    squares: Any = table.assign(squared=table["moved"] ** 2)
    totals: Any = squares.groupby(["run", "before", "step"], as_index=False)["squared"].sum()
    totals["moved"] = np.sqrt(totals["squared"])
    totals["rate"] = totals["moved"] / (totals["step"] - totals["before"])
    usual = totals[totals["moved"] > 0].groupby("run")["rate"].median()
    found = []
    rows: list[Any] = totals.drop(columns="squared").to_dict("records")
    for row in rows:
        times = row["rate"] / usual.get(row["run"], np.inf)
        if row["moved"] == 0 or times > JUMP:
            found.append({**row, "equal": row["moved"] == 0, "times": times})
    return found


def digest(W: torch.Tensor) -> str:
    """SHA-256 of a tensor's bytes."""
    return hashlib.sha256(W.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def _step(name: str) -> int:
    found = re.search(rf"(?:step|checkpoint|snapshot)[-_]?({NUMBER})$", name)
    return int(found[1]) if found else 0


def _inside(folder: Path) -> list[Path]:
    """The snapshots beside the weights of a folder; what holds a trainer's state alone is none."""
    names = (WHOLE, INDEX, WEIGHTS)
    return [
        path
        for path in folder.iterdir()
        if re.fullmatch(rf"(step|checkpoint|snapshot)[-_]?{NUMBER}", path.name)
        and any((path / name).is_file() for name in names)
    ]


def _last_step(folder: Path, inside: Sequence[Snapshot]) -> int:
    """The step of the weights of a folder, at least one after the last snapshot in it.

    It is the trainer's own, where its state says how many there were.
    """
    last = inside[-1]
    told = [last.step + 1]
    for place, key in ((folder, "global_step"), (last.checkpoint.folder, "max_steps")):
        with suppress(InputError):  # where there is no state, or a broken one
            state = read_json(place / STATE)
            found = state.get(key) if isinstance(state, dict) else None
            told += [found] if isinstance(found, int) else []
    return max(told)


def _matrices(one: Checkpoint, other: Checkpoint) -> list[str]:
    return [
        name
        for name, entry in one.tensors.items()
        if n_matrices(name, entry.shape)
        and name in other.tensors
        and other.tensors[name].shape == entry.shape
    ]
