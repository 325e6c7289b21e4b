r"""The flow of normalised heads in the limit of small weights: when keys turn, how values grow.

No scale of the weights occurs in it. $W_{VO}$ is that of weights of scale α over α²;
docs/qk_norm.md has the proofs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from lib.gradual_rank.normalized_heads import (
    Each,
    Heads,
    Moment,
    Weights,
    flow,
    norm,
    products,
    singular_values,
)
from lib.matrices.directions import first_time

Vector = Float[np.ndarray, " _"]
LEAST = 1e-300  # in the place of zero, where a logarithm is taken


class LimitCourse(NamedTuple):
    """A head along its flow in the limit."""

    times: Vector
    turned: Vector  # how far W_KQ is from its start, over the norm that it had there
    sigma: Vector  # the first singular value of W_VO
    pull: Vector  # the Frobenius norm of W_VO, to which the speed of keys is proportional
    growth: Vector  # σ₁(G) under the attention of the time

    def turn(self, share: float) -> float:
        """When W_KQ has moved by a share of its norm."""
        return first_time(self.times, self.turned.clip(LEAST), share)

    def rate(self, begin: float, end: float, decay: float = 0.0) -> float:
        r"""The rate at which W_VO grows: the mean of $\sigma_1(G)$ less its weight decay.

        The mean is over the time in which the first singular value goes from `begin` to `end`; it
        is NaN where the start is beyond that.
        """
        sigma = self.sigma * np.exp(-2 * decay * self.times)
        counted = (sigma >= begin) & (sigma <= end)
        if counted.sum() < 2:
            return math.nan
        times = self.times[counted]
        return float(np.trapezoid(self.growth[counted], times) / np.ptp(times) - decay)


def limit_courses(
    heads: Heads, start: Weights, longest: float, turned: float, end: float, decays: Each
) -> list[LimitCourse]:
    """Every head in the limit, until W_KQ has turned and W_VO, less its decay, is at the end.

    The `heads` are linear in W_VO, without a decay of their own. Their gains are fixed: a gain
    moves as fast as W_VO is large.
    """
    first = products(start).KQ
    rows: list[list[tuple[float, ...]]] = [[] for _ in start.gain]
    turned_once = np.zeros(len(rows), bool)

    def over(moment: Moment) -> np.ndarray:
        own = moment.heads
        last = [LimitCourse._make(rows[head][-1]) for head in own]
        turned_once[own] |= np.array([row.turned for row in last]) >= turned
        sigma = np.array([row.sigma for row in last])
        grown = sigma * np.exp(-2 * decays[own] * moment.times)
        return turned_once[own] & (grown >= end)

    for moment in flow(heads, start, longest, over):
        own = moment.heads
        W_KQ, W_VO = products(moment.weights)
        columns = LimitCourse(
            times=moment.times,
            turned=norm(W_KQ - first[own]) / norm(first[own]),
            sigma=singular_values(W_VO)[:, 0],
            pull=norm(W_VO),
            growth=heads.only(own).growth(moment.weights),
        )
        for head, row in zip(own, zip(*columns, strict=True), strict=True):
            rows[head].append(row)
    return [LimitCourse(*np.array(own).T) for own in rows]


def rise_in_the_limit(risen: float, log10_init_scales: Sequence[float]) -> tuple[float, float]:
    """The singular values over α² at which W_VO is `risen` from the last two of some scales α."""
    begin, end = (risen / 10.0 ** (2 * scale) for scale in log10_init_scales[-2:])
    return begin, end
