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

from dataclasses import replace
from pathlib import Path
from sys import maxsize

from lib.checkpoints.adapters import whether
from lib.checkpoints.factors import write_factors
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.layer_spectra import Spectra, spectra_of_layer
from lib.checkpoints.layers import Layer, layers
from lib.checkpoints.snapshots import tuned_snapshots
from lib.checkpoints.tables.decomposed import SPECTRA
from lib.files.files import InputError, clear
from lib.files.params import read_params
from lib.work.cells import Course, OnDisk, joined, spread_cells
from lib.work.command import OutFile, run


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
    found = tuned_snapshots(begun, snapshots)
    first = {one.run: one for one in reversed(found)}
    last = {one.run: one for one in found}
    most = (kept or maxsize) if factors else 0
    every = [
        cell
        for one in found
        for cell in layers(
            begun,
            one,
            initial=one is first[one.run],
            kept=most if one is last[one.run] else 0,
            heads=with_heads,
        )
    ]
    jobs = [(measure_layer, params, layer, *map(OnDisk, files)) for layer, files in every]
    courses = spread_cells({"": jobs}, label=f"spectra of {snapshots}", unit="layer")[""]
    table = joined([course.tables for course in courses], "spectra")
    if not (table[table["of"] == "update"]["norm"] > 0).any():
        wanted = "wanted weights that differ from the base's"
        raise InputError(f"{snapshots}: {wanted}, got none that does")
    if factors:
        clear(Path(factors), *("*/" * depth + "layer-*.safetensors" for depth in range(1, 5)))
        for (layer, _), course in zip(every, courses, strict=True):
            for triplets, _ in course.states:
                write_factors(Path(factors) / layer.run, layer.number, triplets)
    SPECTRA.write(table, spectra)


def measure_layer(params: Spectra, layer: Layer, *files: OnDisk) -> Course:
    """The rows of one layer of one snapshot, and the triplets that are kept of its matrices."""
    table, triplets = spectra_of_layer(params, layer, [one.place for one in files])
    return Course({"spectra": table}, [(triplets, [])] if triplets else [])


if __name__ == "__main__":
    run(main)
