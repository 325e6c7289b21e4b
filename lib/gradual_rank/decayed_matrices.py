r"""Weight decay on heads with full matrices: descent, its first rise, and where it rests.

Decay of both factors of a product $W = P Q^\top$ has the nuclear norm of W in the place of the
1-norm that it has on diagonal networks (`decay`): the end point is stationary for $L + \lambda
\|W\|_*$. This is ours, not the paper's; the proofs are in docs/gradual_rank.md.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.gradual_rank.full_heads import SharedTokensHead, first_rise, gaussian_factors, targets
from lib.gradual_rank.tasks import tokens_of
from lib.training.gradient_descent import Step, Weights, descent

Factors = Float[Tensor, "side product seed decay d d"]
Rest = tuple[Float[np.ndarray, "seed decay"], Float[np.ndarray, "seed decay"]]


class Look(NamedTuple):
    """The factors and the losses of every training after a number of steps."""

    number: int
    factors: Factors
    loss: Float[Tensor, "seed decay"]


class Nearness(NamedTuple):
    """How near to rest, as a share of λ, a head counts as at rest; what is above `threshold` has
    risen.
    """

    threshold: float
    near: float


@dataclass(frozen=True)
class DecayedHeads:
    r"""Heads of several seeds, each trained with several decays λ from the same start.

    With $G = -\partial L / \partial W_{VO}$ at 0, `sigma` is $\sigma_1(G)$: with $\lambda \ge
    \sigma_1$ nothing rises.
    """

    X: Float[Tensor, "seed sample token d"]
    Y: Float[Tensor, "seed 1 sample token d"]
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
        X = tokens_of(seeds, *sizes)
        d = sizes[-1]
        Y = targets(X, seeds, [d])
        start = gaussian_factors(d, seeds, "full start")[:, :, :, None]
        start = start.expand(-1, -1, -1, len(shares), -1, -1)
        zero = torch.zeros_like(start[0, 0])
        loss, _, G = _trained_together(X, Y, len(shares)).loss_and_gradients(zero, zero)
        sigma = torch.linalg.matrix_norm(G, 2)
        return cls(X, Y, start, loss, G, sigma, torch.tensor(shares, dtype=torch.float64) * sigma)

    def expected_rise(
        self, log_scale: float, threshold: float, rate: float
    ) -> Float[Tensor, "seed decay"]:
        """When the first direction of W_VO comes to the threshold, from the start times
        e^log_scale; infinite where none rises (`decayed_rise`).
        """
        forecast = first_rise(self.G, self.start, log_scale, threshold, rate)
        return decayed_rise(forecast, self.sigma, self.decays, rate)

    @cached_property
    def head(self) -> SharedTokensHead:
        """The losses of all trainings."""
        return _trained_together(self.X, self.Y, self.decays.shape[1])

    def only(self, which: Int[Tensor, " kept"]) -> "DecayedHeads":
        """The heads with these of the decays."""
        return replace(
            self,
            start=self.start[:, :, :, which],
            loss_at_zero=self.loss_at_zero[:, which],
            G=self.G[:, which],
            sigma=self.sigma[:, which],
            decays=self.decays[:, which],
        )

    def looks(
        self, scale: float, rate: float, every: int, rest: Nearness | None = None
    ) -> Iterator[Look]:
        """Yield the states of gradient descent (`decayed_descent`) after every `every` steps, the
        scaled start first.

        With `rest`, a decay of which every head has come to rest is followed no longer: its heads
        stay as they are. The looks then end with the last decay; heads without any are never waited
        for.
        """
        W = scale * self.start
        loss = self.loss_at_zero
        moving = torch.arange(self.decays.shape[1])
        rested = torch.zeros(len(moving), dtype=torch.bool)
        begin = 0
        number = 0
        first = 0
        while True:
            heads = self.only(moving)
            steps = decayed_descent(heads.head, W[:, :, :, moving], rate, heads.decays)
            for step in islice(steps, first, None, every):
                number = begin + step.number
                now = step.weights["factors"]
                W = W.index_copy(3, moving, now)
                loss = loss.index_copy(1, moving, step.loss)
                yield Look(number, W, loss)
                if rest is not None:
                    rested = heads.at_rest(now, *rest).all(0)
                    if rested.any():
                        break
            begin = number
            first = every  # a look at where it begins has been yielded
            moving = moving[~rested]
            if not (self.decays[:, moving] > 0).any():
                return

    def rests(self, W: Factors, threshold: float) -> dict[str, Rest]:
        """The `spectral_rest` of both products: of what has risen of each, and of what has not."""
        P, Q = W
        products = P @ Q.mT
        _, *slopes = self.head.loss_and_gradients(*products)
        return {
            name: spectral_rest(products[k], slopes[k], self.decays, threshold)
            for k, name in enumerate(("KQ", "VO"))
        }

    def at_rest(self, W: Factors, threshold: float, near: float) -> Bool[Tensor, "seed decay"]:
        """Which heads are as near to rest as a share of λ; without decay none is.

        What has not risen of a product is seldom at rest, and costs a fifth of `rests`: it is asked
        first.
        """
        P, Q = W
        _, *slopes = self.head.loss_and_gradients(*(P @ Q.mT))
        off = torch.stack([off_rest(G, self.decays) for G in slopes]).amax(0)
        possible = (self.decays > 0) & (off <= near)
        if not possible.any():
            return possible
        found = np.array([*self.rests(W, threshold).values()])
        return possible & torch.from_numpy(found.max((0, 1)) <= near)


def _trained_together(X: Tensor, Y: Tensor, n: int) -> SharedTokensHead:
    """The losses of n trainings of each seed on the same tokens [seed, sample, token, d], with the
    same targets [seed, 1, sample, token, d].
    """
    return SharedTokensHead(X, Y.expand(-1, n, -1, -1, -1))


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
