"""Spectra of what a training added to the matrices of a checkpoint, and to the products of heads.

Weights are read shard by shard, a layer at a time; a layer that an earlier call has measured is not
measured again. Rows of matrices are of the `update` W - W_0; rows of products (`W_KQ` at each
offset of rotary positions, `W_VO`) of the product at the base (`initial`, beside each run's first
step alone) and of its `update`. Layers and heads count from 1; 0 stands where there is none.
Experts that are stored together have a row each: the name of their tensor and a number from 0.

With `heads=no` there are no products. `leading` other than 0 has that many leading values of each
matrix alone, whatever the params say: of those `errors` says by how much each may be below the true
one (it is empty where all values are known), and the rank above the edge is what is sure.

In the folder `factors`, if one is named, are kept the leading singular triplets of the last update
of each run, at most `kept` of a matrix (0 for as many as a plan can ask): the same decomposition
serves plans and adapters.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from sys import maxsize
from typing import Annotated, Any, Literal

import pandas as pd
from torch import Tensor

from lib.checkpoints.adapters import whether
from lib.checkpoints.factors import as_tensors, write_factors
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.layer_spectra import head_rows, loader, matrix_row, slices
from lib.checkpoints.layers import Layer, layers
from lib.checkpoints.snapshots import tuned_snapshots
from lib.checkpoints.tables.decomposed import SPECTRA
from lib.checkpoints.update_spectra import Product
from lib.files.files import InputError, clear
from lib.files.params import Interval, read_params
from lib.work.cells import Course, joined, spread_cells
from lib.work.command import OutFile, run


@dataclass(frozen=True)
class Spectra:
    method: Literal["auto", "full", "gram", "randomised"]
    rank: Annotated[int, Interval("[1, 65536]")]
    rotary_offsets: tuple[Annotated[int, Interval("[0, 1e7]")], ...]


def main(
    section: str,
    base: Path,
    snapshots: Path,
    spectra: OutFile,
    factors: str = "",
    kept: int = 0,
    heads: str = "yes",
    leading: int = 0,
) -> None:
    with_heads = whether("heads", heads)
    params = read_params(section, Spectra)
    if leading:
        params = replace(params, method="randomised", rank=leading)
    begun = open_checkpoint(base)
    jobs: list[tuple[Any, ...]] = []
    runs = set()
    found = tuned_snapshots(begun, snapshots)
    last = {one.run: one for one in found} if factors else {}
    for one in found:
        initial = one.run not in runs
        runs.add(one.run)
        most = (kept or maxsize) if last.get(one.run) is one else 0
        for layer, files in layers(begun, one, initial=initial, kept=most, heads=with_heads):
            jobs.append((measure_layer, params, layer, *files))
    cells = spread_cells({"": jobs}, label=f"spectra of {snapshots}", unit="layer")[""]
    table = joined([cell.tables for cell in cells], "spectra")
    if not (table[table["of"] == "update"]["norm"] > 0).any():
        wanted = "wanted weights that differ from the base's"
        raise InputError(f"{snapshots}: {wanted}, got none that does")
    if factors:
        clear(Path(factors), *("*/" * depth + "layer-*.safetensors" for depth in range(1, 5)))
        for (_, _, layer, *_), cell in zip(jobs, cells, strict=True):
            for tensors, _ in cell.states:
                name = f"layer-{layer.number:04d}.safetensors"
                write_factors(Path(factors) / layer.run / name, tensors)
    SPECTRA.write(table, spectra)


def measure_layer(params: Spectra, layer: Layer, *files: Path) -> Course:
    """The rows of one layer of one snapshot: its matrices one by one, then its heads; and the
    triplets that are kept of its matrices.
    """
    of_base = loader(files[: layer.n_base])
    of_tuned = loader(files[layer.n_base :], layer.stored, layer.by_columns)

    def begun(name: str) -> Tensor:
        return of_base(layer.stored[name])

    def ended(name: str) -> Tensor:
        found = of_tuned(name)
        return found.added_to(begun(name)) if isinstance(found, Product) else found

    rows = []
    tensors: dict[str, Tensor] = {}
    for name in layer.matrices:
        for of, W_0, W in slices(name, begun(name), of_tuned(name)):
            kept = layer.kept if of == name else 0
            row, triplets = matrix_row(params.method, params.rank, of, W_0, W, kept)
            rows.append(row)
            tensors |= as_tensors(of, triplets) if kept else {}
    if layer.heads:
        of_heads = (layer.config, layer.heads, params.rotary_offsets)
        rows += head_rows(*of_heads, begun, ended, initial=layer.initial)
    labels = {"run": layer.run, "step": layer.step, "layer": layer.number}
    table = pd.DataFrame([labels | row for row in rows])
    return Course({"spectra": table}, [(tensors, [])] if tensors else [])


if __name__ == "__main__":
    run(main)
