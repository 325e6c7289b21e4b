"""The order in which weights, neurons and heads are removed, and their removal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Order = Literal["smallest", "random", "largest"]
PART = 1 << 20  # entries that are ranked at a time
WEIGHTS = "weights, smallest first"
OF_UPDATES: dict[str, Order] = {
    "updates, smallest first": "smallest",
    "updates, at random": "random",
}


def pruning_rates(step: float) -> list[float]:
    """The rates 0, step, 2 step, ... below 1, as decimals say them: 3 times 0.1 is 0.3."""
    rates = (round(k * step, 10) for k in range(round(1 / step) + 1))
    return [rate for rate in rates if rate < 1]


def n_pruned(n: int, rate: float) -> int:
    """How many of n are removed at a rate, rounded as by `torch.nn.utils.prune`."""
    return round(rate * n)


def magnitude_masks(
    weights: Mapping[str, Float[Tensor, "..."]],
    rates: Sequence[float],
    order: Order = "smallest",
    generator: torch.Generator | None = None,
) -> Iterator[tuple[float, dict[str, Bool[Tensor, "..."]]]]:
    """Yield, for each rate, which weights stay when that share of all, ranked together, is removed.

    The ranking is exact: on distinct magnitudes the masks are those of
    `torch.nn.utils.prune.global_unstructured` with `L1Unstructured`; among equal magnitudes the
    first go first. All rates share one partial sort: the bits of a magnitude, read as an integer,
    have the order of the magnitudes.
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
            excess = len(keys) - int(stays.sum()) - count  # equal to the threshold
            if excess:
                stays[np.flatnonzero(keys == threshold)[-excess:]] = True
        masks = torch.from_numpy(stays).to(flat.device).split([w.numel() for w in weights.values()])
        shaped = zip(weights.items(), masks, strict=True)
        yield rate, {name: mask.view(W.shape) for (name, W), mask in shaped}


def pruned_states(
    base: Mapping[str, Float[Tensor, "..."]],
    tuned: Mapping[str, Float[Tensor, "..."]],
    rates: Sequence[float],
    source: Callable[[str], torch.Generator],
) -> Iterator[tuple[str, float, Iterator[tuple[str, Float[Tensor, "..."]]]]]:
    """Yield what is removed, at which rate, and the weights that result, in float32, by name.

    Entries are removed from the weights, or from what tuning added to them, all ranked together.
    `source` gives the generator for what is removed at random, and must give the same one each
    time. The weights are made one after another, as they are asked for, and must be taken in the
    order in which they come.
    """

    def entries(what: str, name: str, part: slice) -> tuple[Tensor, Tensor]:
        """The part of the weights that always stays, and the part that may be removed."""
        W, W_0 = (of[name].flatten()[part].float() for of in (tuned, base))
        return (torch.zeros_like(W), W) if what == WEIGHTS else (W_0, W - W_0)

    def keys(what: str) -> Iterator[tuple[str, slice, np.ndarray]]:
        random = source(what)
        for name, W in tuned.items():
            for start in range(0, W.numel(), PART):
                part = slice(start, min(start + PART, W.numel()))
                ranked = entries(what, name, part)[1].detach().cpu()
                if OF_UPDATES.get(what) == "random":
                    ranked = torch.rand(ranked.shape, generator=random)
                yield name, part, _rank_keys(ranked, "smallest", None)

    def left(what: str, last: tuple[int, int]) -> Iterator[tuple[str, Tensor]]:
        threshold, n_equal = last
        made = torch.empty(0)
        for name, part, own in keys(what):
            stays = own > threshold
            equal = np.flatnonzero(own == threshold)
            stays[equal[n_equal:]] = True
            n_equal = max(n_equal - len(equal), 0)
            W = tuned[name]
            if part.start == 0:
                made = torch.empty(W.numel(), device=W.device)
            always, may_go = entries(what, name, part)
            made[part] = always + may_go * torch.from_numpy(stays).to(W.device)
            if part.stop == W.numel():
                yield name, made.view(W.shape)

    n = sum(W.numel() for W in tuned.values())
    for what in (WEIGHTS, *OF_UPDATES):
        counts = [n_pruned(n, rate) for rate in rates]
        last = _smallest(lambda what=what: (own for *_, own in keys(what)), counts)
        for rate, one in zip(rates, last, strict=True):
            yield what, rate, left(what, one)


def _smallest(
    keys: Callable[[], Iterator[np.ndarray]], counts: Sequence[int]
) -> list[tuple[int, int]]:
    """For each count k, the k-th smallest key, and how many of its copies are among the k smallest.

    The keys have 32 bits. The result is exact: the upper halves of all keys are counted, then the
    lower halves of the keys whose upper half is that of the k-th. Memory holds the counts alone,
    whatever the number of keys.
    """
    half = 1 << 16
    upper = np.zeros(half, dtype=np.int64)
    for one in keys():
        upper += np.bincount(one >> 16, minlength=half)
    above = upper.cumsum()
    highs = np.searchsorted(above, counts)
    lower = np.zeros((len(counts), half), dtype=np.int64)
    for one in keys():
        for row, high in zip(lower, highs, strict=True):
            row += np.bincount(one[one >> 16 == high] & (half - 1), minlength=half)
    found = []
    for count, high, row in zip(counts, highs, lower, strict=True):
        within = count - int(above[high] - upper[high])
        below = row.cumsum()
        low = int(np.searchsorted(below, within))
        last = ((int(high) << 16) + low, within - int(below[low] - row[low]))
        found.append(last if count else (-1, 0))
    return found


def fewest_kept(W: Float[Tensor, "row col"], perfect: Callable[[Tensor], bool]) -> int:
    """The least number of largest entries of W with which, as with every larger number, all is
    right.
    """
    n = W.numel()
    fewest = n + 1
    for rate, masks in magnitude_masks({"W": W}, [removed / n for removed in range(n + 1)]):
        if not perfect(W * masks["W"]):
            break
        fewest = n - round(rate * n)
    return fewest


def _rank_keys(
    flat: Float[Tensor, " n"], order: Order, generator: torch.Generator | None
) -> np.ndarray:
    """An integer for each weight; their order is the order of removal."""
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
