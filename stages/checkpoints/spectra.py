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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sys import maxsize
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.checkpoints.adapters import whether
from lib.checkpoints.factors import as_tensors, write_factors
from lib.checkpoints.folders import (
    Checkpoint,
    aligned,
    check_pair,
    layer_of,
    n_matrices,
    open_checkpoint,
)
from lib.checkpoints.heads import (
    Heads,
    attention_tensors,
    factor,
    heads,
    initial_values,
    rotation,
    update_values,
)
from lib.checkpoints.plans import largest_rank
from lib.checkpoints.snapshots import Snapshot, tuned_snapshots
from lib.checkpoints.stored import load_tensor, stored_names
from lib.checkpoints.update_spectra import (
    FLOOR,
    Product,
    Triplets,
    chosen_method,
    decomposed,
    rounding_edge,
    squared_norm,
    update_of,
)
from lib.files.files import InputError, clear
from lib.files.params import Interval, read_params
from lib.files.tables import write_table
from lib.matrices.ranks import summaries
from lib.matrices.spectra import product_singular_values, update_factors
from lib.training.devices import generator
from lib.work.cells import Course, joined, spread_cells
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
Load = Callable[[str], Tensor]  # a tensor of a checkpoint by its name


@dataclass(frozen=True)
class Spectra:
    method: Literal["auto", "full", "gram", "randomised"]
    rank: Annotated[int, Interval("[1, 65536]")]
    rotary_offsets: tuple[Annotated[int, Interval("[0, 1e7]")], ...]


@dataclass(frozen=True)
class Layer:
    """One layer of one snapshot, by the names of its tensors."""

    run: str
    step: int
    number: int
    matrices: list[str]
    heads: dict[str, str]  # by what they are in the architecture's layout
    initial: bool  # whether the products at the base are measured too
    config: Mapping[str, Any]
    n_base: int  # of the files that hold the tensors: so many are the base's, then come the others
    stored: Mapping[str, str]  # the base's own names, where they are others
    by_columns: list[str]  # what an adapter changes and the base stores as in × out
    kept: int  # the most triplets that are kept of a matrix


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
    write_table(table, spectra)


def layers(
    base: Checkpoint, one: Snapshot, *, initial: bool, kept: int, heads: bool
) -> Iterator[tuple[Layer, list[Path]]]:
    """Every layer of a snapshot, and the files that hold its tensors, by headers alone."""
    base = aligned(base, one.checkpoint)
    names = check_pair(base, one.checkpoint)
    matrices = [name for name in names if n_matrices(name, base.tensors[name].shape)]
    attention = attention_tensors(base.config, names) if heads else {}
    by_layer: dict[int, list[str]] = {}
    for name in matrices:
        by_layer.setdefault(layer_of(name), []).append(name)
    transposed = getattr(one.checkpoint, "by_columns", frozenset())
    for number, inside in sorted(by_layer.items()):
        parts = attention.get(number, {})
        before, after = (
            sorted({of.tensors[name].file for name in (*inside, *parts.values())})
            for of in (base, one.checkpoint)
        )
        layer = Layer(
            one.run,
            one.step,
            number,
            inside,
            parts,
            initial,
            base.config,
            n_base=len(before),
            stored={name: base.stored.get(name, name) for name in (*inside, *parts.values())},
            by_columns=sorted(transposed & {*inside, *parts.values()}),
            kept=kept,
        )
        yield layer, [*before, *after]


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
            row, triplets = matrix_row(params, of, W_0, W, kept)
            rows.append(row)
            tensors |= as_tensors(of, triplets) if kept else {}
    if layer.heads:
        rows += head_rows(params, layer, begun, ended)
    labels = {"run": layer.run, "step": layer.step, "layer": layer.number}
    table = pd.DataFrame([labels | row for row in rows])
    return Course({"spectra": table}, [(tensors, [])] if tensors else [])


def loader(
    places: Sequence[Path],
    stored: Mapping[str, str] | None = None,
    by_columns: Sequence[str] = (),
) -> Callable[[str], Any]:
    """A reader of tensors from the one of some places that has them, by name or as `stored`."""
    placed = {name: place for place in places for name in stored_names(place)}

    def load(name: str) -> Any:
        own = name if name in placed or not stored else stored[name]
        return load_tensor(placed[own], own, by_columns=own in by_columns)

    return load


def slices(name: str, W_0: Tensor, W: Any) -> Iterator[tuple[str, Tensor, Any]]:
    """The matrices of a tensor, with names: those of all experts where they are stored together."""
    if W_0.dim() == 2:
        yield name, W_0, W
        return
    for number, pair in enumerate(zip(W_0, W, strict=True)):
        yield f"{name}.{number}", *pair


