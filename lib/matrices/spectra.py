"""The singular values of matrices, products and updates of products, and the Gaussian null."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


def singular_values(W: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch rank"]:
    """The singular values, largest first, computed in float64."""
    return torch.linalg.svdvals(W.double())


def product_singular_values(
    A: Float[Tensor, "*batch row inner"], B: Float[Tensor, "*batch col inner"]
) -> Float[Tensor, "*batch inner"]:
    r"""The `inner` leading singular values of $A B^\top$ (padded by zeros), in float64.

    For tall factors $A = Q_A R_A$, $B = Q_B R_B$ they are the singular values of the small core
    $R_A R_B^\top$: this is exact and never forms the product. Where the factors are not tall the
    product is formed; the shapes decide.
    """
    A = A.double()
    B = B.double()
    inner = A.shape[-1]
    if inner < min(A.shape[-2], B.shape[-2]):
        A = torch.linalg.qr(A, mode="r").R
        B = torch.linalg.qr(B, mode="r").R
    sigma = torch.linalg.svdvals(A @ B.mT)[..., :inner]
    return torch.nn.functional.pad(sigma, (0, inner - sigma.shape[-1]))


def update_factors(
    A: Float[Tensor, "*batch row inner"],
    B: Float[Tensor, "*batch col inner"],
    A_0: Float[Tensor, "*batch row inner"],
    B_0: Float[Tensor, "*batch col inner"],
) -> tuple[Float[Tensor, "*batch row twice"], Float[Tensor, "*batch col twice"]]:
    r"""Factors of the update: $A B^\top - A_0 B_0^\top = [A - A_0,\ A_0]\,[B,\ B - B_0]^\top$.

    The differences are taken in float64: in float32 the small singular values are lost.
    """
    left = torch.cat([A.double() - A_0.double(), A_0.double()], -1)
    right = torch.cat([B.double(), B.double() - B_0.double()], -1)
    return left, right


class Initial(NamedTuple):
    """A factor at the start of a run, W = Q R, in float64."""

    W: Float[Tensor, "*batch row inner"]
    Q: Float[Tensor, "*batch row rank"]
    R: Float[Tensor, "*batch rank inner"]


def initial_factor(W: Float[Tensor, "*batch row inner"]) -> Initial:
    """Decompose a factor once, for every snapshot of its run."""
    W = W.double()
    return Initial(W, *torch.linalg.qr(W))


def product_update_singular_values(
    A: Float[Tensor, "*batch row inner"],
    B: Float[Tensor, "*batch col inner"],
    A_0: Initial,
    B_0: Initial,
) -> Float[Tensor, "*batch rank"]:
    r"""The singular values of $A B^\top - A_0 B_0^\top$, with less work along a run.

    They equal those of the product of `update_factors`. With $A - A_0 = [Q_{A_0}, Q_\perp] M_A$ and
    likewise for B, they are the singular values of a small core,
    $M_A (M_B + [R_{B_0}; 0])^\top + [R_{A_0}; 0] M_B^\top$: only what moved out of the initial span
    is decomposed anew.
    """
    inner = A.shape[-1]
    if 2 * inner >= min(A.shape[-2], B.shape[-2]):
        return product_singular_values(*update_factors(A, B, A_0.W, B_0.W))
    M_A = _moved(A, A_0)
    M_B = _moved(B, B_0)
    from_start = A_0.R @ M_B.mT
    M_B[..., :inner, :] += B_0.R
    core = M_A @ M_B.mT
    core[..., :inner, :] += from_start
    return torch.linalg.svdvals(core)


def _moved(W: Tensor, start: Initial) -> Tensor:
    """W - W_0 in the basis [Q_0, Q_⊥]."""
    move = W.double() - start.W
    inside = start.Q.mT @ move
    outside = torch.linalg.qr(move - start.Q @ inside, mode="r").R
    return torch.cat([inside, outside], -2)


def gaussian_of_equal_norm(
    W: Float[Tensor, "*batch row col"], generator: torch.Generator
) -> Float[Tensor, "*batch row col"]:
    """A Gaussian matrix with the Frobenius norm of each W: an update without structure."""
    G = torch.randn(W.shape, generator=generator, dtype=torch.float64)
    norm = torch.linalg.matrix_norm
    return G * (norm(W.double()) / norm(G))[..., None, None]
