"""Spectra of what a training added to every matrix of a checkpoint, and to the products of every
attention head.

Weights are read shard by shard, a layer at a time; a layer that an earlier call has measured is not
measured again. Rows of matrices are of the `update` W - W_0; rows of products (`W_KQ` at each
offset of rotary positions, `W_VO`) of the product at the base (`initial`, beside each run's first
step alone) and of its `update`. Layers and heads count from 1; 0 stands where there is none.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.checkpoints.folders import (
    Checkpoint,
    check_pair,
    layer_of,
    load_tensor,
    open_checkpoint,
    open_snapshots,
)
from lib.checkpoints.heads import attention_tensors, heads, rotation
from lib.checkpoints.update_spectra import (
    chosen_method,
    rounding_edge,
    squared_norm,
    update_of,
    update_singular_values,
)
from lib.files.files import InputError
from lib.files.memory import COPIES, check_disk
from lib.files.params import Interval, read_params
from lib.files.tables import write_table
from lib.matrices.ranks import summaries
from lib.matrices.spectra import initial_factor, product_singular_values
from lib.matrices.spectra import product_update_singular_values as product_update
from lib.training.devices import generator
from lib.work.cells import joined, spread_cells
from lib.work.command import OutFile, run

SEED = 0  # of randomised ranges: every matrix has a draw of its own
RTOL = 1e-3  # of the numerical rank
NUMBERS = (
    "norm",
    "stable_rank",
    "effective_rank",
    "numerical_rank",
    "rank_90",
    "rank_95",
    "rank_99",
)


@dataclass(frozen=True)
class Spectra:
    method: Literal["auto", "full", "gram", "randomised"]
    rank: Annotated[int, Interval("[1, 65536]")]
    rotary_offsets: tuple[Annotated[int, Interval("[0, 1e7]")], ...]


def main(section: str, base: Path, snapshots: Path, spectra: OutFile) -> None:
    jobs, n_bytes = prepared(section, base, snapshots)
    check_disk(spectra, n_bytes, section)
    measure(jobs, snapshots, spectra)


def prepared(section: str, base: Path, snapshots: Path) -> tuple[list[tuple[Any, ...]], int]:
    """What is to be measured, layer by layer, by the headers alone, and the bytes on disk that it
    takes.
    """
    params = read_params(section, Spectra)
    begun = open_checkpoint(base)
    jobs: list[tuple[Any, ...]] = []
    first: dict[str, int] = {}
    for one in open_snapshots(snapshots):
        if one.checkpoint.folder.resolve() == begun.folder.resolve():
            continue
        rows = check_pair(begun, one.checkpoint)
        first.setdefault(one.run, one.step)
        initial = one.step == first[one.run]
        jobs += [
            (measure_layer, params, one.run, one.step, layer, initial, *described)
            for layer, *described in layers(begun, one.checkpoint, rows)
        ]
    if not jobs:
        raise InputError(
            f"{snapshots}: wanted a checkpoint tuned from the base, got the base itself"
        )
    return jobs, COPIES * sum(written(begun, len(params.rotary_offsets), *job[6:8]) for job in jobs)


def measure(jobs: list[tuple[Any, ...]], snapshots: Path, spectra: Path) -> None:
    """Measure, and write the table."""
    cells = spread_cells(
        {"layers": jobs},
        label=f"spectra of {snapshots}",
        unit="layer",
    )["layers"]
    table = joined(cells, "spectra")
    if not (table[table["of"] == "update"]["norm"] > 0).any():
        raise InputError(
            f"{snapshots}: wanted weights that differ from the base's, got none that does"
        )
    write_table(table, spectra)


def written(
    base: Checkpoint, n_offsets: int, matrices: Sequence[str], parts: dict[str, str]
) -> int:
    """Bytes of the rows of one layer, a quarter of which are singular values: of matrices, and of
    heads' products.
    """
    of_matrices = sum(min(base.tensors[name].shape) for name in matrices)
    of_heads = (
        3
        * (1 + n_offsets)
        * max((max(base.tensors[name].shape) for name in parts.values()), default=0)
    )
    return 4 * 8 * (of_matrices + of_heads) + 12_000


def layers(base: Checkpoint, tuned: Checkpoint, rows: dict[str, int]) -> Iterator[tuple[Any, ...]]:
    """For each layer: the matrices in it, the tensors of its heads, the config, and the files that
    hold them all.
    """
    matrices = [name for name in rows if len(base.tensors[name].shape) == 2]
    attention = attention_tensors(base.config, rows)
    config = json.dumps(base.config, sort_keys=True)
    for layer in sorted({layer_of(name) for name in matrices}):
        inside = [name for name in matrices if layer_of(name) == layer]
        parts = attention.get(layer, {})
        names = sorted({*inside, *parts.values()})
        files = sorted({one.tensors[name].file for one in (base, tuned) for name in names})
        places = {
            name: [
                files.index(base.tensors[name].file),
                files.index(tuned.tensors[name].file),
                rows[name],
            ]
            for name in names
        }
        yield (layer, inside, parts, places, config, *files)


def measure_layer(
    params: Spectra,
    run_name: str,
    step: int,
    layer: int,
    initial: bool,
    matrices: Sequence[str],
    parts: dict[str, str],
    places: dict[str, list[int]],
    config: str,
    *files: Path,
) -> dict[str, pd.DataFrame]:
    """The rows of one layer of one snapshot: its matrices one by one, then its heads."""

    def loader(which: int) -> Callable[[str], Tensor]:
        return lambda name: load_tensor(files[places[name][which]], name)[: places[name][2]]

    labels = {"run": run_name, "step": step, "layer": layer}
    found = [
        {**labels, **matrix_row(params, name, loader(0)(name), loader(1)(name))}
        for name in matrices
    ]
    if parts:
        found += [
            {**labels, **row}
            for row in head_rows(params, json.loads(config), parts, loader, initial)
        ]
    return {"spectra": pd.DataFrame(found)}


def matrix_row(params: Spectra, name: str, W_0: Tensor, W: Tensor) -> dict[str, Any]:
    """What is said of a matrix's update."""
    method = chosen_method((W.shape[0], W.shape[1]), params.method)
    update = update_of(W, W_0)
    source = generator(SEED, name)
    sigma = update_singular_values(update, method, params.rank, source).numpy()
    total, edge = squared_norm(update), rounding_edge(W_0, W)
    complete = len(sigma) == min(W.shape)
    return {
        "module": name,
        "head": 0,
        "offset": 0,
        "of": "update",
        "rows": W.shape[0],
        "cols": W.shape[1],
        **numbers(sigma, total, RTOL, complete),
        "base_norm": squared_norm(W_0) ** 0.5,
        "tail": 0.0 if complete else max(total - float(np.square(sigma).sum()), 0.0),
        "edge": edge,
        "rank_above_edge": int((sigma > edge).sum()),
        "method": method,
        "singular_values": sigma,
    }


