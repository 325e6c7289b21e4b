"""Which weights, neurons and heads to remove first, and removing them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Order = Literal["smallest", "random", "largest"]
OF_UPDATES: dict[str, Order] = {
    "updates, smallest first": "smallest",
    "updates, at random": "random",
}


def pruning_rates(step: float) -> list[float]:
    """The rates 0, step, 2 step, ... below 1, each the number that its decimals say: 3 times 0.1 is
    0.3.
    """
    rates = (round(k * step, 10) for k in range(round(1 / step) + 1))
    return [rate for rate in rates if rate < 1]


def n_pruned(n: int, rate: float) -> int:
    """How many of n are removed at a rate: the nearest whole number, as `torch.nn.utils.prune`
    counts.
    """
    return round(rate * n)


def magnitude_masks(
    weights: Mapping[str, Float[Tensor, "..."]],
    rates: Sequence[float],
    order: Order = "smallest",
    generator: torch.Generator | None = None,
) -> Iterator[tuple[float, dict[str, Bool[Tensor, "..."]]]]:
    """Yield, for each rate, which weights stay when that share of all, ranked together, is removed.

    Ranks exactly: on distinct magnitudes the masks are those of
    `torch.nn.utils.prune.global_unstructured` with `L1Unstructured`; of equal ones the first go
    first. All rates share one partial sort: a magnitude's bits, read as an integer, have its order.
    Raises `ValueError` for a rate outside 0..1 or a magnitude that is not a number.
    """
    if any(not 0 <= rate <= 1 for rate in rates):
        raise ValueError(f"rate must lie in 0..1, got {list(rates)}")
    flat = torch.cat([weight.detach().flatten() for weight in weights.values()]).float()
    if not torch.isfinite(flat).all():
        raise ValueError("wanted finite weights, got NaN or infinity")
    keys = _rank_keys(flat, order, generator)
    counts = [n_pruned(len(flat), rate) for rate in rates]
    inner = sorted({count - 1 for count in counts if count > 0})
    ordered = np.partition(keys, inner) if inner else keys
    for rate, count in zip(rates, counts, strict=True):
        stays = np.ones(len(keys), dtype=bool)
        if count:
            threshold = ordered[count - 1]
            stays = keys > threshold
            excess = (
                len(keys) - int(stays.sum()) - count
            )  # equal to the threshold, beyond the count
            if excess:
                stays[np.flatnonzero(keys == threshold)[-excess:]] = True
        masks = torch.from_numpy(stays).to(flat.device).split([w.numel() for w in weights.values()])
        yield (
            rate,
            {n: m.view(w.shape) for (n, w), m in zip(weights.items(), masks, strict=True)},
        )


def pruned_states(
    base: Mapping[str, Float[Tensor, "..."]],
    tuned: Mapping[str, Float[Tensor, "..."]],
    rates: Sequence[float],
    source: Callable[[str], torch.Generator],
) -> Iterator[tuple[str, float, dict[str, Float[Tensor, "..."]]]]:
    """Yield what is gone, which share of it, and the weights then: entries of the weights, or of
    what tuning added.

    All entries are ranked together. `source` has a generator for what goes at random.
    """
    what = "weights, smallest first"
    for rate, masks in magnitude_masks(tuned, rates):
        yield what, rate, {name: tuned[name] * mask for name, mask in masks.items()}
    updates = {name: tuned[name] - base[name] for name in tuned}
    for what, order in OF_UPDATES.items():
        for rate, masks in magnitude_masks(updates, rates, order, source(what)):
            yield (
                what,
                rate,
                {name: base[name] + updates[name] * mask for name, mask in masks.items()},
            )


def fewest_kept(W: Float[Tensor, "row col"], perfect: Callable[[Tensor], bool]) -> int:
    """The least number of entries of W, largest first, with which all is right, and with every
    larger number too.
    """
    fewest, n = W.numel() + 1, W.numel()
    for rate, masks in magnitude_masks({"W": W}, [removed / n for removed in range(n + 1)]):
        if not perfect(W * masks["W"]):
            break
        fewest = n - round(rate * n)
    return fewest


def _rank_keys(
    flat: Float[Tensor, " n"], order: Order, generator: torch.Generator | None
) -> np.ndarray:
    """Integers whose order is the order of removal."""
    if order == "random":
        return torch.randperm(len(flat), generator=generator).int().numpy().view(np.uint32)
    bits = flat.abs().cpu().numpy().view(np.uint32)
    return bits if order == "smallest" else np.uint32(0xFFFFFFFF) - bits


def removal_order(
    magnitudes: Float[Tensor, "layer unit"], order: Order, generator: torch.Generator | None = None
) -> Int[Tensor, "layer unit"]:
    """The units of each layer in the order of their removal."""
    if order == "random":
        assert generator is not None
        rows = [torch.randperm(magnitudes.shape[1], generator=generator) for _ in magnitudes]
        return torch.stack(rows)
    return magnitudes.argsort(dim=1, descending=order == "largest", stable=True)


def removals(
    norms: Float[Tensor, " unit"],
    is_large: Bool[Tensor, " unit"],
    source: Callable[[str], torch.Generator],
) -> Iterator[tuple[str, str, Int[Tensor, " ordered"], int]]:
    """In which ways neurons go: what, in which order, the units in it (those that never go last),
    and how many may go.

    All neurons, in each order; as many of all as are small, in each order; the large ones at
    random, small ones being gone already; and the small ones alone, at random. `source` has a
    generator for each kind of random order.
    """
    large, small = (
        units[torch.randperm(len(units), generator=source(name))]
        for name, units in (
            ("large neurons", is_large.nonzero()[:, 0]),
            ("small neurons", (~is_large).nonzero()[:, 0]),
        )
    )
    orders = {
        order: removal_order(norms[None], order, source("neurons"))[0] for order in get_args(Order)
    }
    for order, units in orders.items():
        yield "neurons", order, units, len(units)
    yield "large neurons", "random", large, len(large)
    yield "small neurons", "random", torch.cat([small, large]), len(small)
    for order, units in orders.items():
        yield "as many as small", order, units, len(small)


def entry_removals(
    W_O: Float[Tensor, "neuron value"],
    W_V: Float[Tensor, "d_model value"],
    rates: Sequence[float],
    kept: int,
    group: int,
    rate_of_columns: float,
) -> Iterator[tuple[str, float, str, Bool[Tensor, "row col"]]]:
    """In which ways entries go: what, at which rate, of which matrix, and which of its entries
    stay.

    Of W_O the smallest, at each rate; and all but the `kept` largest of each `group` in a row,
    where rows fall into whole groups. Of W_V a share of its columns, the paper's rows, those of
    smallest norm first.
    """
    for rate, mask in magnitude_masks({"W_O": W_O}, rates):
        yield "weights", rate, "W_O", mask["W_O"]
    if W_O.shape[1] % group == 0:
        yield f"{kept}:{group}", 1 - kept / group, "W_O", largest_of_each_group(W_O, kept, group)
    [columns] = removal_order(torch.linalg.vector_norm(W_V, dim=0)[None].cpu(), "smallest")
    stays = torch.ones_like(W_V, dtype=torch.bool)
    stays[:, columns[: n_pruned(len(columns), rate_of_columns)]] = False
    yield "rows of W_V", rate_of_columns, "W_V", stays


def largest_of_each_group(
    W: Float[Tensor, "row col"], kept: int, group: int
) -> Bool[Tensor, "row col"]:
    """N:M sparsity: of every `group` consecutive columns of a row, the `kept` of largest magnitude
    stay.

    Of equal ones the first stay. Raises `ValueError` where the columns do not fall into whole
    groups.
    """
    if W.shape[1] % group or not 0 <= kept <= group:
        raise ValueError(
            f"wanted columns in groups of {group}, of which {kept} stay, got {W.shape[1]} columns"
        )
    grouped = W.abs().unflatten(1, (-1, group))
    first = grouped.argsort(dim=-1, descending=True, stable=True)[..., :kept]
    mask = torch.zeros_like(grouped, dtype=torch.bool).scatter(-1, first, True)
    return mask.flatten(1)