def matrix_row(
    params: Spectra, name: str, W_0: Tensor, W: Tensor | Product, kept: int = 0
) -> tuple[dict[str, Any], Triplets]:
    """What is said of a matrix's update, and at most `kept` of its triplets, as many as matter.

    Rows of words that only one of the two has are left out. The product that an adapter adds is
    known as it is: no rounding of W has an edge there.
    """
    if isinstance(W, Product):
        method = "factors"
        edge = 0.0
    else:
        n_rows = min(len(W_0), len(W))
        W_0 = W_0[:n_rows]
        W = W[:n_rows]
        method = chosen_method((W.shape[0], W.shape[1]), params.method)
        edge = rounding_edge(W_0, W)
    update = update_of(W, W_0)
    source = generator(SEED, name)
    try:
        found = decomposed(update, method, params.rank, source, kept)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    sigma = found.sigma.numpy()
    total = found.squared_norm
    if method in ("gram", "randomised") and len(sigma):
        edge = max(edge, FLOOR * float(sigma[0]))
    above_edge = int((sigma > edge).sum())
    complete = method == "factors" or len(sigma) == min(W.shape)
    row = {
        "module": name,
        "head": 0,
        "offset": 0,
        "of": "update",
        "rows": W.shape[0],
        "cols": W.shape[1],
        **numbers(sigma, total, complete),
        "base_norm": squared_norm(W_0) ** 0.5,
        "tail": 0.0 if complete else max(total - float(np.square(sigma).sum()), 0.0),
        "edge": edge,
        "rank_above_edge": above_edge,
        "method": method,
        "singular_values": sigma,
        "errors": found.errors.numpy(),
    }
    return row, found.triplets.first(max(above_edge, largest_rank(sigma, total)))


def head_rows(params: Spectra, layer: Layer, begun: Load, ended: Load) -> Iterator[dict[str, Any]]:
    """The products of every head, at each offset of rotary positions: at the base, and updates."""
    config = layer.config
    rotations = {}
    for offset in params.rotary_offsets:
        R = rotation(config, offset)
        if R is not None and (offset == 0 or not torch.equal(R, torch.eye(len(R)).double())):
            rotations[offset] = R
    first, last = (
        heads(config, layer.heads, load, fold_norms=True, repeated=False) for load in (begun, ended)
    )
    d_model, d_head = first.W_Q.shape[-2:]
    spectra = by_factors if 2 * d_head < d_model else by_products
    for (product, offset, of), sigma in spectra(first, last, rotations).items():
        if of == "initial" and not layer.initial:
            continue
        for head, values in enumerate(sigma.numpy(), 1):
            yield {
                "module": product,
                "head": head,
                "offset": offset,
                "of": of,
                "rows": d_model,
                "cols": d_model,
                **numbers(values, float(np.square(values).sum()), complete=True),
                "tail": 0.0,
                "method": "full",
                "singular_values": values,
                "errors": np.zeros(0),
            }


def by_factors(
    first: Heads, last: Heads, rotations: Mapping[int, Tensor]
) -> dict[tuple[str, int, str], Tensor]:
    """The singular values of every product, each projection being decomposed once."""
    group = len(first.W_Q) // len(first.W_K)
    queries, keys, values, outputs = (factor(W_0, W) for W_0, W in zip(first, last, strict=True))
    keys = keys.repeated(group)
    pairs = {("W_KQ", offset): (queries.turned(R), keys) for offset, R in rotations.items()}
    pairs["W_VO", 0] = (values.repeated(group), outputs)
    found = {}
    for place, (A, B) in pairs.items():
        found[*place, "initial"] = initial_values(A, B)
        found[*place, "update"] = update_values(A, B)
    return found


def by_products(
    first: Heads, last: Heads, rotations: Mapping[int, Tensor]
) -> dict[tuple[str, int, str], Tensor]:
    """The singular values of every product, of heads too wide for `by_factors`."""
    group = len(first.W_Q) // len(first.W_K)
    keys, values = (
        [W.repeat_interleave(group, 0) for W in pair]
        for pair in ((first.W_K, last.W_K), (first.W_V, last.W_V))
    )
    pairs = {
        ("W_KQ", offset): ((first.W_Q @ R, keys[0]), (last.W_Q @ R, keys[1]))
        for offset, R in rotations.items()
    }
    pairs["W_VO", 0] = ((values[0], first.W_O), (values[1], last.W_O))
    found = {}
    for place, (before, after) in pairs.items():
        found[*place, "initial"] = product_singular_values(*before)
        found[*place, "update"] = product_singular_values(*update_factors(*after, *before))
    return found


def numbers(sigma: np.ndarray, total: float, complete: bool) -> dict[str, float]:
    """Norm and ranks; without all singular values, only those that the leading ones tell."""
    if complete:
        found = summaries([sigma], RTOL)
        return {name: float(found[name][0]) for name in NUMBERS}
    stable = total / float(sigma[0]) ** 2 if sigma[0] > 0 else 0.0
    return dict.fromkeys(NUMBERS, np.nan) | {"norm": total**0.5, "stable_rank": stable}


if __name__ == "__main__":
    run(main)
