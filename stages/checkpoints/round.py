"""What storing in bfloat16 does to the spectrum of an update: as it is and as stored."""

from pathlib import Path

import pandas as pd

from lib.checkpoints.rounding import rounding_rows
from lib.checkpoints.snapshots import open_snapshots
from lib.checkpoints.tables.decomposed import ROUNDING
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run


def main(base: Path, tuned: Path, rounding: OutFile) -> None:
    jobs = [
        (rounded, base, one.checkpoint.folder, one.run, one.step) for one in open_snapshots(tuned)
    ]
    found = spread_cells({"": jobs}, label=f"rounding of {tuned}", unit="snapshot")[""]
    ROUNDING.write(joined(found, "rounding"), rounding)


def rounded(base: Path, tuned: Path, name: str, step: int) -> Tables:
    """A row for each matrix of a layer."""
    return {"rounding": pd.DataFrame(rounding_rows(base, tuned)).assign(run=name, step=step)}


if __name__ == "__main__":
    run(main)
