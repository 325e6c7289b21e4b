r"""Gradient descent from attention that starts small, followed until keys turn and values rise.

Time is the sum of the lengths of steps. A step is at most `step` long, and so short that no matrix
$W_Q$, $W_K$, $W_V$ or $W_O$ of a head moves by more than a share of its norm: from small weights
the relative rate of $W_K$ and $W_Q$ is of the size of $W_V W_O^\top$ over that at the start.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lib.training.attention import PRODUCTS
from lib.training.devices import generator
from lib.vision.images import Images, permuted, standardise
from lib.vision.vit import (
    ATTENTION,
    GAIN,
    Attention,
    ViT,
    Weights,
    training_loss,
    with_qk_norm,
)

SPACED = 1.1  # a state is kept where keys or values have moved so many times as far
Labels = Literal["true", "permuted"]


@dataclass(frozen=True)
class Descent:
    """How far and by which steps a training is followed.

    It ends where in some head W_K W_Qᵀ has moved by the share `turned` of its norm and in some head
    W_V W_Oᵀ by the norm `risen`, or at a time.
    """

    n_images: int
    step: float
    share: float
    turned: float
    risen: float
    until: float


def small_attention(
    model: ViT, images: Images, init_scale: float, attention: Attention, seed: int
) -> Weights:
    """The library's default weights, with those of the attention alone times a scale.

    From a small scale all else comes to rest where no image is seen, so that the theory of
    docs/qk_norm.md holds with the loss's gradient there.
    """
    drawn = generator(seed, "weights")
    weights = model.initial_weights(images.shape, images.n_classes, 1.0, "layers", drawn)
    small = {name: init_scale * weights[name] for name in ATTENTION}
    return with_qk_norm(weights | small) if attention == "qk_norm" else weights | small


def chosen(
    images: Images, n_images: int, labels: Labels, seed: int
) -> tuple[Float[Tensor, "image channel height width"], Int[Tensor, " image"]]:
    """Standardised training images that a seed draws, and their labels, in random order or not."""
    index = torch.randperm(images.n_train, generator=generator(seed, "images"))[:n_images]
    x = standardise(images.train_images[index], *images.statistics())
    y = images.train_labels[index]
    return x, permuted(y, generator(seed, "permuted labels")) if labels == "permuted" else y


def rates_of_values(weights: Weights, x: Tensor, y: Tensor) -> Float[Tensor, "layer head"]:
    r"""The largest singular value of $G = -\partial L / \partial(W_V W_O^\top)$ of every head.

    While W_V W_Oᵀ is small it grows as $e^{2 \sigma_1(G) t}$ under the attention of these weights.
    """
    *places, d_model, d_head = weights["W_V"].shape
    identity = torch.eye(d_model).expand(*places, d_model, d_model)
    added = torch.zeros(*places, d_model, d_model, requires_grad=True)
    # W_V W_Oᵀ + I addedᵀ; scores stay, as zeros make W_Q and W_K as wide.
    beside = {"W_Q": torch.zeros_like(added), "W_K": torch.zeros_like(added)}
    beside |= {"W_V": identity, "W_O": added}
    both = {name: torch.cat([weights[name], of], -1) for name, of in beside.items()}
    if GAIN not in weights:  # plain scores are over the root of the width
        both["W_Q"] = both["W_Q"] * math.sqrt(1 + d_model / d_head)
    (gradient,) = torch.autograd.grad(training_loss(weights | both, x, y, "float32"), added)
    return torch.linalg.matrix_norm(gradient, 2)


def follow(weights: Weights, x: Tensor, y: Tensor, how: Descent) -> list[dict[str, Any]]:
    """Train on all images at once until `how` ends it; a row for each state that is kept."""
    weights = {name: W.clone().requires_grad_() for name, W in weights.items()}
    start = {name: W.detach().clone() for name, W in weights.items()}
    rows: list[dict[str, Any]] = []
    time = 0.0
    step = 0
    while True:
        loss = training_loss(weights, x, y, "float32")
        gradients = dict(
            zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True)
        )
        with torch.no_grad():
            now = {"step": step, "time": time, "loss": loss.item()} | moved(weights, start)
        ended = now["keys"] >= how.turned and now["values"] >= how.risen
        ended |= time >= how.until
        last = rows[-1] if rows else None
        if last is None or ended or any(now[of] > SPACED * last[of] for of in ("keys", "values")):
            still = {name: W.detach() for name, W in weights.items()}
            rows.append(now | {"rate": rates_of_values(still, x, y).max().item()})
        if ended:
            return rows
        with torch.no_grad():
            relative = [norms(gradients[name]) / norms(weights[name]) for name in ATTENTION]
            length = min(how.step, how.share / torch.stack(relative).max().item())
            for name, W in weights.items():
                W -= length * gradients[name]
        time += length
        step += 1


def moved(weights: Weights, start: Weights) -> dict[str, float]:
    """How far the products of heads and the norms of W_K and W_Q have come: the largest of all."""
    updates = {}
    for name, (left, right) in PRODUCTS.items():
        before = start[left] @ start[right].mT
        updates[name] = (norms(weights[left] @ weights[right].mT - before), norms(before))
    keys, first = updates["W_KQ"]
    drifts = [
        (norms(weights[name]) / norms(start[name]) - 1).abs().max() for name in ("W_K", "W_Q")
    ]
    return {
        "keys": (keys / first).max().item(),
        "values": updates["W_VO"][0].max().item(),
        "drift": max(drifts).item(),
    }


def norms(W: Float[Tensor, "*place row col"]) -> Float[Tensor, "*place"]:
    """The Frobenius norm of every matrix."""
    return torch.linalg.matrix_norm(W)
