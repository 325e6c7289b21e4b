"""Low-rank approximation of what training added to a matrix."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lib.matrices.spectra import gaussian_of_equal_norm, singular_values


def doubling_ranks(largest: int) -> list[int]:
    """The ranks to cut at: 0, the powers of two below the largest, and the largest."""
    return [0, *(2**k for k in range(largest.bit_length()) if 2**k < largest), largest]


def truncated_updates(
    W: Float[Tensor, "*batch row col"], W_0: Float[Tensor, "*batch row col"], ranks: Sequence[int]
) -> Iterator[tuple[int, Float[Tensor, "*batch row col"]]]:
    r"""Yield, for each rank r, $W_0 + \mathrm{SVD}_r(W - W_0)$: the best approximation of the
    update at that rank.

    The update is cut, never the weight itself: r = 0 gives $W_0$ back (Eckart & Young 1936 for the
    update). One decomposition, in float64, serves all ranks; a rank beyond that of the matrix gives
    W back.
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
    """By rank, the matrices whose updates are all cut to it (`truncated_updates`)."""
    cut = {name: dict(truncated_updates(W[name], W_0[name], sorted(set(ranks)))) for name in W}
    return {rank: {name: cut[name][rank] for name in W} for rank in ranks}


def low_rank_models(
    W: Mapping[str, Tensor],
    W_0: Mapping[str, Tensor],
    ranks: Sequence[int],
    ranks_alone: Sequence[int],
    alone: Mapping[str, Sequence[str]],
) -> Iterator[tuple[str, int, dict[str, Tensor]]]:
    """Yield what was cut, to which rank, and the matrices then; a matrix that is not cut is W's own
    tensor.

    Cut are the updates of `all` matrices, to each of the ranks; to each of `ranks_alone` the
    weights in place of the updates, and the updates of the matrices that stand `alone` under a
    name. Last, the singular pairs 3 and 4 of all updates are left in place of 1 and 2.
    """
    cut = truncated_models(W, W_0, {*ranks, *ranks_alone, 2, 4})
    for rank in ranks:
        yield "all", rank, cut[rank]
    whole = truncated_models(W, {name: 0 * W[name] for name in W}, ranks_alone)
    for rank in ranks_alone:
        yield "weights, not updates", rank, whole[rank]
    for kind, names in alone.items():
        for rank in ranks_alone:
            yield kind, rank, {**W, **{name: cut[rank][name] for name in names}}
    yield "pairs 3 and 4", 2, {name: W_0[name] + cut[4][name] - cut[2][name] for name in W}


def null_updates(
    W: Mapping[str, Tensor],
    W_0: Mapping[str, Tensor],
    k: int,
    source: Callable[[str, str], torch.Generator],
) -> dict[str, dict[str, Tensor]]:
    r"""The nulls of a cut to rank k, by name: the matrices $W_0 + \Delta$ with another update in
    place of each.

    `random directions` has the update in k random directions of its rows' space, `gaussian` a
    Gaussian matrix of its norm; both in float64 on the CPU. `source(null, matrix)` is the generator
    of each.
    """
    updates = {name: W[name].double().cpu() - W_0[name].double().cpu() for name in W_0}

    def changed(
        null: str, change: Callable[[Tensor, torch.Generator], Tensor]
    ) -> dict[str, Tensor]:
        other = {name: change(U, source(null, name)) for name, U in updates.items()}
        return {name: (W_0[name].double().cpu() + U).to(W[name]) for name, U in other.items()}

    return {
        "random directions": changed(
            "random directions", lambda U, draw: in_random_directions(U, k, draw)
        ),
        "gaussian": changed("gaussian", gaussian_of_equal_norm),
    }


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
    """W projected on k random directions of its rows' space, in float64: what is left of it at rank
    k by chance.
    """
    G = torch.randn(W.shape[-1], k, generator=generator, dtype=torch.float64)
    Q = torch.linalg.qr(G).Q.to(W.device)
    return W.double() @ Q @ Q.mT
