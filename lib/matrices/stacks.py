"""Matrices and products of a run, stacked over seeds, layers and heads, and their spectra as rows.

`Weights` are tensors by name. A product such as `W_KQ` is named by its two factors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lib.matrices.spectra import (
    Initial,
    gaussian_of_equal_norm,
    initial_factor,
    product_singular_values,
    product_update_singular_values,
    singular_values,
)

Weights = Mapping[str, Tensor]
Products = Mapping[str, Sequence[str]]


def factors_at_start(initial: Weights, products: Products) -> dict[str, Initial]:
    """The decompositions of all factors of products at the start."""
    return {name: initial_factor(initial[name]) for pair in products.values() for name in pair}


def with_gaussian_updates(
    initial: Weights, final: Weights, names: Sequence[str], draw: Callable[[str], torch.Generator]
) -> dict[str, Tensor]:
    r"""$W(0) + G$ of each of these matrices, with $\|G\|_F = \|W(T) - W(0)\|_F$, in float64.

    `draw` gives the generator of the name of a matrix.
    """
    return {
        name: initial[name]
        + gaussian_of_equal_norm(final[name].double() - initial[name].double(), draw(name))
        for name in names
    }


def initial_spectrum(
    name: str, weights: Weights, products: Products
) -> Float[Tensor, "*batch rank"]:
    """The singular values of a matrix or product."""
    if name in products:
        a, b = products[name]
        return product_singular_values(weights[a], weights[b])
    return singular_values(weights[name].double())


def update_spectrum(
    name: str,
    weights: Weights,
    initial: Weights,
    factors: Mapping[str, Initial],
    products: Products,
) -> Float[Tensor, "*batch rank"]:
    """The singular values of what was added to a matrix or product since the start."""
    if name in products:
        a, b = products[name]
        return product_update_singular_values(weights[a], weights[b], factors[a], factors[b])
    return singular_values(weights[name].double() - initial[name].double())


def rows_of(
    sigma: Float[Tensor, "*batch rank"],
    axes: Sequence[str],
    seeds: Sequence[int],
    labels: Mapping[str, Any],
) -> pd.DataFrame:
    """One row per matrix of a stack: its labels, whose it is, and its singular values.

    `axes` are those of the stack, some of seed, layer and head; `seeds` are those of the first.
    """
    flat = sigma.reshape(-1, sigma.shape[-1])
    indices = np.indices(sigma.shape[:-1]).reshape(len(axes), len(flat))
    places = dict(zip(axes, indices, strict=True))
    own = np.array(seeds)[places["seed"]] if "seed" in places else next(iter(seeds), 0)
    return pd.DataFrame(
        {
            **labels,
            "seed": own,
            "layer": places["layer"] + 1 if "layer" in places else 0,
            "head": places["head"] + 1 if "head" in places else 0,
            "singular_values": list(flat.numpy()),
        }
    )
