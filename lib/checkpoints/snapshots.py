"""Audits of snapshots: which are equal to the one before, and which jump away from it."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch

from lib.checkpoints.folders import Checkpoint, Snapshot
from lib.checkpoints.update_spectra import squared_norm, update_of

JUMP = 10.0  # times the median rate of its run: so far does no neighbour of a smooth training move
COLUMNS = {"run": str, "before": int, "step": int, "tensor": str, "digest": str, "moved": float}


def neighbours(snapshots: Sequence[Snapshot]) -> Iterator[tuple[Snapshot, Snapshot]]:
    """Each snapshot of a run and the next one, in the order of their steps."""
    ordered = sorted(snapshots, key=lambda one: (one.run, one.step))
    for one, other in pairwise(ordered):
        if one.run == other.run:
            yield one, other


def audited(snapshots: Sequence[Snapshot]) -> pd.DataFrame:
    r"""A row for each matrix and each two neighbours: $\|W_t - W_{t-1}\|_F$, and the digest of W_t.

    Tensors are read one at a time. What only one of the two has, or has in another shape, is left
    out.
    """
    rows = []
    for one, other in neighbours(snapshots):
        before, after = one.checkpoint, other.checkpoint
        place = {"run": one.run, "before": one.step, "step": other.step}
        for name in _matrices(before, after):
            W = after.load(name)
            moved = squared_norm(update_of(W, before.load(name))) ** 0.5
            rows.append({**place, "tensor": name, "digest": digest(W), "moved": moved})
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


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


def _matrices(one: Checkpoint, other: Checkpoint) -> list[str]:
    return [
        name
        for name, entry in one.tensors.items()
        if len(entry.shape) == 2
        and name in other.tensors
        and other.tensors[name].shape == entry.shape
    ]
