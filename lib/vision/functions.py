"""How near the outputs of two models are, and updates of one spectrum in random directions."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from lib.vision.cuts import in_heads, whole
from lib.vision.vit import MATRICES, Weights, logits

LARGEST = 64.0  # times a part that is added, at most


class Svd(NamedTuple):
    """The decomposition U diag(σ) Vᵀ of a matrix's update over all heads, by layer, in float64."""

    U: Float[Tensor, "layer row rank"]
    sigma: Float[Tensor, "layer rank"]
    Vh: Float[Tensor, "layer rank col"]


def updates(initial: Weights, final: Weights) -> dict[str, Svd]:
    """What training added to every matrix of the blocks."""
    changes = {
        name: whole(final[name], name).double() - whole(initial[name], name).double()
        for name in MATRICES
    }
    return {name: Svd(*torch.linalg.svd(W, full_matrices=False)) for name, W in changes.items()}


def in_random_directions(learned: dict[str, Svd], generator: torch.Generator) -> dict[str, Svd]:
    """The same singular values with the singular vectors of Gaussian matrices, uniformly random."""
    found = {}
    for name, (U, sigma, Vh) in learned.items():
        shape = (*U.shape[:-1], Vh.shape[-1])
        G = torch.randn(shape, generator=generator, dtype=torch.float64)
        U_G, _, Vh_G = torch.linalg.svd(G, full_matrices=False)
        found[name] = Svd(U_G, sigma, Vh_G)
    return found


def added(model: Weights, parts: dict[str, Svd], which: slice, times: float = 1.0) -> Weights:
    """The model with these singular directions of every part added, times a number."""
    changed = {}
    for name, (U, sigma, Vh) in parts.items():
        update = U[..., which] * sigma[..., None, which] @ Vh[..., which, :]
        W = whole(model[name], name)
        changed[name] = in_heads((W.double() + times * update).to(W.dtype), name, model)
    return model | changed


def times_at_loss(loss: Callable[[float], float], level: float) -> float:
    """The number c, to a hundredth, at which a loss that is below the level at 0 comes up to it.

    NaN where it is not below at 0, or not above up to `LARGEST`.
    """
    high = 1.0
    while loss(high) < level:
        high *= 2
        if high > LARGEST:
            return math.nan
    if loss(0.0) >= level:
        return math.nan
    return float(brentq(lambda c: math.log(loss(c) / level), 0.0, high, xtol=1e-2))


@torch.no_grad()
def distances(
    model: Weights, other: Weights, images: Float[Tensor, "n channel height width"]
) -> dict[str, float]:
    r"""How far the outputs of a model are from those of another one.

    `logits`: $\|z - z'\| / \|z'\|$ of the logits less their mean over classes, which the softmax
    does not see; `softmax`: the mean total variation $\frac12 \sum_c |p_c - p'_c|$; `agreement`:
    the share of images with the same prediction.
    """
    z, other_z = (logits(weights, images).double() for weights in (model, other))
    z, other_z = (found - found.mean(1, keepdim=True) for found in (z, other_z))
    variation = (z.softmax(1) - other_z.softmax(1)).abs().sum(1).mean() / 2
    return {
        "logits": float((z - other_z).norm() / other_z.norm()),
        "softmax": float(variation),
        "agreement": float((z.argmax(1) == other_z.argmax(1)).double().mean()),
    }
