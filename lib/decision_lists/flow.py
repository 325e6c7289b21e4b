r"""Gradient flow on W from 0 at V = cP: exact, in the limit of large c, and of uniform subsets.

A flow is followed in u = cW and $\tau = c^2 t$, whose scale does not depend on c.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from math import comb

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lib.decision_lists.attention import Rows
from lib.decision_lists.fixed_values import FixedValues
from lib.decision_lists.lists import Task
from lib.training.stiff_flow import Step, stiff_flow

Vector = Float[np.ndarray, " n"]


@cache
def _subsets_of_one_query(
    n_tokens: int, seq_len: int, m: int
) -> tuple[Float[Tensor, " sequence"], Float[Tensor, "sequence place"]]:
    """The chances of the kinds of sequences that hold a query, and how many tokens of each place
    they hold: those outside of its list first.
    """
    outside = n_tokens - m
    everything = comb(n_tokens - 1, seq_len - 1)
    chances = []
    present = []
    for held in range(2 ** (m - 1)):
        heads = [float(held >> (i - 1) & 1) for i in range(1, m)]
        others = seq_len - 1 - int(sum(heads))
        if 0 <= others <= outside:
            chances.append(comb(outside, others) / everything)
            present.append([float(others), *heads, 1.0])
    return torch.tensor(chances, dtype=torch.float64), torch.tensor(present, dtype=torch.float64)


def exchangeable_loss_gradient(
    w: Float[Tensor, " place"], n_tokens: int, seq_len: int, scale: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " place"]]:
    r"""The loss of one query, and its gradient, for uniform subsets and V = cP, in $2^{m-1}$ terms.

    By symmetry the column of a query holds m + 1 values: w[0] for every token outside of its list,
    w[i] for the entry $a_i$. The loss is the mean over sequences that hold the query; in the
    population loss each query counts 1 / n_tokens. The gradient in w[0] is that of each single
    token outside of the list.
    """
    m = len(w) - 1
    outside = n_tokens - m
    probability, counts = _subsets_of_one_query(n_tokens, seq_len, m)
    rest = counts[:, :1]
    star = counts[:, 1:].argmax(1, keepdim=True) + 1
    alpha = torch.softmax(
        torch.where(counts > 0, 0.0, -torch.inf) + w + counts.clamp(min=1).log(), -1
    )
    each = alpha / counts.clamp(min=1)  # the attention to a single token
    absent = torch.full_like(rest, float(n_tokens - seq_len))
    log_many = torch.cat([counts, absent], 1).log()
    z = torch.cat([scale * each, torch.zeros_like(rest)], 1)
    total = torch.logsumexp(z + log_many, -1, keepdim=True)
    loss = (probability * (total - z.gather(1, star))[:, 0]).sum()
    p = (z - total).exp()[:, :-1]  # the probability of a single token's label
    d = scale * p.scatter_add(1, star, torch.full_like(total, -1.0))
    pulled = each * (d - (alpha * d).sum(1, keepdim=True))
    share = (counts > 0).double()
    share[:, :1] = rest / max(outside, 1)  # the chance that a given outside token is there
    return loss, (probability[:, None] * share * pulled).sum(0)


class Flow(ABC):
    """A flow from W = 0, in states that are flat arrays."""

    start: Vector
    repeats = False  # whether a token may be in a sequence more than once

    @abstractmethod
    def velocity(self, u: Vector) -> Vector:
        r"""$\dot u$."""

    @abstractmethod
    def margin(self, u: Vector) -> float:
        """The least margin, in u: all is right where it is positive."""

    def steps(
        self, end: float, rtol: float, *, state: Vector | None = None, begin: float = 0.0
    ) -> Iterator[Step]:
        """The steps to a rescaled time, from the start or from the state at another time."""
        start = self.start if state is None else state
        return stiff_flow(self.velocity, None, start, end, rtol=rtol, atol=rtol, begin=begin)

    def at_once(self) -> bool:
        """Whether all is right at every small time after 0.

        This is so where the first velocity orders every column strictly.
        """
        return self.margin(self.velocity(self.start)) > 0 and not self.repeats


class ScaledFlow(Flow):
    r"""The flow at a scale c, $\dot u = -\nabla_W(u / c) / c$; at ∞ that of choices
    (`FixedValues.ascent_of_choices`).
    """

    def __init__(self, task: Task, scale: float):
        self.rows = FixedValues(Rows.of(task.counts, task.chances, task.star, task.place))
        self.scale = scale
        self.n_tokens = task.n_tokens
        self.seq_len = task.seq_len
        self.repeats = self.rows.repeats
        self.start = np.zeros(self.n_tokens**2)

    def weights(self, x: Vector) -> Float[Tensor, "key query"]:
        """W in that state."""
        return torch.from_numpy(x).view(self.n_tokens, self.n_tokens) / self.scale

    def velocity(self, u: Vector) -> Vector:
        r"""$\dot u$."""
        if math.isinf(self.scale):
            return self.rows.ascent_of_choices(u)
        return self.rows.ascent(u / self.scale, self.scale)

    def measured(self, x: Vector) -> dict[str, float]:
        """The loss, the accuracy over the law, and the least margin, in u."""
        margins = self.margins(x)
        return {
            "loss": float(self.rows.weight @ self.rows.losses(x / self.scale, self.scale)),
            "accuracy": float(self.rows.weight[margins > 0].sum()),
            "margin": float(margins.min()),
        }

    def margins(self, x: Vector) -> Float[np.ndarray, " row"]:
        """The margin of each row, in u.

        Without repeats the logarithms of the counts are zero, and u alone decides.
        """
        if not self.repeats:
            return self.rows.margins(x)
        return self.rows.margins(x / self.scale) * self.scale

    def margin(self, u: Vector) -> float:
        """The least margin of a row."""
        return float(self.margins(u).min())

    def largest_attention(self, x: Vector) -> float:
        r"""$\max n \alpha$ over all rows: 1 where attention is uniform."""
        return float(self.rows.attention(x / self.scale).max()) * self.seq_len

    def attention_to_star(self, x: Vector) -> float:
        """The mean attention to the token that determines the label."""
        return float(self.rows.weight @ self.rows.attention_to_star(x / self.scale))


class ExchangeableFlow(Flow):
    """The flow for uniform subsets, in the m + 1 values of a column."""

    def __init__(self, n_tokens: int, seq_len: int, length: int, scale: float):
        self.n_tokens = n_tokens
        self.seq_len = seq_len
        self.length = length
        self.scale = scale
        self.start = np.zeros(length + 1)

    def velocity(self, u: Vector) -> Vector:
        r"""$\dot u$."""
        w = torch.from_numpy(u) / self.scale
        c = self.scale
        gradient = exchangeable_loss_gradient(w, self.n_tokens, self.seq_len, c)[1]
        return -gradient.numpy() / (c * self.n_tokens)

    def margin(self, u: Vector) -> float:
        """The least lead of an entry of the list over what comes after it and is outside."""
        return float(min(u[i] - max([u[0], *u[i + 1 :]]) for i in range(1, self.length + 1)))
