"""Singular values of every update of any family's runs: each matrix, each product, each saved step.

Rows: `of` says what was measured: the `initial` matrix, its `update` W(t) - W(0) (for a product,
the difference of the products), or the `gaussian` null, the product or matrix after Gaussian
updates of the same norm. Layers and heads count from 1; 0 stands where a matrix has no such axis.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from lib.files.runs import Layout, Run, open_run, open_runs
from lib.files.tables import write_table
from lib.matrices.spectra import (
    Initial,
    gaussian_of_equal_norm,
    initial_factor,
    product_singular_values,
    product_update_singular_values,
    singular_values,
)
from lib.training.devices import generator
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run
from lib.work.progress import advance

NULL_SEED = 0  # of the Gaussian null: every matrix of a run has a draw of its own
TOGETHER = 10  # snapshots that share the decomposition of the initial state


def main(runs: Path, spectra: OutFile) -> None:
    jobs = [
        (measure_part, run.folder.name, run.folder, *run.snapshots[first : first + TOGETHER])
        for run in open_runs(runs)
        for first in range(0, len(run.snapshots), TOGETHER)
    ]
    found = spread_cells(
        {"parts": jobs},
        label=f"singular values of {runs}",
        unit="snapshot",
        size=lambda name, folder, *snapshots: len(snapshots),
    )
    write_table(joined(found["parts"], "spectra"), spectra)


def measure_part(name: str, folder: Path, *snapshots: int) -> Tables:
    """All rows of some snapshots of a run; one is in memory at a time, beside the initial state."""
    run = open_run(folder)
    clock = "step" if "step" in run.steps else "time"
    when = run.steps.groupby("snapshot")[clock].first()
    initial = run.weights(0)
    factors = {
        matrix: initial_factor(initial[matrix])
        for pair in run.layout.products.values()
        for matrix in pair
    }
    tables = []
    for snapshot, of, weights in states(run, name, initial, snapshots):
        for matrix in [*run.layout.matrices, *run.layout.products]:
            sigma = spectrum(run.layout, matrix, weights, initial, factors, of)
            labels = {**run.layout.cell, "matrix": matrix, "of": of, clock: when[snapshot]}
            tables.append(describe(sigma, run.layout, matrix, labels))
        if of != "gaussian":
            advance()
    return {"spectra": pd.concat(tables, ignore_index=True)}


def states(
    run: Run, run_name: str, initial: dict[str, Tensor], snapshots: Sequence[int]
) -> Iterator[tuple[int, str, dict[str, Tensor]]]:
    """Each of these states; after the run's last, that state with Gaussian updates."""
    weights = initial
    for snapshot in snapshots:
        first = snapshot == run.snapshots[0]
        if not first:
            weights = run.weights(snapshot)
        yield snapshot, "initial" if first else "update", weights
    if snapshots[-1] != run.snapshots[-1]:
        return
    gaussian = {
        name: initial[name]
        + gaussian_of_equal_norm(
            weights[name].double() - initial[name].double(),
            generator(NULL_SEED, run_name, name),
        )
        for name in run.layout.matrices
    }
    yield run.snapshots[-1], "gaussian", gaussian


def spectrum(
    layout: Layout,
    name: str,
    weights: dict[str, Tensor],
    initial: dict[str, Tensor],
    factors: dict[str, Initial],
    of: str,
) -> Tensor:
    """Singular values of an initial matrix or product, or of what was added to it since."""
    if name in layout.products:
        a, b = layout.products[name]
        if of == "initial":
            return product_singular_values(weights[a], weights[b])
        return product_update_singular_values(weights[a], weights[b], factors[a], factors[b])
    W = weights[name].double()
    return singular_values(W if of == "initial" else W - initial[name].double())


def describe(sigma: Tensor, layout: Layout, name: str, labels: dict[str, Any]) -> pd.DataFrame:
    """One row per matrix of a stack: whose it is, and its singular values."""
    axes = layout.matrices[layout.products[name][0] if name in layout.products else name][:-2]
    flat = sigma.reshape(-1, sigma.shape[-1])
    indices = np.indices(sigma.shape[:-1]).reshape(len(axes), len(flat))
    places = dict(zip(axes, indices, strict=True))
    seeds = next(iter(layout.seeds), 0)
    if "seed" in places:
        seeds = np.array(layout.seeds)[places["seed"]]
    return pd.DataFrame(
        {
            **labels,
            "seed": seeds,
            "layer": places["layer"] + 1 if "layer" in places else 0,
            "head": places["head"] + 1 if "head" in places else 0,
            "singular_values": list(flat.numpy()),
        }
    )


if __name__ == "__main__":
    run(main)
