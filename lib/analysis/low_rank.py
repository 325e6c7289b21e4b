"""Low-rank approximation of what training added to a matrix."""

from collections.abc import Iterator, Sequence

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
