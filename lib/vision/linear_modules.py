r"""The linear modules of a vision transformer's blocks, as matrices W with outputs W x.

Weights are stored by layer, and those of attention cut by head in the papers' row convention (x W).
As in the usual libraries, a layer has six modules: the queries, keys and values of all heads side
by side, the output of all heads, and the two of the MLP. A module is [out, in].
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from lib.training.attention import merge_heads, split_heads
from lib.vision.vit import Weights

PROJECTIONS = ("W_Q", "W_K", "W_V")
LINEAR = (*PROJECTIONS, "W_O", "W_1", "W_2")
Module = Float[Tensor, "out in"]


def linear_modules(weights: Weights) -> dict[str, Module]:
    """Every module by its layer and name, such as `0.W_Q`."""
    return {
        f"{layer}.{name}": as_module(name, W)
        for name in LINEAR
        for layer, W in enumerate(weights[name].unbind())
    }


def as_module(name: str, W: Tensor) -> Module:
    """A layer's weight as it is stored, as [out, in]."""
    if name == "W_O":
        return merge_heads(W)
    return (merge_heads(W) if name in PROJECTIONS else W).T


def as_stored(name: str, module: Module, n_heads: int) -> Tensor:
    """The inverse of `as_module`."""
    if name == "W_O":
        return split_heads(module, n_heads)
    return split_heads(module.T, n_heads) if name in PROJECTIONS else module.T


def with_updates(weights: Weights, updates: Mapping[str, Module]) -> Weights:
    """The weights with an update added to every linear module, each by its name."""
    n_layers, n_heads = weights["W_Q"].shape[:2]
    added = {
        name: torch.stack(
            [as_stored(name, updates[f"{layer}.{name}"], n_heads) for layer in range(n_layers)]
        )
        for name in LINEAR
    }
    return weights | {name: weights[name] + update for name, update in added.items()}
