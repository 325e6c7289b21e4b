r"""From the first saddle of a head to the second: what rises next, from starts of every size.

The way is $W_V W_O^\top = a b^\top$ with $\dot a = G(a b^\top) b$, $\dot b = G(a b^\top)^\top a$,
and leaves zero along the leading pair. It is the same for every small init scale, but for the time
at which it begins. What is small beside it, W_K and W_Q, and the columns of W_V and W_O across the
first direction's, moves linearly along it. docs/second_event.md has the proof.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

from lib.gradual_rank.saddles import Saddles, joint, leading, rates, slopes_at, spread
from lib.gradual_rank.scales import LOG10
from lib.training.stiff_flow import stiff_flow

Vector = Float[np.ndarray, " n"]
SMALL = 1e-4  # |a| where the way begins
LONG = 40.0  # its length, in units of 1 / σ₁
PARTS = 2  # of each step of the solver, in which what is small moves by the slope at the middle
LONGEST = 0.5  # such a part, in units of 1 / σ₁
LEAST = 1e-300  # in the place of zero, where a logarithm is taken
LOST = 1e-8  # the share of the first singular value below which rounding tells in the second
LOG_SCALES = (-2.0, -64.0)  # log10 of the scales between which a crossing is looked for


class Rises(NamedTuple):
    """When the first direction of W_VO, W_KQ and the second direction of W_VO rise."""

    first: float
    keys: float
    values: float


@dataclass(frozen=True)
class Connection:
    """The way of one head, at rising times, and what is small along it, from unscaled factors."""

    times: Vector
    log_keys: Vector  # log of the first singular value of W_KQ
    W_VO: Float[np.ndarray, "time d d"]
    maps: Float[np.ndarray, "time two_d two_d"]  # of the other columns of W_V and W_O
    G: Float[np.ndarray, "d d"]  # at zero
    W: Float[np.ndarray, "two_d d"]  # W_V above W_O, without the first direction's column
    length: float  # of w, along the first direction
    sigma: float  # the first one of G
    rates: tuple[float, float]  # of W_K, and of the second direction, at the end

    def begin(self, log10_init_scale: float) -> float:
        """The time of the flow from a scale at which the way begins."""
        log_size = math.log(2 * SMALL / self.length) - log10_init_scale * LOG10
        return log_size / self.sigma

    def first(self, log10_init_scale: float, risen: float) -> float:
        """When the first direction of W_VO would be at a size, if it grew on at its rate."""
        log_size = math.log(4 * risen / self.length**2) - 2 * log10_init_scale * LOG10
        return log_size / (2 * self.sigma)

    def keys(self, log10_init_scale: float, risen: float) -> float:
        """When the first singular value of W_KQ is at a size, from a scale."""
        log_size = math.log(risen) - 2 * log10_init_scale * LOG10
        when = reached(self.times, self.log_keys, log_size, 2 * self.rates[0])
        return self.begin(log10_init_scale) + when

    def values(self, log10_init_scale: float, risen: float) -> float:
        """When the second singular value of W_VO is at a size, from a scale."""
        begin = self.begin(log10_init_scale)
        U, s, Vh = np.linalg.svd(self.G)
        W_V, W_O = np.split(self.W, 2)
        w = np.exp(s * begin + log10_init_scale * LOG10)[:, None] * (U.T @ W_V + Vh @ W_O) / 2
        w[0] = 0  # but for rounding it is: the other columns have none of the first direction
        P, Q = np.split(self.maps @ np.concatenate([U @ w, Vh.T @ w]), 2, axis=-2)
        sizes = second_sizes(self.W_VO, P @ Q.swapaxes(-1, -2))
        log_sizes = np.log(np.maximum(sizes, LEAST))
        return begin + reached(self.times, log_sizes, math.log(risen), 2 * self.rates[1])

    def rises(self, log10_init_scale: float, risen: float) -> Rises:
        """When everything is at a size, from a scale, as long as nothing small has risen."""
        return Rises(
            self.first(log10_init_scale, risen),
            self.keys(log10_init_scale, risen),
            self.values(log10_init_scale, risen),
        )

    def crossing(self, risen: float) -> float:
        """log10 of the scale below which W_KQ rises before the second direction of W_VO.

        NaN where it does so from the larger of `LOG_SCALES`, or does not from the smaller.
        """

        def late(scale: float) -> float:
            return self.keys(scale, risen) - self.values(scale, risen)

        high, low = LOG_SCALES
        if not late(high) > 0 >= late(low):
            return math.nan
        return float(brentq(late, low, high, xtol=1e-3))


def second_sizes(
    W: Float[np.ndarray, "time d d"], other: Float[np.ndarray, "time d d"]
) -> Float[np.ndarray, " time"]:
    """The second singular values of sums of a matrix of rank one and another one.

    Where the other is lost in the rounding of the first, it is the first singular value of what it
    is across the pair of that.
    """
    sums = np.linalg.svd(W + other, compute_uv=False)[:, :2]
    u, _, v = leading(W)
    across = other - u[:, :, None] * (u[:, None, :] @ other)
    across = across - (across @ v[:, :, None]) * v[:, None, :]
    found = np.linalg.svd(across, compute_uv=False)[:, 0]
    return np.where(sums[:, 1] > LOST * sums[:, 0], sums[:, 1], found)


def reached(times: Vector, log_size: Vector, wanted: float, rate: float) -> float:
    """When a log first is at what is wanted; after the last time it goes on at a rate.

    Before the first time it is the first.
    """
    beyond = np.flatnonzero(log_size >= wanted)
    if not len(beyond):
        if rate <= 0:
            return math.inf
        return float(times[-1] + (wanted - log_size[-1]) / rate)
    place = int(beyond[0])
    if place == 0:
        return float(times[0])
    low = log_size[place - 1]
    high = log_size[place]
    share = (wanted - low) / (high - low)
    return float(times[place - 1] + share * (times[place] - times[place - 1]))


def connection(
    saddles: Saddles, head: int, factors: Float[np.ndarray, "matrix head d d"]
) -> Connection:
    """The way of one of the heads from its first saddle to the second."""
    one = np.array([head])
    heads = saddles.heads.only(one)
    G = saddles.G[head]
    C = saddles.C[head]
    d = len(G)
    (u,), (sigma,), (v,) = leading(G[None])

    def velocity(x: Vector) -> Vector:
        a = x[:d]
        b = x[d:]
        slope = G - np.outer(C @ a, b)
        return np.concatenate([slope @ b, slope.T @ a])

    start = SMALL * np.concatenate([u, v])
    moments = [0.0]
    middles = []
    path = [start]
    for step in stiff_flow(velocity, None, start, LONG / sigma, rtol=1e-8, atol=1e-11):
        n_parts = max(PARTS, math.ceil((step.time - step.before) * sigma / LONGEST))
        ends = np.linspace(step.before, step.time, n_parts + 1)
        moments += ends[1:].tolist()
        path += [step.path(t) for t in ends[1:]]
        middles += [step.path(t) for t in (ends[1:] + ends[:-1]) / 2]
    times = np.array(moments)
    a, b = np.split(np.array(middles), 2, axis=-1)
    slopes = slopes_at(heads.only(np.zeros(len(a), int)), a[:, :, None] * b[:, None, :])
    lasting = np.diff(times)
    W_K, W_Q, W_V, W_O = factors[:, head]
    (w,) = joint(saddles.G[one], factors[:, one])
    length = float(np.linalg.norm(w))
    across = np.eye(d) - np.outer(w, w) / length**2
    W = np.concatenate([W_V, W_O]) @ across
    first = np.array([sigma])
    at_end = slopes_at(heads, saddles.optimum(0, 1)[one])
    ends = np.array(path)
    return Connection(
        times=times,
        log_keys=log_sizes(spread(slopes.KQ, lasting), np.concatenate([W_K, W_Q])),
        W_VO=ends[:, :d, None] * ends[:, None, d:],
        maps=products(spread(slopes.VO, lasting)),
        G=G,
        W=W,
        length=length,
        sigma=float(sigma),
        rates=(float(rates(at_end.KQ, first)[0, 0]), float(rates(at_end.VO, first)[0, 0])),
    )


def products(maps: Float[np.ndarray, "step n n"]) -> Float[np.ndarray, "time n n"]:
    """The products of the first maps, none of them first."""
    found = [np.eye(maps.shape[-1])]
    for one in maps:
        found.append(one @ found[-1])
    return np.stack(found)


def log_sizes(
    maps: Float[np.ndarray, "step two_d two_d"], factors: Float[np.ndarray, "two_d d"]
) -> Vector:
    r"""The logs of $\sigma_1(P Q^\top)$ for $[P; Q]$ moved by one map after another.

    Factors are divided by their norm after every map, so that none is beyond floating point.
    """
    log_norm = 0.0
    found = [log_sigma(factors)]
    for one in maps:
        factors = one @ factors
        norm = float(np.linalg.norm(factors))
        factors = factors / norm
        log_norm += math.log(norm)
        found.append(2 * log_norm + log_sigma(factors))
    return np.array(found)


def log_sigma(factors: Float[np.ndarray, "two_d d"]) -> float:
    r"""The log of $\sigma_1(P Q^\top)$."""
    P, Q = np.split(factors, 2)
    return math.log(np.linalg.svd(P @ Q.T, compute_uv=False)[0])
