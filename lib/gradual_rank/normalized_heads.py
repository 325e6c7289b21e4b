r"""Heads whose queries and keys are normalised (QK-norm), with full matrices, and their flow.

For tokens $x_i$ as rows, $k_i = W_K^\top x_i$ and $q_j = W_Q^\top x_j$, a head has the logits

$S_{ij} = \gamma \, \langle k_i, q_j \rangle / (|k_i| |q_j|)$,

and writes $\mathrm{softmax}(S) X W_V W_O^\top$. The gain γ is fixed, or it is learned as one more
weight. Rows are projected by W_K, as in equation (1) of Boix-Adserà et al. (2023). A plain head,
with the logits $\langle k_i, q_j \rangle$, is the control. What is said here of the flow is proved
in docs/qk_norm.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from lib.files.files import InputError

Tokens = Float[np.ndarray, "head sample token d"]
Lengths = Float[np.ndarray, "head sample token 1"]
Factors = Float[np.ndarray, "matrix head d d"]  # W_K, W_Q, W_V and W_O, in this order
Each = Float[np.ndarray, " head"]


class Weights(NamedTuple):
    """The weights of several heads, or how fast they move."""

    factors: Factors
    gain: Each

    def moved(self, by: Each, along: "Weights") -> "Weights":
        """These weights plus a step of each head's own length along others."""
        return Weights(
            self.factors + by[:, None, None] * along.factors, self.gain + by * along.gain
        )

    def where(self, chosen: Bool[np.ndarray, " head"], other: "Weights") -> "Weights":
        """These weights for the chosen heads, and the others' for the rest."""
        return Weights(
            np.where(chosen[:, None, None], self.factors, other.factors),
            np.where(chosen, self.gain, other.gain),
        )

    def only(self, index: Int[np.ndarray, " kept"]) -> "Weights":
        """The weights of some heads."""
        return Weights(self.factors[:, index], self.gain[index])

    def scaled(self, sizes: Each) -> "Weights":
        """The weights with factors that are each head's own size times these; gains stay."""
        return Weights(sizes[:, None, None] * self.factors, self.gain)


@dataclass(frozen=True)
class Heads:
    r"""Heads side by side, in float64, under the mean squared error over samples, tokens, entries.

    `normalized` says whether queries and keys are, `learned` whether the gain is a weight. With
    `linear` the loss is $(|Y|^2 - 2 \langle Y, A X W_{VO} \rangle) / n$, where n is the number of
    entries of Y and A the attention: the part of first order in $W_{VO}$, whose flow is the limit
    of flows from small weights. No scale of the weights occurs in it.

    The flow is exact as long as $\rho = |W_{VO}|_F / (|W_K|_F |W_Q|_F)$ is at most R, the
    `stiffness`. From there on W_K, W_Q and the gain move at R/ρ of their speed. Normalised keys
    come to rest at a rate of order ρ, which no step can follow where ρ is $10^6$; slowed down they
    still are at rest, as seen from the values, with an error of order 1/R. No conserved norm and no
    invariance depends on it.
    """

    X: Tokens
    Y: Tokens
    normalized: bool
    stiffness: float
    learned: bool = False
    linear: bool = False

    def only(self, index: Int[np.ndarray, " kept"]) -> "Heads":
        """Some of the heads."""
        return replace(self, X=self.X[index], Y=self.Y[index])

    def loss_and_slopes(self, W: Weights) -> tuple[Each, Weights]:
        """The losses, and minus their gradients.

        Raises `InputError` where a token has a key or a query that is zero: it has no direction.
        """
        W_K, W_Q, W_V, W_O = W.factors
        X = self.X
        W_VO = W_V @ W_O.swapaxes(-1, -2)
        K, lengths_K = self._unit(projected(X, W_K))
        Q, lengths_Q = self._unit(projected(X, W_Q))
        gain = W.gain[:, None, None, None] if self.normalized else 1.0
        cosines = K @ turned(Q)
        A = np.exp(gain * cosines)
        A /= row_sums(A)
        Z = A @ X
        off = -self.Y if self.linear else projected(Z, W_VO) - self.Y
        size = self.Y[0].size
        R = off * (2 / size)
        loss = (off * R).sum((1, 2, 3)) / 2
        if self.linear:
            loss += (R * projected(Z, W_VO)).sum((1, 2, 3))
        inner = (projected(R, W_VO.swapaxes(-1, -2)) @ turned(X)) * A
        D = inner - A * row_sums(inner)  # the slope of the loss in the logits
        of_keys = self._through(gain * (D @ Q), K, lengths_K)
        of_queries = self._through(gain * (turned(D) @ K), Q, lengths_Q)
        flat = X.reshape(len(X), -1, X.shape[-1]).swapaxes(-1, -2)
        g_VO = -flat_product(Z, R)
        slopes = [
            -flat @ of_keys.reshape(len(X), -1, of_keys.shape[-1]),
            -flat @ of_queries.reshape(len(X), -1, of_queries.shape[-1]),
            g_VO @ W_O,
            g_VO.swapaxes(-1, -2) @ W_V,
        ]
        of_gain = -(D * cosines).sum((1, 2, 3)) if self.learned else np.zeros(len(X))
        return loss, Weights(np.stack(slopes), of_gain)

    def velocity(self, W: Weights) -> Weights:
        """How fast the flow moves the weights: minus the gradients, slowed where it is stiff."""
        _, slopes = self.loss_and_slopes(W)
        if not self.normalized:
            return slopes
        slowed = np.minimum(1, self.stiffness / self.ratio(W))
        factors = slopes.factors.copy()
        factors[:2] *= slowed[:, None, None]
        return Weights(factors, slowed * slopes.gain)

    def kept(self, moved: Weights, before: Weights, steps: Each) -> Weights:
        """The weights after a step from those before: as moved, with no norm set right."""
        return moved

    def ratio(self, W: Weights) -> Each:
        r"""The ratio $\rho = |W_{VO}|_F / (|W_K|_F |W_Q|_F)$."""
        W_K, W_Q, _, _ = W.factors
        return norm(products(W).VO) / (norm(W_K) * norm(W_Q))

    def growth(self, W: Weights) -> Each:
        r"""The rate $\sigma_1(G)$ at which W_VO grows from zero under the attention of W.

        $G = -\partial L / \partial W_{VO}$ is taken at $W_{VO} = 0$.
        """
        factors = W.factors.copy()
        factors[2] = 0
        factors[3] = np.eye(factors.shape[-1])
        _, slopes = self.loss_and_slopes(Weights(factors, W.gain))
        return singular_values(slopes.factors[2])[..., 0]

    def _unit(self, K: Tokens) -> tuple[Tokens, Lengths]:
        """The keys, or queries, of length one where they are normalised; and their lengths."""
        if not self.normalized:
            return K, np.ones_like(K[..., :1])
        lengths = np.sqrt(row_sums(K * K))
        if not lengths.all():
            head = int(np.argwhere(lengths == 0)[0, 0])
            raise InputError(
                f"head {head}: wanted keys and queries that have a direction, got one that is zero"
            )
        return K / lengths, lengths

    def _through(self, slope: Tokens, unit: Tokens, lengths: Lengths) -> Tokens:
        """The slope in the keys, of that in the normalised ones."""
        if not self.normalized:
            return slope
        return (slope - unit * row_sums(unit * slope)) / lengths


