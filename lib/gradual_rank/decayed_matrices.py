r"""Weight decay on heads with full matrices: descent, its first rise, and where it rests.

Decay of both factors of a product $W = P Q^\top$ has the nuclear norm of W in the place of the
1-norm that it has on diagonal networks (`decay`): the end point is stationary for $L + \lambda
\|W\|_*$. This is ours, not the paper's; the proofs are in docs/gradual_rank.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lib.gradual_rank.full_heads import SharedTokensHead, first_rise, gaussian_factors, targets
from lib.gradual_rank.tasks import tokens_of
from lib.training.gradient_descent import Step, Weights, descent

Factors = Float[Tensor, "side product seed decay d d"]
Rest = tuple[Float[np.ndarray, "seed decay"], Float[np.ndarray, "seed decay"]]


@dataclass(frozen=True)
class DecayedHeads:
    r"""Heads of several seeds, each trained with several decays λ from the same start.

    With $G = -\partial L / \partial W_{VO}$ at 0, `sigma` is $\sigma_1(G)$: with $\lambda \ge
    \sigma_1$ nothing rises.
    """

    head: SharedTokensHead
    start: Factors
    loss_at_zero: Float[Tensor, "seed decay"]
    G: Float[Tensor, "seed decay d d"]
    sigma: Float[Tensor, "seed decay"]
    decays: Float[Tensor, "seed decay"]

    @classmethod
    def drawn(
        cls, seeds: Sequence[int], sizes: tuple[int, int, int], shares: Sequence[float]
    ) -> "DecayedHeads":
        r"""The heads of these seeds, with decays that are shares of $\sigma_1(G)$.

        Tokens, a teacher of full rank and the start have N(0, 1) entries; the sizes are the number
        of samples, their length and the width of their tokens.
        """
        together = (-1, len(shares), -1, -1, -1)
        X = tokens_of(seeds, *sizes)
        d = sizes[-1]
        head = SharedTokensHead(X, targets(X, seeds, [d]).expand(together))
        start = gaussian_factors(d, seeds, "full start")[:, :, :, None]
        start = start.expand(-1, -1, *together[:-1])
        zero = torch.zeros_like(start[0, 0])
        loss, _, G = head.loss_and_gradients(zero, zero)
        sigma = torch.linalg.matrix_norm(G, 2)
        return cls(head, start, loss, G, sigma, torch.tensor(shares, dtype=torch.float64) * sigma)

    def expected_rise(
        self, log_scale: float, threshold: float, rate: float
    ) -> Float[Tensor, "seed decay"]:
        """When the first direction of W_VO comes to the threshold, from the start times
        e^log_scale; infinite where none rises (`decayed_rise`).
        """
        forecast = first_rise(self.G, self.start, log_scale, threshold, rate)
        return decayed_rise(forecast, self.sigma, self.decays, rate)

    def descent(self, scale: float, rate: float) -> Iterator[Step]:
        """Gradient descent from the start times the scale (`decayed_descent`)."""
        return decayed_descent(self.head, scale * self.start, rate, self.decays)

    def rests(self, W: Factors, threshold: float) -> dict[str, Rest]:
        """The `spectral_rest` of both products: of what has risen of each, and of what has not."""
        P, Q = W
        products = P @ Q.mT
        _, *slopes = self.head.loss_and_gradients(*products)
        return {
            name: spectral_rest(products[k], slopes[k], self.decays, threshold)
            for k, name in enumerate(("KQ", "VO"))
        }

    def at_rest(self, W: Factors, threshold: float, near: float) -> bool:
        """Whether every head with a decay is as near to rest as a share of λ.

        What has not risen of a product is seldom at rest, and costs a fifth of `rests`: it is asked
        first.
        """
        decaying = self.decays > 0
        P, Q = W
        _, *slopes = self.head.loss_and_gradients(*(P @ Q.mT))
        for G in slopes:
            if bool((off_rest(G, self.decays)[decaying] > near).any()):
                return False
        found = np.array([*self.rests(W, threshold).values()])
        return bool(found[..., decaying.numpy()].max() <= near)


def largest_of(W: Factors) -> Float[Tensor, "seed decay"]:
    """The largest singular value of W_VO."""
    P, Q = W[:, 1]
    return torch.linalg.matrix_norm(P @ Q.mT, 2)


def ranks_of(W: Factors, threshold: float) -> dict[str, Int[np.ndarray, "seed decay"]]:
    """How many singular values of each product are above the threshold."""
    return {
        name: (torch.linalg.svdvals(W[0, k] @ W[1, k].mT) > threshold).sum(-1).numpy()
        for k, name in enumerate(("KQ", "VO"))
    }


def decayed_descent(
    head: SharedTokensHead,
    start: Float[Tensor, "side product *batch training d d"],
    rate: float,
    decays: Float[Tensor, "*batch training"],
) -> Iterator[Step]:
    r"""Gradient descent of factors with weight decay: $P \mathrel{+}= \eta (G Q - \lambda P)$, $Q
    \mathrel{+}= \eta (G^\top P - \lambda Q)$.
    """
    each = decays[..., None, None]

    def moved(_: int, W: Weights, slopes: Weights) -> Weights:
        return {"factors": W["factors"] + rate * (slopes["factors"] - each * W["factors"])}

    return descent(head.loss_and_slopes, {"factors": start}, moved)


def decayed_rise(
    forecast: Mapping[str, Tensor], sigma: Tensor, decays: Tensor, rate: float
) -> Tensor:
    r"""When the first singular value rises under descent with decay; infinite where $\lambda \ge
    \sigma$.

    The joint direction grows by $1 + \eta (\sigma - \lambda)$ a step; without decay by $e^{\eta
    \sigma}$ in the `finite` forecast of `first_rise`.
    """
    growth = torch.log1p(rate * (sigma - decays)) / rate
    return torch.where(growth > 0, forecast["finite"] * sigma / growth, math.inf)


def spectral_rest(
    W: Float[Tensor, "*batch d d"],
    G: Float[Tensor, "*batch d d"],
    decays: Float[Tensor, "*batch"],
    risen: float,
) -> tuple[Float[np.ndarray, "*batch"], Float[np.ndarray, "*batch"]]:
    r"""How far W is from rest under $L + \lambda \|W\|_*$, on what has risen and off it.

    Both are shares of λ. With U, V the singular vectors whose singular value is above `risen`, they
    are the spectral norm of $U^\top G V - \lambda$, and what σ₁(G) is above λ.
    """
    U, sigma, Vh = torch.linalg.svd(W)
    there = (sigma > risen).to(W.dtype)
    inner = U.mT @ G @ Vh.mT - decays[..., None, None] * torch.eye(W.shape[-1], dtype=W.dtype)
    on = torch.linalg.matrix_norm(inner * there[..., None] * there[..., None, :], 2)
    return (on / decays).numpy(), off_rest(G, decays).numpy()


def off_rest(
    G: Float[Tensor, "*batch d d"], decays: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    r"""What $\sigma_1(G)$ is above λ, as a share of λ: at rest nothing that has not risen rises."""
    return (torch.linalg.matrix_norm(G, 2) - decays) / decays
