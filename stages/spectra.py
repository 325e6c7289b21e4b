"""Singular values of every update of any family's runs: each matrix, each product, each saved step.

Rows: `of` says what was measured: the `initial` matrix, its `update` W(t) - W(0) (for a product,
the difference of the products), or the `gaussian` null, the product or matrix after Gaussian
updates of the same norm. Layers and heads count from 1; 0 stands where a matrix has no such axis.
"""

from functools import partial
from pathlib import Path

import pandas as pd

from lib.files.runs import open_run, open_runs
from lib.matrices.stacks import (
    factors_at_start,
    initial_spectrum,
    rows_of,
    update_spectrum,
    with_gaussian_updates,
)
from lib.matrices.tables import spectra_of
from lib.training.devices import generator
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run
from lib.work.progress import advance
from lib.work.schemas import schema

NULL_SEED = 0  # of the Gaussian null: every matrix of a run has a draw of its own
TOGETHER = 10  # snapshots that share the decomposition of the initial state


def main(runs: Path, spectra: OutFile) -> None:
    opened = open_runs(runs)
    jobs = [
        (measure_part, one.folder.name, one.folder, *one.snapshots[first : first + TOGETHER])
        for one in opened
        for first in range(0, len(one.snapshots), TOGETHER)
    ]
    found = spread_cells(
        {"parts": jobs},
        label=f"singular values of {runs}",
        unit="snapshot",
        size=lambda name, folder, *snapshots: len(snapshots),
    )
    cell = {name: value for one in opened for name, value in one.layout.cell.items()}
    clock = "step" if "step" in opened[0].steps else "time"
    table = schema(spectra_of(cell, clock))
    table.write(joined(found["parts"], "spectra"), spectra)


def measure_part(name: str, folder: Path, *snapshots: int) -> Tables:
    """All rows of some snapshots of a run; one is in memory at a time, beside the initial state.

    After the run's last snapshot come the rows of that state with Gaussian updates.
    """
    opened = open_run(folder)
    layout = opened.layout
    products = layout.products
    clock = "step" if "step" in opened.steps else "time"
    when = opened.steps.groupby("snapshot")[clock].first()
    initial = opened.weights(0)
    factors = factors_at_start(initial, products)
    first = opened.snapshots[0]
    last = opened.snapshots[-1]
    draw = partial(generator, NULL_SEED, name)
    found = []
    for snapshot in snapshots:
        weights = initial if snapshot == first else opened.weights(snapshot)
        states = [("initial" if snapshot == first else "update", weights)]
        if snapshot == last:
            null = with_gaussian_updates(initial, weights, list(layout.matrices), draw)
            states.append(("gaussian", null))
        for of, state in states:
            for matrix in [*layout.matrices, *products]:
                if of == "initial":
                    sigma = initial_spectrum(matrix, state, products)
                else:
                    sigma = update_spectrum(matrix, state, initial, factors, products)
                axes = layout.matrices[products[matrix][0] if matrix in products else matrix][:-2]
                labels = {**layout.cell, "matrix": matrix, "of": of, clock: when[snapshot]}
                found.append(rows_of(sigma, axes, layout.seeds, labels))
        advance()
    return {"spectra": pd.concat(found, ignore_index=True)}


if __name__ == "__main__":
    run(main)
