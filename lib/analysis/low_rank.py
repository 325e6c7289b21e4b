"""Low-rank approximation of what training added to a matrix."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor


def doubling_ranks(largest: int) -> list[int]:
    """The ranks to cut at: 0, the powers of two below the largest, and the largest."""
    return [0, *(2**k for k in range(largest.bit_length()) if 2**k < largest), largest]


def truncated_updates(
    W: Float[Tensor, "*batch row col"], W_0: Float[Tensor, "*batch row col"], ranks: Sequence[int]
) -> Iterator[tuple[int, Float[Tensor, "*batch row col"]]]:
    r"""Yield, for each rank r, $W_0 + \mathrm{SVD}_r(W - W_0)$: the best approximation of the update at that rank.

    The update is cut, never the weight itself: r = 0 gives $W_0$ back (Eckart & Young 1936 for the update). One
    decomposition, in float64, serves all ranks; a rank beyond that of the matrix gives W back.
    """
    largest = min(W.shape[-2:])
    if any(rank < 0 for rank in ranks):
        raise ValueError(f"rank must not be negative, got {list(ranks)}")
    U, sigma, Vh = torch.linalg.svd(W.double() - W_0.double(), full_matrices=False)
    for rank in ranks:
        if rank >= largest:
            yield rank, W
            continue
        update = U[..., :rank] * sigma[..., None, :rank] @ Vh[..., :rank, :]
        yield rank, (W_0.double() + update).to(W.dtype)


def low_rank_models(
    W: Mapping[str, Tensor],
    W_0: Mapping[str, Tensor],
    ranks: Sequence[int],
    ranks_alone: Sequence[int],
    alone: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, int, dict[str, Tensor]]]:
    """Yield what was cut, to which rank, and the matrices then; a matrix that is not cut is W's own tensor.

    Cut are the updates of `all` matrices, to each of the ranks; to each of `ranks_alone` the weights in place of the
    updates, and the updates of the matrices that stand `alone` under a name. Last, the singular pairs 3 and 4 of all
    updates are left in place of 1 and 2.
    """
    cut = {name: dict(truncated_updates(W[name], W_0[name], sorted({*ranks, *ranks_alone, 2, 4}))) for name in W}
    for rank in ranks:
        yield "all", rank, {name: cut[name][rank] for name in W}
    whole = {name: dict(truncated_updates(W[name], 0 * W[name], ranks_alone)) for name in W}
    for rank in ranks_alone:
        yield "weights, not updates", rank, {name: whole[name][rank] for name in W}
    for kind, names in alone.items():
        for rank in ranks_alone:
            yield kind, rank, {**W, **{name: cut[name][rank] for name in names}}
    yield "pairs 3 and 4", 2, {name: W_0[name] + cut[name][4] - cut[name][2] for name in W}


def other_updates(
    W: Mapping[str, Tensor], W_0: Mapping[str, Tensor], change: Callable[[str, Tensor], Tensor]
) -> dict[str, Tensor]:
    r"""The matrices of W_0 with changed updates in place of theirs, $W_0 + \mathrm{change}(W - W_0)$; in float64."""
    updates = {name: W[name].double().cpu() - W_0[name].double().cpu() for name in W_0}
    return {name: (W_0[name].double().cpu() + change(name, U)).to(W[name]) for name, U in updates.items()}
