"""Cuts of what training added to a model: to low ranks, and the nulls of such a cut."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lib.matrices.low_rank import in_random_directions, truncated_models
from lib.matrices.spectra import gaussian_of_equal_norm

Weights = Mapping[str, Tensor]
ALONE = {"W_Q and W_K": ("W_Q", "W_K"), "W_V": ("W_V",), "W_O": ("W_O",)}


class Cut(NamedTuple):
    """What was cut, to which rank, and the matrices then."""

    kind: str
    rank: int
    weights: Weights


def low_rank_models(
    W: Weights, W_0: Weights, ranks: Sequence[int], ranks_alone: Sequence[int]
) -> Iterator[Cut]:
    """Yield every cut; a matrix that is not cut is W's own tensor.

    All updates are cut to each of the ranks. To each of `ranks_alone` are cut the weights in place
    of the updates, and the updates of some matrices `ALONE`. Last, the singular pairs 3 and 4 of
    all updates are left in place of 1 and 2.
    """
    cut = truncated_models(W, W_0, {*ranks, *ranks_alone, 2, 4})
    for rank in ranks:
        yield Cut("all", rank, cut[rank])
    whole = truncated_models(W, {name: 0 * W[name] for name in W}, ranks_alone)
    for rank in ranks_alone:
        yield Cut("weights, not updates", rank, whole[rank])
    for kind, names in ALONE.items():
        for rank in ranks_alone:
            yield Cut(kind, rank, {**W, **{name: cut[rank][name] for name in names}})
    yield Cut("pairs 3 and 4", 2, {name: W_0[name] + cut[4][name] - cut[2][name] for name in W})


def null_updates(
    W: Weights, W_0: Weights, k: int, source: Callable[[str, str], torch.Generator]
) -> dict[str, dict[str, Tensor]]:
    r"""The nulls of a cut to rank k, by name: $W_0 + \Delta$ with another update for each matrix.

    `random directions` has the update in k random directions of its rows' space, `gaussian` a
    Gaussian matrix of its norm; both in float64 on the CPU. `source(null, matrix)` is the generator
    of each.
    """

    def projected(update: Tensor, draw: torch.Generator) -> Tensor:
        return in_random_directions(update, k, draw)

    found: dict[str, dict[str, Tensor]] = {}
    for null, change in {
        "random directions": projected,
        "gaussian": gaussian_of_equal_norm,
    }.items():
        found[null] = {}
        for name in W_0:
            start = W_0[name].double().cpu()
            other = change(W[name].double().cpu() - start, source(null, name))
            found[null][name] = (start + other).to(W[name])
    return found
