r"""W_K and W_Q apart: gradient descent on $W = W_K^\top W_Q$ from small random starts, at V = cP.

The columns of W_K and W_Q are tokens, so that W is [key, query] as in attention.py. Many starts of
one task go side by side, in numpy and float64, on sequences of distinct tokens. A constant that is
added to a column of W changes no output: singular values are those of W minus the means of its
columns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import sparse

from lib.decision_lists.lists import Task
from lib.training.devices import generator

Until = Literal["first rise", "right", "next rise"]
Squares = Float[np.ndarray, "start key query"]
WIDEST = 600.0  # the absolute value of an entry of W whose exponential is in double range


class StackedLoss:
    """The population loss of a task of distinct tokens at V = cP, for many W side by side.

    It is that of attention.py, but looks in each row at the tokens of the sequence alone. Its axes
    are the place of a token in the sequence, the row, and the start.
    """

    def __init__(self, task: Task, scale: float):
        L = task.n_tokens
        present = task.counts.numpy() > 0
        query, sequence = np.nonzero(present.T)
        tokens = np.nonzero(present)[1].reshape(len(present), -1)[sequence].T
        self.scale = scale
        self.absent = (L - task.seq_len) * math.exp(-scale)  # their share of the softmax of labels
        self.weight = task.chances.numpy()[sequence] / task.seq_len
        self.entries = tokens * L + query  # places in a flattened W
        place = (tokens == task.star.numpy()[sequence, query]).argmax(0)
        self.star = place * len(place) + np.arange(len(place))  # in rows of a flattened place, row
        self.star_entries = self.entries.ravel()[self.star]
        weights = np.tile(scale * self.weight, task.seq_len)
        columns = np.arange(self.entries.size)
        shape = L * L, self.entries.size
        self.sums = sparse.csr_matrix((weights, (self.entries.ravel(), columns)), shape)

    def ascent(self, W: Squares) -> Squares:
        r"""$G = -\partial L / \partial W$, $c\, \alpha_b (d_b - \langle \alpha, d \rangle)$ a row.

        $d = e_* - p$, p being the softmax of the labels' logits $c\, \alpha$.
        """
        alpha = self._attention(W)
        p = np.exp(self.scale * (alpha - 1))
        p *= 1 / (p.sum(0) + self.absent)
        slopes = p  # as it becomes p - e_*, then α (p - e_*), then that less its share of the sum
        slopes.reshape(-1, len(W))[self.star] -= 1
        slopes *= alpha
        slopes -= alpha * slopes.sum(0)
        return -(self.sums @ slopes.reshape(-1, len(W))).T.reshape(W.shape)

    def margins(self, W: Squares) -> Float[np.ndarray, "start row"]:
        """The lead of the token that determines the label; a row is right if it is positive."""
        flat = _starts_last(W)
        right = flat.take(self.star_entries, 0)
        others = flat.take(self.entries, 0)
        others.reshape(-1, len(W))[self.star] = -np.inf
        return (right - others.max(0)).T

    def _attention(self, W: Squares) -> Float[np.ndarray, "place row start"]:
        """The softmax over each sequence; one exponential of each entry of W serves all rows."""
        flat = _starts_last(W)
        if np.abs(flat).max() < WIDEST:
            alpha = np.exp(flat).take(self.entries, 0)
        else:
            alpha = flat.take(self.entries, 0)
            alpha = np.exp(alpha - alpha.max(0))
        alpha *= 1 / alpha.sum(0)
        return alpha


def _starts_last(W: Squares) -> Float[np.ndarray, "entry start"]:
    """W as a table with a row for each entry, in one piece."""
    return np.ascontiguousarray(W.reshape(len(W), -1).T)


@dataclass(frozen=True)
class Whole:
    """W itself."""

    W: Squares

    def moved(self, G: Squares, rate: float) -> "Whole":
        """W + rate · G."""
        return Whole(self.W + rate * G)

    def only(self, kept: Bool[np.ndarray, " start"]) -> "Whole":
        """The starts that are kept."""
        return Whole(self.W[kept])


@dataclass(frozen=True)
class Factored:
    r"""$W = W_K^\top W_Q$."""

    W_K: Float[np.ndarray, "start feature key"]
    W_Q: Float[np.ndarray, "start feature query"]

    @classmethod
    def gaussian(
        cls, n_tokens: int, seeds: Sequence[int], init_scales: Sequence[float]
    ) -> "Factored":
        """Entries init_scale · N(0, 1): a start for each pair of a seed and its scale."""

        def drawn(name: str) -> np.ndarray:
            size = n_tokens, n_tokens
            normal = [
                torch.randn(size, generator=generator(seed, name), dtype=torch.float64).numpy()
                for seed in seeds
            ]
            return np.stack(normal) * np.array(init_scales)[:, None, None]

        return cls(drawn("W_K"), drawn("W_Q"))

    @property
    def W(self) -> Squares:  # noqa: N802
        """The product."""
        return self.W_K.mT @ self.W_Q

    def moved(self, G: Squares, rate: float) -> "Factored":
        r"""$W_K + \mathrm{rate}\, W_Q G^\top$ and $W_Q + \mathrm{rate}\, W_K G$."""
        return Factored(self.W_K + rate * self.W_Q @ G.mT, self.W_Q + rate * self.W_K @ G)

    def only(self, kept: Bool[np.ndarray, " start"]) -> "Factored":
        """The starts that are kept."""
        return Factored(self.W_K[kept], self.W_Q[kept])


Weights = Whole | Factored  # weights of all starts, with W, a step on, and a choice of starts


@dataclass(frozen=True)
class Staircase:
    """A descent as it was looked at, and W and G when every sequence was right for the first time.

    `n_large` directions are expected to be large by then; `right` is infinite until then.
    """

    n_large: int
    risen: float  # the singular value of a direction that has risen
    until: Until
    times: list[float] = field(default_factory=list)
    singular_values: list[np.ndarray] = field(default_factory=list)
    right: float = math.inf
    W: np.ndarray | None = None
    G: np.ndarray | None = None

    @property
    def over(self) -> bool:
        """Whether the descent has come to what it goes on for."""
        last = self.singular_values[-1]
        if self.until == "first rise":
            return bool(last[0] > self.risen)
        wanted = self.n_large if self.until == "next rise" else 0
        return math.isfinite(self.right) and bool(last[wanted] > self.risen)

    def rise(self, direction: int) -> float:
        """When a singular value, the largest being 0, exceeds `risen`; NaN if it never does.

        Between two looks it is taken to grow exponentially.
        """
        course = np.array([values[direction] for values in self.singular_values])
        [above] = np.nonzero(course > self.risen)
        if not len(above):
            return math.nan
        i = int(above[0])
        if not i:
            return self.times[0]
        logs = np.log(course[i - 1 : i + 1])
        share = (math.log(self.risen) - logs[0]) / (logs[1] - logs[0])
        return self.times[i - 1] + share * (self.times[i] - self.times[i - 1])


def staircases(
    loss: StackedLoss,
    weights: Weights,
    starts: Sequence[Staircase],
    learning_rate: float,
    look_every: int,
    max_steps: int,
) -> list[Staircase]:
    """Descend from every start until its staircase is over, or `max_steps` are done."""
    found = list(starts)
    running = np.arange(len(found))
    for step in range(max_steps + 1):
        W = weights.W
        G = loss.ascent(W)
        if step % look_every == 0:
            sigma = np.linalg.svd(centred(W), compute_uv=False)
            margin = loss.margins(W).min(1)
            for i, start in enumerate(running):
                one = found[start]
                one.times.append(step * learning_rate)
                one.singular_values.append(sigma[i])
                if margin[i] > 0 and math.isinf(one.right):
                    found[start] = replace(one, right=step * learning_rate, W=W[i], G=G[i])
            kept = np.array([not found[start].over for start in running])
            if not kept.all():
                running = running[kept]
                weights = weights.only(kept)
                G = G[kept]
            if not len(running):
                break
        weights = weights.moved(G, learning_rate)
    return found


def centred(W: Float[np.ndarray, "*start key query"]) -> Float[np.ndarray, "*start key query"]:
    """W minus the mean of each column, on which no output depends."""
    return W - W.mean(-2, keepdims=True)


def cut(W: Float[np.ndarray, "key query"], rank: int) -> Float[np.ndarray, "key query"]:
    """The part of W, its column means removed, in its `rank` largest directions."""
    U, sigma, V = np.linalg.svd(centred(W))
    return (U[:, :rank] * sigma[:rank]) @ V[:rank]


def share_right(loss: StackedLoss, W: Float[np.ndarray, "key query"]) -> float:
    """The share of positions that are right; 1 if and only if all are, whatever the rounding."""
    right = loss.margins(W[None])[0] > 0
    return 1.0 if right.all() else float(loss.weight[right].sum())


def fewest_directions(loss: StackedLoss, W: Float[np.ndarray, "key query"]) -> int:
    """The least rank to which W can be cut with every sequence still right; W is right."""
    ranks = range(1, len(W) + 1)
    return next(rank for rank in ranks if share_right(loss, cut(W, rank)) == 1.0 or rank == len(W))


def spectral_norm(G: Float[np.ndarray, "key query"]) -> float:
    """The largest singular value."""
    return float(np.linalg.norm(G, 2))


def outcome(loss: StackedLoss, one: Staircase) -> dict[str, Any]:
    """When directions of W rose and all was right, and W by then."""
    row = {
        "until": one.until,
        "first_rise": one.rise(0),
        "next_rise": one.rise(one.n_large),
        "right": one.right,
        "singular_values": [],
        "sigma_then": math.nan,
        "fewest": math.nan,
        "right_when_cut": math.nan,
    }
    if one.W is None or one.G is None:
        return row
    return row | {
        "singular_values": np.linalg.svd(centred(one.W), compute_uv=False),
        "sigma_then": spectral_norm(one.G),
        "fewest": fewest_directions(loss, one.W),
        "right_when_cut": share_right(loss, cut(one.W, one.n_large)),
    }


def permuted(task: Task, shift: int) -> Task:
    """The task with the lists of other tokens: token a plays the part of a − `shift`.

    The law stays, so that frequent tokens no longer head lists.
    """
    L = task.n_tokens
    lists = tuple(tuple((b + shift) % L for b in task.lists[(a - shift) % L]) for a in range(L))
    return replace(task, lists=lists)
