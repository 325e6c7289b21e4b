r"""The saddles at which a head with full matrices waits while its attention is uniform.

While $W_K W_Q^\top$ is small the loss is a quadratic of $W = W_V W_O^\top$,

$L = L_0 - \langle G, W \rangle + \frac12 \langle W, C W \rangle$,

where G is minus its slope at zero and C the second moment of the means of the tokens. The optimum
of rank k is $C^{-1/2} (C^{-1/2} G)_k$, with the first k singular triplets, as in reduced-rank
regression. What is said here of the flow is proved in docs/second_event.md.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from lib.files.files import InputError
from lib.gradual_rank.normalized_heads import Each, Heads, Weights, singular_values

Squares = Float[np.ndarray, "head d d"]
Sigma = Float[np.ndarray, "saddle d"]
NOTHING = 1e-12  # the share of σ₁(G) below which a rate is one of rounding


class Slopes(NamedTuple):
    r"""Minus the slopes of the loss in both products of every head."""

    KQ: Squares
    VO: Squares


def slopes_at(heads: Heads, W_VO: Squares) -> Slopes:
    r"""The slopes at $W_K W_Q^\top = 0$ and a $W_V W_O^\top$ of each head."""
    one = np.broadcast_to(np.eye(W_VO.shape[-1]), W_VO.shape)
    factors = np.stack([np.zeros_like(W_VO), one, W_VO, one])
    _, slopes = heads.loss_and_slopes(Weights(factors, np.ones(len(W_VO))))
    return Slopes(slopes.factors[0], slopes.factors[2])


@dataclass(frozen=True)
class Saddles:
    """The loss of heads under uniform attention, as a quadratic of W_VO."""

    heads: Heads
    G: Squares
    C: Squares

    @classmethod
    def of(cls, heads: Heads) -> "Saddles":
        """The quadratic of these heads.

        Raises `InputError` where there are fewer sequences than dimensions: the means of their
        tokens do not span the space, and C has no inverse.
        """
        n_heads, n_samples, n_tokens, d = heads.X.shape
        if n_samples < d:
            raise InputError(f"n_samples: wanted at least d_model, which is {d}, got {n_samples}")
        means = heads.X.mean(-2)
        C = (2 * n_tokens / heads.Y[0].size) * (means.swapaxes(-1, -2) @ means)
        return cls(heads, slopes_at(heads, np.zeros((n_heads, d, d))).VO, C)

    def optimum(self, first: int, last: int) -> Squares:
        r"""The stationary point $C^{-1/2} (C^{-1/2} G)_{first < i \le last}$ of some triplets."""
        values, Q = np.linalg.eigh(self.C)
        root = (Q / np.sqrt(values)[:, None]) @ Q.swapaxes(-1, -2)
        U, s, Vh = np.linalg.svd(root @ self.G)
        these = slice(first, last)
        return root @ (U[..., these] * s[:, None, these]) @ Vh[:, these]

    def slopes(self, rank: int) -> Slopes:
        """The slopes at the optima of a rank."""
        return slopes_at(self.heads, self.optimum(0, rank))


class Events(NamedTuple):
    """When things rise in the limit of a small start, as times over log(1 / init scale)."""

    values: list[float]  # the directions of W_VO that rise before W_KQ, one after another
    keys: float  # W_KQ


def events(sigma_KQ: Sigma, sigma_VO: Sigma) -> Events:
    r"""The events of one head until W_KQ rises, from the singular values of the slopes at the
    optima of rank 0, 1, 2, ...

    The exponent of $W_K, W_Q \sim \alpha^{b}$ falls from one at the rate $\sigma_1(G_{KQ})$ of the
    saddle at which the head waits, and that of the j-th direction of W_VO that has not risen at
    $\sigma_j(G_{VO})$. What is first at zero rises. Infinite where W_KQ does not rise after the
    last of these saddles.
    """
    left = np.ones(sigma_VO.shape[1])
    keys = 1.0
    time = 0.0
    values: list[float] = []
    for of_KQ, of_VO in zip(sigma_KQ, sigma_VO, strict=True):
        waiting = left[len(values) :]
        wait = float(waiting[0] / of_VO[0]) if len(waiting) and of_VO[0] > 0 else math.inf
        if of_KQ[0] > 0 and keys / of_KQ[0] < wait:
            return Events(values, time + keys / float(of_KQ[0]))
        if wait == math.inf:
            break
        keys -= float(of_KQ[0]) * wait
        waiting -= of_VO[: len(waiting)] * wait
        time += wait
        values.append(time)
    return Events(values, math.inf)


def spread(G: Float[np.ndarray, "*batch d d"], time: Each | float) -> np.ndarray:
    r"""The map of $[P; Q]$ through a time t of the flow $\dot P = G Q$, $\dot Q = G^\top P$.

    With $G = U S V^\top$ its blocks are $U \cosh(S t) U^\top$, $U \sinh(S t) V^\top$ and their
    counterparts.
    """
    U, s, Vh = np.linalg.svd(G)
    at = s * np.asarray(time)[..., None]
    c = np.cosh(at)[..., None, :]
    h = np.sinh(at)[..., None, :]
    V = Vh.swapaxes(-1, -2)
    Uh = U.swapaxes(-1, -2)
    above = np.concatenate([(U * c) @ Uh, (U * h) @ Vh], -1)
    below = np.concatenate([(V * h) @ Uh, (V * c) @ Vh], -1)
    return np.concatenate([above, below], -2)


def rates(W: Squares, first: Each) -> Float[np.ndarray, "head d"]:
    """The singular values of slopes, beside the first one of G; zero where they are of rounding."""
    found = singular_values(W)
    return np.where(found > NOTHING * first[:, None], found, 0.0)


def leading(G: Squares) -> tuple[Float[np.ndarray, "head d"], Each, Float[np.ndarray, "head d"]]:
    """The first singular triplet u, σ and v of each matrix."""
    U, s, Vh = np.linalg.svd(G)
    return U[..., 0], s[..., 0], Vh[..., 0, :]


def overlap(W: Squares, G: Squares) -> Each:
    r"""How far the leading pairs of two matrices agree: $|u^\top u'| |v^\top v'|$, at most one."""
    u, _, v = leading(W)
    x, _, y = leading(G)
    return np.abs((u * x).sum(-1) * (v * y).sum(-1))


class Start(NamedTuple):
    """Weights of heads at some time of their flow."""

    weights: Weights
    times: Each


def joint(G: Squares, factors: Float[np.ndarray, "matrix head d d"]) -> Float[np.ndarray, "head d"]:
    r"""The vectors $w = u^\top W_V + v^\top W_O$ along the leading pair of G."""
    u, _, v = leading(G)
    _, _, W_V, W_O = factors
    return np.einsum("hi,hij->hj", u, W_V) + np.einsum("hi,hij->hj", v, W_O)


def near_the_first_rise(
    G: Squares, factors: Float[np.ndarray, "matrix head d d"], sizes: Each, size: float
) -> Start:
    r"""The flow from small factors, when the first direction of W_V has grown to a size.

    Until then the flow is linear, $\dot W_V = G W_O$ and $\dot W_O = G^\top W_V$, with a relative
    error of the order of size². The factors are those given times the `sizes`; heads that are
    beyond it already start at time zero. Columns of W_V and W_O are rotated so that w is in the
    first alone, which changes no product, and what rounding leaves of it in the others is dropped.
    Otherwise the second direction would be lost in the rounding of the first, once that is
    $10^{16}$ times as large.
    """
    U, s, Vh = np.linalg.svd(G)
    w = joint(G, factors)
    length = np.linalg.norm(w, axis=-1)
    times = np.maximum(0, np.log(2 * size / (sizes * length)) / s[:, 0])
    W_K, W_Q, W_V, W_O = sizes[:, None, None] * factors
    turn = to_first_axis(w / length[:, None])
    of_V = U.swapaxes(-1, -2) @ W_V @ turn
    of_O = Vh @ W_O @ turn
    grows = of_V + of_O
    falls = of_V - of_O
    grows[:, 0, 1:] = 0
    grown = np.exp(s * times[:, None])[:, :, None]
    grows = grows * grown / 2
    falls = falls / grown / 2
    moved_V = U @ (grows + falls)
    moved_O = Vh.swapaxes(-1, -2) @ (grows - falls)
    started = np.stack([W_K, W_Q, moved_V, moved_O])
    return Start(Weights(started, np.ones(len(sizes))), times)


def to_first_axis(r: Float[np.ndarray, "head d"]) -> Squares:
    """Reflections that turn unit vectors into the first axis, or against it."""
    mirror = r.copy()
    mirror[:, 0] += np.where(r[:, 0] < 0, -1, 1)
    mirror /= np.linalg.norm(mirror, axis=-1, keepdims=True)
    return np.eye(r.shape[-1]) - 2 * mirror[:, :, None] * mirror[:, None, :]
