"""Descents of a head until the first direction of W_VO has risen, and what they show of the wait.

A descent has one optimiser and one init scale; heads of all seeds go side by side.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import torch
from jaxtyping import Float, Int

from lib.gradual_rank.full_heads import SharedTokensHead
from lib.gradual_rank.optimizers import Adam
from lib.matrices.directions import first_time
from lib.training.gradient_descent import Weights

Each = Float[np.ndarray, " seed"]
Course = Float[np.ndarray, "step seed two"]  # of the first and the second direction
MIDDLE = (1 / 3, 2 / 3)  # the shares of the wait between which growth is taken


@dataclass
class Momentum:
    r"""The step $b_{t+1} = \beta b_t + G$ of torch.optim.SGD, or Nesterov's $G + \beta b_{t+1}$.

    The learning rate multiplies b when it is applied, and b is zero before the first step.
    """

    beta: float
    nesterov: bool = False
    b: Weights = field(default_factory=dict)

    def __call__(self, G: Weights) -> Weights:
        """The step, after G has joined b."""
        self.b = {name: g + self.beta * self.b[name] if self.b else g for name, g in G.items()}
        if not self.nesterov:
            return self.b
        return {name: g + self.beta * self.b[name] for name, g in G.items()}


@dataclass(frozen=True)
class Saddle:
    r"""The linear dynamics of heads at zero weights: the leading triplets of $G = -\partial L /
    \partial W_{VO}$ there.
    """

    U: Float[torch.Tensor, "seed d d"]
    sigma: Float[torch.Tensor, "seed d"]
    Vh: Float[torch.Tensor, "seed d d"]

    @classmethod
    def of(cls, head: SharedTokensHead, n_seeds: int, d: int) -> "Saddle":
        """The saddle of heads with one training for each seed."""
        zeros = torch.zeros(2, n_seeds, 1, d, d, dtype=torch.float64)
        return cls(*torch.linalg.svd(head.loss_and_gradients(*zeros)[2][:, 0]))

    def joint(self, factors: Float[torch.Tensor, "side product seed d d"]) -> Each:
        r"""The squares of $w = u^\top W_V + v^\top W_O$ along the first direction."""
        W_V, W_O = factors[:, 1]
        w = self.U[..., :, :1].mT @ W_V + self.Vh[..., :1, :] @ W_O
        return w.square().sum((-2, -1)).numpy()

    def along(
        self, W_VO: Float[torch.Tensor, "kept d d"], n: int, places: Int[np.ndarray, " kept"]
    ) -> Float[np.ndarray, "kept direction"]:
        r"""The sizes $|u^\top W_{VO} v|$ along the first n directions, of the heads of places."""
        inner = self.U[places, :, :n].mT @ W_VO @ self.Vh[places, :n].mT
        return inner.diagonal(dim1=-2, dim2=-1).abs().numpy()


@dataclass(frozen=True)
class Descent:
    """The two largest singular values of W_VO at every step, and its sizes along two directions."""

    sigma: Course
    along: Course

    def rises(self, threshold: float) -> Each:
        """When the first direction of each head has risen, in steps."""
        steps = np.arange(len(self.sigma), dtype=float)
        return np.array([first_time(steps, own, threshold) for own in self.sigma[..., 0].T])

    def growths(self, rises: Each) -> Float[np.ndarray, "seed two"]:
        """The growth of log |w| a step along both directions, in the middle third of each wait.

        NaN where that has no step.
        """
        found = np.full(self.along.shape[1:], np.nan)
        for seed, rise in enumerate(rises):
            if not np.isfinite(rise):
                continue
            begin, end = (int(share * rise) for share in MIDDLE)
            if end > begin:
                grown = np.log(self.along[end, seed] / self.along[begin, seed])
                found[seed] = grown / (end - begin) / 2
        return found

    def seconds(self, rises: Each) -> Each:
        """The second singular value over the first when each head has risen; NaN if it has not."""
        last = len(self.sigma) - 1
        steps = [int(np.ceil(rise)) if np.isfinite(rise) else last for rise in rises]
        shares = [
            self.sigma[step, seed, 1] / self.sigma[step, seed, 0] for seed, step in enumerate(steps)
        ]
        return np.where(np.isfinite(rises), shares, np.nan)


def until_risen(
    heads: Callable[[np.ndarray], SharedTokensHead],
    saddle: Saddle,
    factors: Float[torch.Tensor, "side product seed d d"],
    rule: Momentum | Adam,
    rates: Sequence[float],
    threshold: float,
) -> Descent:
    """Descend from the factors until every head has risen, or there is no further rate.

    `heads` gives the heads of some places. Once half of those that are followed have risen, these
    are left as they are, which changes nothing for the others.
    """
    places = np.arange(factors.shape[2])
    W = factors.unsqueeze(-3)
    head = heads(places)
    sigma: list[np.ndarray] = []
    along: list[np.ndarray] = []
    for rate in [*rates, 0.0]:
        P, Q = W[:, 1, :, 0]
        W_VO = P @ Q.mT
        values = torch.linalg.svdvals(W_VO)[..., :2].numpy()
        sigma.append(_with(sigma, places, values))
        along.append(_with(along, places, saddle.along(W_VO, 2, places)))
        waiting = np.flatnonzero(values[:, 0] < threshold)
        if not len(waiting):
            break
        if 2 * len(waiting) <= len(places):
            places = places[waiting]
            W = W[:, :, waiting]
            rule = of_heads(rule, waiting)
            head = heads(places)
        _, G = head.loss_and_slopes({"factors": W})
        W = W + rate * rule(G)["factors"]
    return Descent(np.stack(sigma), np.stack(along))


def of_heads(rule: Momentum | Adam, kept: Int[np.ndarray, " kept"]) -> Momentum | Adam:
    """The rule with what it remembers of some of its heads."""
    memories = {
        field.name: {name: one[:, :, kept] for name, one in getattr(rule, field.name).items()}
        for field in fields(rule)
        if isinstance(getattr(rule, field.name), dict)
    }
    return replace(rule, **memories)


def _with(rows: list[np.ndarray], places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The last row with other values at these places; the values alone where there is none."""
    found = rows[-1].copy() if rows else values
    found[places] = values
    return found
