r"""Low-rank adapters (LoRA, Hu et al. 2022): $W_0 + B A$ with A rank × in and B out × rank.

So it is for a matrix as in the paper, out × in. Of the model's matrices W_O is kept so; the others
are kept transposed, and have $W_0 + (B A)^\top$.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lib.low_rank_sparse.one_layer import MATRICES

Weights = dict[str, Tensor]


def initial_adapter(
    n_in: int, n_out: int, rank: int, generator: torch.Generator
) -> tuple[Float[Tensor, "rank n_in"], Float[Tensor, "n_out rank"]]:
    r"""A with entries N(0, 1/rank), so that $\mathrm{E}[A^\top A] = I$, and B = 0: $W_0$ itself."""
    return torch.randn(rank, n_in, generator=generator) / rank**0.5, torch.zeros(n_out, rank)


def adapter_gradient(
    A: Float[Tensor, "rank n_in"],
    B: Float[Tensor, "n_out rank"],
    slope: Float[Tensor, "n_out n_in"],
) -> tuple[Float[Tensor, "rank n_in"], Float[Tensor, "n_out rank"]]:
    r"""The gradients of A and B from that of $W_0 + B A$: $B^\top \nabla$ and $\nabla A^\top$."""
    return B.mT @ slope, slope @ A.mT


def initial_adapters(
    weights: Weights, rank: int, source: Callable[[str], torch.Generator]
) -> Weights:
    """An adapter for each matrix; `source` has a generator for each."""
    found: Weights = {}
    for name in MATRICES:
        n_out, n_in = as_in_the_paper(weights, name).shape
        A, B = initial_adapter(n_in, n_out, rank, source(name))
        found[f"A {name}"] = A.to(weights[name].device)
        found[f"B {name}"] = B.to(weights[name].device)
    return found


def adapters_gradient(adapters: Weights, slopes: Weights) -> Weights:
    """The gradients of all adapters from those of the matrices."""
    found: Weights = {}
    for name in MATRICES:
        found[f"A {name}"], found[f"B {name}"] = adapter_gradient(
            adapters[f"A {name}"], adapters[f"B {name}"], as_in_the_paper(slopes, name)
        )
    return found


def adapted(initial: Weights, adapters: Weights) -> Weights:
    """The weights W(0) + B A, as they are kept."""
    updates = {name: adapters[f"B {name}"] @ adapters[f"A {name}"] for name in MATRICES}
    return {name: initial[name] + as_in_the_paper(updates, name) for name in MATRICES}


def as_in_the_paper(weights: Weights, name: str) -> Tensor:
    """A matrix the paper's way, out × in; from there, as it is kept."""
    return weights[name] if name == "W_O" else weights[name].mT
