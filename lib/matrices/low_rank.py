"""Low-rank approximation of what training added to a matrix."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lib.matrices.spectra import singular_values


def doubling_ranks(largest: int) -> list[int]:
    """The ranks to cut at: 0, the powers of two below the largest, and the largest."""
    return [0, *(2**k for k in range(largest.bit_length()) if 2**k < largest), largest]


def truncated_updates(
    W: Float[Tensor, "*batch row col"], W_0: Float[Tensor, "*batch row col"], ranks: Sequence[int]
) -> Iterator[tuple[int, Float[Tensor, "*batch row col"]]]:
    r"""Yield, for each rank r, $W_0 + \mathrm{SVD}_r(W - W_0)$ (Eckart & Young 1936).

    The update is cut, never the weight itself: r = 0 gives $W_0$ back. One decomposition, in
    float64, serves all ranks; a rank beyond that of the matrix gives W back.
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


def truncated_models(
    W: Mapping[str, Tensor], W_0: Mapping[str, Tensor], ranks: Collection[int]
) -> dict[int, dict[str, Tensor]]:
    """For each rank, the matrices whose updates are all cut to it (`truncated_updates`)."""
    cut = {name: dict(truncated_updates(W[name], W_0[name], sorted(set(ranks)))) for name in W}
    return {rank: {name: cut[name][rank] for name in W} for rank in ranks}


def update_spectra(
    W: Mapping[str, Tensor], W_0: Mapping[str, Tensor]
) -> dict[str, Float[np.ndarray, " rank"]]:
    """The singular values of the updates W - W_0 of the matrices of W_0, by name."""
    return {
        name: singular_values(W[name].cpu().double() - W_0[name].cpu().double()).numpy()
        for name in W_0
    }


def in_random_directions(
    W: Float[Tensor, "*batch row col"], k: int, generator: torch.Generator
) -> Float[Tensor, "*batch row col"]:
    """W projected on k random directions of its row space, in float64: its rank is k by chance."""
    G = torch.randn(W.shape[-1], k, generator=generator, dtype=torch.float64)
    Q = torch.linalg.qr(G).Q.to(W.device)
    return W.double() @ Q @ Q.mT