def turned(
    X: Float[np.ndarray, "head sample row col"],
) -> Float[np.ndarray, "head sample col row"]:
    """The transposes of many small matrices, in order in memory, as products are fast of these."""
    return np.ascontiguousarray(X.swapaxes(-1, -2))


def row_sums(X: Float[np.ndarray, "head sample row col"]) -> Float[np.ndarray, "head sample row 1"]:
    """The sums over the last axis, which stays: a product is faster than numpy's sum of few."""
    return X @ np.ones((X.shape[-1], 1))


def projected(X: Tokens, W: Float[np.ndarray, "head d d"]) -> Tokens:
    """The products X W of each head, as one product for all samples."""
    return (X.reshape(len(X), -1, X.shape[-1]) @ W).reshape(X.shape)


def flat_product(Z: Tokens, R: Tokens) -> Float[np.ndarray, "head d d"]:
    r"""The sums $\sum Z^\top R$ over samples."""
    flat = Z.reshape(len(Z), -1, Z.shape[-1])
    return flat.swapaxes(-1, -2) @ R.reshape(len(R), -1, R.shape[-1])


def norm(W: Float[np.ndarray, "*batch d d"]) -> Float[np.ndarray, "*batch"]:
    """The Frobenius norm."""
    return np.sqrt(np.square(W).sum((-2, -1)))


def singular_values(W: Float[np.ndarray, "*batch d d"]) -> Float[np.ndarray, "*batch d"]:
    """The singular values of each matrix, from the largest on."""
    return np.linalg.svd(W, compute_uv=False)


class Products(NamedTuple):
    """The products of the factors of every head."""

    KQ: Float[np.ndarray, "head d d"]
    VO: Float[np.ndarray, "head d d"]


def products(W: Weights) -> Products:
    r"""$W_{KQ} = W_K W_Q^\top$ and $W_{VO} = W_V W_O^\top$ of every head."""
    W_K, W_Q, W_V, W_O = W.factors
    return Products(W_K @ W_Q.swapaxes(-1, -2), W_V @ W_O.swapaxes(-1, -2))


class Moment(NamedTuple):
    """Where the heads are that are still followed: their numbers, times and weights."""

    heads: Int[np.ndarray, " head"]
    times: Each
    weights: Weights


def flow(
    heads: Heads,
    start: Weights,
    longest: float,
    over: Callable[[Moment], Bool[np.ndarray, " head"]],
) -> Iterator[Moment]:
    """The heads at every step of their flow, each until `over` says that it is.

    Steps are those of Heun's method: the mean of the velocities at both ends of Euler's step. Every
    head has a step of its own, in which no matrix moves by more than the share `longest` of its
    norm.
    """
    numbers = np.arange(len(start.gain))
    W = start
    times = np.zeros(len(numbers))
    while True:
        moment = Moment(numbers, times, W)
        yield moment
        kept = np.flatnonzero(~over(moment))
        if not len(kept):
            return
        if len(kept) < len(numbers):
            heads, W, numbers, times = heads.only(kept), W.only(kept), numbers[kept], times[kept]
        first = heads.velocity(W)
        steps = longest * (norm(W.factors) / norm(first.factors)).min(0)
        last = heads.velocity(W.moved(steps, first))
        mean = Weights((first.factors + last.factors) / 2, (first.gain + last.gain) / 2)
        steps = np.minimum(steps, longest * (norm(W.factors) / norm(mean.factors)).min(0))
        W = heads.kept(W.moved(steps, mean), W, steps)
        times = times + steps


def unit_tokens(X: Tokens) -> Tokens:
    r"""The tokens divided by the root of their mean square (RMSNorm before a layer)."""
    return X / np.sqrt(np.square(X).mean(-1, keepdims=True))
