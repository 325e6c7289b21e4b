r"""Low-rank adapters (LoRA, Hu et al. 2022): each matrix is $W_0 + B A$ with trained $A$ (rank ×
in), $B$ (out × rank).

In rows, $x W$ with $W = W_0 + (B A)^\top$; a matrix that is stored the paper's way (out × in) is
$W_0 + B A$.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Weights = dict[str, Tensor]


def initial_adapter(
    n_in: int, n_out: int, rank: int, generator: torch.Generator
) -> tuple[Float[Tensor, "rank n_in"], Float[Tensor, "n_out rank"]]:
    r"""A with entries N(0, 1/rank), so that $\mathrm{E}[A^\top A] = I$, and B = 0: the start is
    $W_0$.
    """
    return torch.randn(rank, n_in, generator=generator) / rank**0.5, torch.zeros(n_out, rank)


def adapter_gradient(
    A: Float[Tensor, "rank n_in"],
    B: Float[Tensor, "n_out rank"],
    slope: Float[Tensor, "n_out n_in"],
) -> tuple[Float[Tensor, "rank n_in"], Float[Tensor, "n_out rank"]]:
    r"""The gradients of A and B from that of $W_0 + B A$: $B^\top \nabla$ and $\nabla A^\top$."""
    return B.mT @ slope, slope @ A.mT
