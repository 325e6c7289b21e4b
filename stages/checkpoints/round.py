"""What storing in bfloat16 does to the spectrum of an update: the same weights, as they are and
rounded.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from lib.checkpoints.folders import check_pair, layer_of, open_checkpoint, open_snapshots
from lib.checkpoints.update_spectra import rounding_edge, update_of
from lib.files.memory import COPIES, check_disk
from lib.files.tables import write_table
from lib.matrices.ranks import summaries
from lib.matrices.spectra import singular_values
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run

RTOL = 1e-3  # of a summary that is not used here


def main(base: Path, tuned: Path, rounding: OutFile) -> None:
    check_disk(rounding, room(base, tuned), "rounding")
    jobs = [
        (rounded, base, one.checkpoint.folder, one.run, one.step) for one in open_snapshots(tuned)
    ]
    found = spread_cells({"snapshots": jobs}, label=f"rounding of {tuned}", unit="snapshot")
    write_table(joined(found["snapshots"], "rounding"), rounding)


def room(base: Path, tuned: Path) -> int:
    """The bytes on disk of the table, by headers alone: seven numbers and a name a matrix, and
    tables' own.
    """
    begun, snapshots = open_checkpoint(base), open_snapshots(tuned)
    n_rows = sum(len(check_pair(begun, one.checkpoint)) for one in snapshots)
    return COPIES * (200 * n_rows + 10_000 * (1 + len(snapshots)))


def rounded(base: Path, tuned: Path, name: str, step: int) -> Tables:
    """A row for each matrix of a layer: ranks of its update, of that of the rounded weights, and
    the noise between.
    """
    return {"rounding": pd.DataFrame(rows(base, tuned)).assign(run=name, step=step)}


def rows(base: Path, tuned: Path) -> Iterator[dict[str, Any]]:
    begun, ended = open_checkpoint(base), open_checkpoint(tuned)
    for name in check_pair(begun, ended):
        W_0, W = begun.load(name), ended.load(name)
        if W.dim() != 2 or layer_of(name) == 0:
            continue
        exact, stored = update_of(W, W_0), update_of(W.bfloat16(), W_0.bfloat16())
        edge = rounding_edge(W.bfloat16(), W_0.bfloat16())
        sigma, sigma_stored = singular_values(exact), singular_values(stored)
        ranks = [
            int(summaries([values.numpy()], RTOL)["rank_90"][0]) for values in (sigma, sigma_stored)
        ]
        yield {
            "module": name,
            "relative_update": float(exact.norm() / W_0.double().norm()),
            "rank_90": ranks[0],
            "rank_90_stored": ranks[1],
            "above_edge": int((sigma > edge).sum()),
            "above_edge_stored": int((sigma_stored > edge).sum()),
            "noise_over_edge": float(torch.linalg.matrix_norm(stored - exact, 2) / edge),
        }


if __name__ == "__main__":
    run(main)
