r"""Low-rank adapters (LoRA, Hu et al. 2022): $W_0 + B A$ with A rank × in and B out × rank.

This is the form for a matrix as in the paper, out × in. The model keeps W_O that way; it keeps the
other matrices transposed, and they have $W_0 + (B A)^\top$.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from lib.low_rank_sparse.one_layer import MATRICES, Weights


def initial_adapters(
    weights: Weights, rank: int, source: Callable[[str], torch.Generator]
) -> Weights:
    r"""An adapter for each matrix, with B = 0, so that the weights begin at $W_0$.

    A has entries N(0, 1/rank), so that $\mathrm{E}[A^\top A] = I$. `source` has a generator for
    each matrix.
    """
    found: Weights = {}
    for name in MATRICES:
        n_out, n_in = as_in_the_paper(weights, name).shape
        A = torch.randn(rank, n_in, generator=source(name)) / rank**0.5
        found[f"A {name}"] = A.to(weights[name].device)
        found[f"B {name}"] = weights[name].new_zeros(n_out, rank)
    return found


def adapters_gradient(adapters: Weights, slopes: Weights) -> Weights:
    r"""The gradients of A and B, from the gradient ∇ of $W_0 + B A$: $B^\top ∇$ and $∇ A^\top$."""
    found: Weights = {}
    for name in MATRICES:
        slope = as_in_the_paper(slopes, name)
        found[f"A {name}"] = adapters[f"B {name}"].mT @ slope
        found[f"B {name}"] = slope @ adapters[f"A {name}"].mT
    return found


def adapted(initial: Weights, adapters: Weights) -> Weights:
    """The weights W(0) + B A, as they are kept."""
    updates = {name: adapters[f"B {name}"] @ adapters[f"A {name}"] for name in MATRICES}
    return {name: initial[name] + as_in_the_paper(updates, name) for name in MATRICES}


def as_in_the_paper(weights: Weights, name: str) -> Tensor:
    """The matrix as in the paper, out × in; applied again, as it is kept."""
    return weights[name] if name == "W_O" else weights[name].mT