def head_rows(
    params: Spectra,
    config: dict[str, Any],
    parts: dict[str, str],
    loader: Callable[[int], Callable[[str], Tensor]],
    initial: bool,
) -> Iterator[dict[str, Any]]:
    """The products of every head, at each offset of rotary positions: at the base, and what
    training added.
    """
    begun, ended = (heads(config, parts, loader(which), fold_norms=True) for which in (0, 1))
    turns = {offset: rotation(config, offset) for offset in (*params.rotary_offsets,)}
    factors = {
        ("W_KQ", offset): [(one.W_Q @ R, one.W_K) for one in (begun, ended)]
        for offset, R in turns.items()
        if R is not None and (offset == 0 or not torch.equal(R, torch.eye(len(R)).double()))
    }
    factors["W_VO", 0] = [(one.W_V, one.W_O) for one in (begun, ended)]
    for (product, offset), ((A_0, B_0), (A, B)) in factors.items():
        spectra = {"update": product_update(A, B, initial_factor(A_0), initial_factor(B_0))}
        if initial:
            spectra = {"initial": product_singular_values(A_0, B_0), **spectra}
        for of, sigma in spectra.items():
            for head, values in enumerate(sigma.numpy(), 1):
                yield {
                    "module": product,
                    "head": head,
                    "offset": offset,
                    "of": of,
                    "rows": A.shape[-2],
                    "cols": A.shape[-2],
                    **numbers(values, float(np.square(values).sum()), RTOL, complete=True),
                    "tail": 0.0,
                    "method": "full",
                    "singular_values": values,
                }


def numbers(sigma: np.ndarray, total: float, rtol: float, complete: bool) -> dict[str, float]:
    """Norm and ranks; those that need all singular values are missing where only the leading ones
    are there.
    """
    if complete:
        found = {name: float(values[0]) for name, values in summaries([sigma], rtol).items()}
        return {name: found[name] for name in NUMBERS}
    stable = total / float(sigma[0]) ** 2 if sigma[0] > 0 else 0.0
    return dict.fromkeys(NUMBERS, np.nan) | {"norm": total**0.5, "stable_rank": stable}


if __name__ == "__main__":
    run(main)
