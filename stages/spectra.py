"""Singular values of every update of any family's runs: each matrix, each product, each saved step.

Rows: `of` says what was measured: the `initial` matrix, its `update` W(t) - W(0) (for a product,
the difference of the products), or the `gaussian` null, the product or matrix after Gaussian
updates of the same norm. Layers and heads count from 1; 0 stands where a matrix has no such axis.
"""

from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from lib.files.inputs import read_header
from lib.files.memory import COPIES as KEPT
from lib.files.memory import check_disk, check_memory, size_of
from lib.files.runs import FIRST_SNAPSHOT, Layout, Run, open_run, open_runs
from lib.files.tables import write_table
from lib.matrices.spectra import (
    Initial,
    gaussian_of_equal_norm,
    initial_factor,
    product_singular_values,
    product_update_singular_values,
    singular_values,
)
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run
from lib.work.progress import advance

NULL_SEED = 0  # of the Gaussian null: every matrix of a run has a draw of its own
# of a state in float32, measured: two of them in float64, their factors, and what decompositions
# need
COPIES = 36
TOGETHER = 10  # snapshots that share the decomposition of the initial state


def main(runs: Path, spectra: OutFile) -> None:
    use_threads(1)
    opened, what = open_runs(runs), f"singular values of {runs}"
    check_memory(what, COPIES * max(size_of(run.folder / FIRST_SNAPSHOT) for run in opened))
    check_disk(spectra, KEPT * (sum(map(written, opened)) + 10_000), what)
    jobs = [
        (measure_part, run.folder.name, run.folder, *run.snapshots[i : i + TOGETHER])
        for run in opened
        for i in range(0, len(run.snapshots), TOGETHER)
    ]
    found = spread_cells(
        {"parts": jobs},
        label=what,
        unit="snapshot",
        size=lambda name, folder, *snapshots: len(snapshots),
    )
    write_table(joined(found["parts"], "spectra"), spectra)


def written(run: Run) -> int:
    """Bytes of a run's spectra: in float64, of every matrix, and of each product twice as many as
    its factors' inner dimension, at every snapshot and of the Gaussian null; the rest of a row; and
    its tables in scratch.
    """
    shapes = {name: entry.shape for name, entry in read_header(run.folder / FIRST_SNAPSHOT).items()}
    layout, n_states = run.layout, len(run.snapshots) + 1
    sizes = [(shapes[name][:-2], min(shapes[name][-2:])) for name in layout.matrices]
    sizes += [
        (shapes[factor][:-2], 2 * shapes[factor][-1]) for factor, _ in layout.products.values()
    ]
    of_state = sum(prod(stack) * (8 * n_values + 10) for stack, n_values in sizes)
    return n_states * (of_state + 500) + 3000


def measure_part(name: str, folder: Path, *snapshots: int) -> Tables:
    """All rows of some snapshots of the run of that name; one is in memory at a time, beside the
    initial state.
    """
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
    """Each of these states; after the last of the run, it with each matrix's update replaced by a
    Gaussian.
    """
    weights = initial
    for snapshot in snapshots:
        if snapshot != run.snapshots[0]:
            weights = run.weights(snapshot)
        yield snapshot, "update" if snapshot != run.snapshots[0] else "initial", weights
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
    places = dict(
        zip(axes, np.indices(sigma.shape[:-1]).reshape(len(axes), len(flat)), strict=True)
    )
    seeds = (
        np.array(layout.seeds)[places["seed"]] if "seed" in places else next(iter(layout.seeds), 0)
    )
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
