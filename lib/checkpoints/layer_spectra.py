"""The rows of a layer: spectra of the updates of its matrices, and of the products of its heads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import maxsize
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.checkpoints.factors import as_tensors, write_factors
from lib.checkpoints.folders import Checkpoint
from lib.checkpoints.heads import (
    Heads,
    factor,
    heads,
    initial_values,
    rotation,
    update_values,
)
from lib.checkpoints.layers import Layer, layers
from lib.checkpoints.plans import largest_rank
from lib.checkpoints.snapshots import Snapshot
from lib.checkpoints.stored import load_tensor, stored_names
from lib.checkpoints.update_spectra import (
    FLOOR,
    Product,
    Triplets,
    chosen_method,
    decomposed,
    norm_of_weights,
    rounding_edge,
    update_of,
)
from lib.files.files import InputError
from lib.files.params import Interval
from lib.matrices.spectra import product_singular_values, update_factors
from lib.training.devices import generator

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
    """How updates are decomposed, up to which rank, and at which offsets of rotary positions."""

    method: Literal["auto", "full", "gram", "randomised"]
    rank: Annotated[int, Interval("[1, 65536]")]
    rotary_offsets: tuple[Annotated[int, Interval("[0, 1e7]")], ...]


def spectra_of_snapshot(
    params: Spectra, base: Checkpoint, one: Snapshot, factors: Path | None = None
) -> pd.DataFrame:
    """The rows of a snapshot, layer by layer, but for those of the base's own products.

    All triplets that are known of its matrices are written to a folder of `factors`.
    """
    tables = []
    kept = 0 if factors is None else maxsize
    for layer, files in layers(base, one, initial=False, kept=kept, heads=True):
        table, triplets = spectra_of_layer(params, layer, files)
        tables.append(table)
        if factors is not None and triplets:
            write_factors(factors, layer.number, triplets)
    return pd.concat(tables, ignore_index=True)


def spectra_of_layer(
    params: Spectra, layer: Layer, files: Sequence[Path]
) -> tuple[pd.DataFrame, dict[str, Tensor]]:
    """The rows of one layer of one snapshot, of its matrices one by one, then of its heads; and the
    triplets that are kept of its matrices, as they stand in a file.
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
    return pd.DataFrame([labels | row for row in rows]), tensors


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
    how: str, rank: int, name: str, W_0: Tensor, W: Tensor | Product, kept: int = 0
) -> tuple[dict[str, Any], Triplets]:
    """What is said of a matrix's update, and at most `kept` of its triplets, as many as matter.

    It is decomposed as `how` says, and a part of it up to a rank.
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
        method = chosen_method((W.shape[0], W.shape[1]), how)
        edge = rounding_edge(W_0, W)
    update = update_of(W, W_0)
    source = generator(SEED, name)
    try:
        found = decomposed(update, method, rank, source, kept)
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
        "base_norm": norm_of_weights(W_0),
        "tail": 0.0 if complete else max(total - float(np.square(sigma).sum()), 0.0),
        "edge": edge,
        "rank_above_edge": above_edge,
        "method": method,
        "singular_values": sigma,
        "errors": found.errors.numpy(),
    }
    return row, found.triplets.first(max(above_edge, largest_rank(sigma, total)))


def head_rows(
    config: Mapping[str, Any],
    names: Mapping[str, str],
    offsets: Sequence[int],
    begun: Load,
    ended: Load,
    *,
    initial: bool,
) -> Iterator[dict[str, Any]]:
    """The updates of the products of every head, whose tensors have these names, at each offset of
    rotary positions; with `initial` the products at the base, too.
    """
    rotations = {}
    for offset in offsets:
        R = rotation(config, offset)
        if R is not None and (offset == 0 or not torch.equal(R, torch.eye(len(R)).double())):
            rotations[offset] = R
    first, last = (
        heads(config, names, load, fold_norms=True, repeated=False) for load in (begun, ended)
    )
    d_model, d_head = first.W_Q.shape[-2:]
    spectra = by_factors if 2 * d_head < d_model else by_products
    for (product, offset, of), sigma in spectra(first, last, rotations).items():
        if of == "initial" and not initial:
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
        from lib.matrices.ranks import summaries  # it loads scipy

        found = summaries([sigma], RTOL)
        return {name: float(found[name][0]) for name in NUMBERS}
    stable = total / float(sigma[0]) ** 2 if sigma[0] > 0 else 0.0
    return dict.fromkeys(NUMBERS, np.nan) | {"norm": total**0.5, "stable_rank": stable}
