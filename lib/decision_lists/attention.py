r"""One attention layer on one-hot tokens, f(X) = softmax(V X softmax(Xᵀ W X)), and its exact
population loss.

The paper's convention: tokens are columns of X, and both softmaxes run down the columns. So
$W_{b,a}$ is [key, query], $V_{k,b}$ is [label, token], and with $N_b$ copies of token b in the
sequence the query a attends to

$$\alpha_b(a, s) = \frac{N_b(s)\, e^{W_{b,a}}}{\sum_k N_k(s)\, e^{W_{k,a}}}, \qquad z(a, s) = V
\alpha(a, s).$$

All positions that hold a give the same output: the population loss is a sum over rows, a row being
a class s of sequences and a query a in it, with weight $\mu_a(s) = P(s) N_a(s) / n$. Everything is
float64.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def initial_weights(
    start: Mapping[str, Any],
    order: Float[Tensor, "key query"],
    P: Float[Tensor, "label token"],
    draw: torch.Generator,
) -> dict[str, Tensor]:
    """W_0 and V_0: Gaussian, or W against the `order` of the lists, V a multiple of P or of a wrong
    P (`start`).

    V is then a little off any symmetry.
    """
    L = len(P)
    W = start["W_scale"] * torch.randn(L, L, generator=draw, dtype=torch.float64)
    if start["W"] == "reverse order":
        W = -start["W_scale"] * order
    V = torch.randn(L, L, generator=draw, dtype=torch.float64)
    if start["V"] == "gaussian":
        return {"W": W, "V": start["V_scale"] * V}
    return {
        "W": W,
        "V": {"P": P, "-P": -P, "wrong P": P.roll(1, 0)}[start["V"]] * start["V_scale"] + 0.01 * V,
    }


def sequence_outputs(
    tokens: Int[Tensor, "sequence position"],
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    attend_over: Literal["keys", "queries"] = "keys",
) -> Float[Tensor, "sequence label position"]:
    r"""$\log f_{W,V}(X)$ for each sequence, position by position, as the paper writes it.

    `attend_over` "queries" normalises the attention along the other axis: a control that must fail.
    """
    X = torch.nn.functional.one_hot(tokens, W.shape[0]).to(W.dtype).mT
    scores = X.mT @ W @ X
    attention = torch.softmax(scores, -2 if attend_over == "keys" else -1)
    return torch.log_softmax(V @ X @ attention, -2)


@dataclass(frozen=True)
class Rows:
    """The rows of a population loss: class and query, the token that determines the label, and the
    weight.
    """

    counts: Float[Tensor, "row key"]
    query: Int[Tensor, " row"]
    star: Int[Tensor, " row"]
    place: Int[Tensor, " row"]
    weight: Float[Tensor, " row"]

    @classmethod
    def of(
        cls,
        counts: Float[Tensor, "class token"],
        probability: Float[Tensor, " class"],
        star: Int[Tensor, "class token"],
        place: Int[Tensor, "class token"],
    ) -> "Rows":
        r"""All rows of positive weight $\mu_a(s) = P(s) N_a(s) / n$, sorted by query."""
        mu = probability[:, None] * counts / counts.sum(1, keepdim=True)
        query, chosen = torch.nonzero(mu.T > 0, as_tuple=True)
        return cls(
            counts[chosen], query, star[chosen, query], place[chosen, query], mu[chosen, query]
        )

    def only(self, kept: Tensor) -> "Rows":
        """The rows that are kept, at their weights."""
        return Rows(
            self.counts[kept],
            self.query[kept],
            self.star[kept],
            self.place[kept],
            self.weight[kept],
        )

    @cached_property
    def log_counts(self) -> Float[Tensor, "row key"]:
        r"""$\log N_b$, $-\infty$ where the token is absent."""
        return self.counts.log()

    @cached_property
    def others(self) -> Float[Tensor, "row key"]:
        r"""$\log N_b$ of the tokens that do not determine the label."""
        return self.log_counts.scatter(1, self.star[:, None], -torch.inf)


def attention_rows(W: Float[Tensor, "key query"], rows: Rows) -> Float[Tensor, "row key"]:
    r"""$\alpha_b(a, s)$ of every row."""
    return torch.softmax(rows.log_counts + W.T[rows.query], -1)


def attention_to_star(W: Float[Tensor, "key query"], rows: Rows) -> Float[Tensor, " row"]:
    r"""$\alpha_{b^*}(a, s)$ of every row: the attention to the token that determines the label."""
    return attention_rows(W, rows).gather(1, rows.star[:, None])[:, 0]


def attention_on_sequences(
    W: Float[Tensor, "key query"],
    counts: Float[Tensor, "sequence token"],
    star: Int[Tensor, "sequence token"],
) -> list[dict[str, float]]:
    """The attention of each query to each key of its sequence, with the token that determines the
    label.

    Sequences are numbered in the order in which they are given, and come one after the other.
    """
    alpha = torch.softmax(counts.log()[:, :, None] + W, 1)  # sequence, key, query
    found = []
    for number, (present, weights, stars) in enumerate(
        zip(counts > 0, alpha, star.tolist(), strict=True)
    ):
        tokens = torch.nonzero(present)[:, 0].tolist()
        for a in tokens:
            place = {"sequence": number, "query": a, "star": stars[a]}
            found += [{**place, "key": b, "attention": float(weights[b, a])} for b in tokens]
    return found


def row_losses(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    rows: Rows,
    permutation: Int[Tensor, " token"],
) -> Float[Tensor, " row"]:
    r"""$-\log f$ of the right label $\pi(b^*)$ in every row."""
    z = attention_rows(W, rows) @ V.T
    return _errors(z, permutation[rows.star])[0]


def _errors(
    z: Float[Tensor, "row label"], y: Int[Tensor, " row"]
) -> tuple[Float[Tensor, " row"], Float[Tensor, "row label"]]:
    r"""$-\log p_y$ and $p - e_y$, $p = \mathrm{softmax}(z)$, of every row.

    $1 - p_y$ is the sum of the others' probabilities: where it is small, p_y - 1 would be rounding
    alone.
    """
    y = y[:, None]
    right = z.gather(1, y)
    others = z.scatter(1, y, -torch.inf)
    largest = others.amax(1, keepdim=True).clamp(min=-1e300)  # finite where there is no other, too
    E = torch.exp(others - largest)
    total, ahead = E.sum(1, keepdim=True), largest - right
    loss = torch.logaddexp(ahead + total.log(), torch.zeros_like(right))
    share = torch.exp(ahead - loss)
    return loss[:, 0], (E * share).scatter(1, y, -total * share)


def _probabilities(
    losses: Float[Tensor, " row"], error: Float[Tensor, "row label"], y: Int[Tensor, " row"]
) -> Float[Tensor, "row label"]:
    """p, from what `_errors` gives."""
    return error.scatter(1, y[:, None], torch.exp(-losses)[:, None])


def loss_gradients(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    rows: Rows,
    permutation: Int[Tensor, " token"],
) -> tuple[Float[Tensor, ""], Float[Tensor, "key query"], Float[Tensor, "label token"]]:
    r"""The population loss with its gradients in W and V.

    With $G = \mu (p - e_y)$, $p = \mathrm{softmax}(z)$: $\nabla_V = \sum G \alpha^\top$, and in the
    column of the query $\nabla_{w_b} = \sum \alpha_b (d_b - \langle \alpha, d \rangle)$, $d =
    V^\top G$. Columns of both sum to zero: the column sums of W and V never move.
    """
    alpha = attention_rows(W, rows)
    losses, error = _errors(alpha @ V.T, permutation[rows.star])
    G = error * rows.weight[:, None]
    d = G @ V
    pulled = alpha * (d - (alpha * d).sum(1, keepdim=True))
    return rows.weight @ losses, _by_query(pulled, rows.query, W.shape[1]).T, G.T @ alpha


def attention_curvature(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    rows: Rows,
    permutation: Int[Tensor, " token"],
) -> Float[Tensor, "query key key"]:
    r"""The Hessian of the population loss in W: a block for each query, for at fixed V the columns
    do not interact.

    A row adds $\mu\, B^\top (\mathrm{diag}\, p - p p^\top) B + \mathrm{diag}(g) - \alpha g^\top - g
    \alpha^\top$ with $B_{kb} = (V_{kb} - z_k)\, \alpha_b$ and g the row's gradient.
    """
    alpha = attention_rows(W, rows)
    z, y = alpha @ V.T, permutation[rows.star]
    losses, error = _errors(z, y)
    p = _probabilities(losses, error, y)
    d = (error * rows.weight[:, None]) @ V
    g = alpha * (d - (alpha * d).sum(1, keepdim=True))
    B = (V - z[:, :, None]) * alpha[:, None, :]
    mean = (p[:, :, None] * B).sum(1)
    blocks = torch.einsum("rkb,rk,rkc->rbc", B, p * rows.weight[:, None], B)
    blocks -= rows.weight[:, None, None] * mean[:, :, None] * mean[:, None, :]
    blocks -= alpha[:, :, None] * g[:, None, :] + g[:, :, None] * alpha[:, None, :]
    blocks += torch.diag_embed(g)
    return _by_query(blocks.flatten(1), rows.query, W.shape[1]).unflatten(
        1, (W.shape[0], W.shape[0])
    )


def hessian_product(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    rows: Rows,
    permutation: Int[Tensor, " token"],
) -> tuple[Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    r"""The Hessian of the population loss in W and V at a point, as a map of directions, and the
    gradients.

    It differentiates `loss_gradients` along $(\dot W, \dot V)$: $\dot s = \dot W_{\cdot, a}$,
    $\dot\alpha = \alpha (\dot s - \langle \alpha, \dot s \rangle)$, $\dot z = V \dot\alpha + \dot V
    \alpha$, $\dot G = \mu p (\dot z - \langle p, \dot z \rangle)$, and so on.
    """
    alpha = attention_rows(W, rows)
    y = permutation[rows.star]
    losses, error = _errors(alpha @ V.T, y)
    G = error * rows.weight[:, None]
    p = _probabilities(losses, error, y)
    weighted = p * rows.weight[:, None]
    d = G @ V
    centred = d - (alpha * d).sum(1, keepdim=True)

    def apply(W_dot: Tensor, V_dot: Tensor) -> tuple[Tensor, Tensor]:
        s = W_dot.T[rows.query]
        alpha_dot = alpha * (s - (alpha * s).sum(1, keepdim=True))
        z = alpha_dot @ V.T + alpha @ V_dot.T
        G_dot = weighted * (z - (p * z).sum(1, keepdim=True))
        d_dot = G_dot @ V + G @ V_dot
        slope = d_dot - (alpha_dot * d + alpha * d_dot).sum(1, keepdim=True)
        pulled = alpha_dot * centred + alpha * slope
        return _by_query(pulled, rows.query, W.shape[1]).T, G_dot.T @ alpha + G.T @ alpha_dot

    return apply, (_by_query(alpha * centred, rows.query, W.shape[1]).T, G.T @ alpha)


def _by_query(
    values: Float[Tensor, "row n"], query: Int[Tensor, " row"], n_tokens: int
) -> Float[Tensor, "query n"]:
    return torch.index_add(values.new_zeros(n_tokens, values.shape[1]), 0, query, values)


def attention_margins(W: Float[Tensor, "key query"], rows: Rows) -> Float[Tensor, " row"]:
    r"""$\log N_{b^*} + W_{b^*, a} - \max_{b \ne b^*} (\log N_b + W_{b, a})$ over the tokens of each
    row.

    With V = cP, c > 0, a row is right if and only if it is positive: the logits $c\, \alpha$ of two
    tokens may be equal in floating point where these are not. Infinite where a row holds a single
    token.
    """
    scores = W.T[rows.query]
    right = (rows.log_counts + scores).gather(1, rows.star[:, None])[:, 0]
    return right - (rows.others + scores).amax(1)


def logit_margins(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    rows: Rows,
    permutation: Int[Tensor, " token"],
) -> Float[Tensor, " row"]:
    """The right label's logit less the largest of the others, in every row; a row is right if it is
    positive.
    """
    z = attention_rows(W, rows) @ V.T
    y = permutation[rows.star][:, None]
    return z.gather(1, y)[:, 0] - z.scatter(1, y, -torch.inf).amax(1)


class PopulationLoss:
    """The population loss of weights {"W", "V"} with its gradients, as a descent asks for it."""

    def __init__(self, rows: Rows, permutation: Int[Tensor, " token"]):
        self.rows, self.permutation = rows, permutation

    def __call__(self, weights: dict[str, Tensor]) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss, and its gradients in W and V."""
        loss, W, V = loss_gradients(weights["W"], weights["V"], self.rows, self.permutation)
        return loss, {"W": W, "V": V}

    def value(self, weights: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The loss alone, for autograd."""
        return self.rows.weight @ row_losses(
            weights["W"], weights["V"], self.rows, self.permutation
        )

    def right(self, weights: dict[str, Tensor]) -> Bool[Tensor, " row"]:
        """Which rows are right; a tie is not."""
        return logit_margins(weights["W"], weights["V"], self.rows, self.permutation) > 0

    def accuracy(self, weights: dict[str, Tensor]) -> float:
        """The share of these rows, by their weights, that are right."""
        return float(self.rows.weight[self.right(weights)].sum() / self.rows.weight.sum())

    def measured(self, weights: dict[str, Tensor]) -> dict[str, float]:
        """Accuracy over the law, how far V is along P, raw and with the columns of both centred,
        attention to the star.

        The accuracy is 1 if and only if every row is right, whatever the rounding of the weights'
        sum.
        """
        V, right, P = weights["V"], self.right(weights), _label_matrix(self.permutation)
        return {
            "accuracy": float(self.rows.weight[right].sum()) if not bool(right.all()) else 1.0,
            "cosine": _cosine(V, P),
            "centred_cosine": _cosine(V - V.mean(0), P - P.mean(0)),
            "argmax_right": float((V.argmax(0) == self.permutation).double().mean()),
            "attention_to_star": float(
                self.rows.weight @ attention_to_star(weights["W"], self.rows)
            ),
        }

    def attention_curvature(self, weights: dict[str, Tensor]) -> float:
        """The largest eigenvalue of the Hessian in W, from all its blocks."""
        blocks = attention_curvature(weights["W"], weights["V"], self.rows, self.permutation)
        return float(torch.linalg.eigvalsh(blocks)[:, -1].max())

    def hessian(
        self, weights: dict[str, Tensor]
    ) -> tuple[Callable[[Tensor], Tensor], Float[Tensor, " n"]]:
        """The Hessian in W and V together as a map of flat vectors, W first, and the gradient as
        such a vector.
        """
        W, V = weights["W"], weights["V"]
        product, gradients = hessian_product(W, V, self.rows, self.permutation)

        def apply(direction: Tensor) -> Tensor:
            in_W, in_V = product(
                direction[: W.numel()].view_as(W), direction[W.numel() :].view_as(V)
            )
            return torch.cat([in_W.flatten(), in_V.flatten()])

        return apply, torch.cat([gradient.flatten() for gradient in gradients])


class SequenceLoss:
    """The same loss on sequences of distinct tokens, position by position, by
    `sequence_outputs`.
    """

    def __init__(
        self,
        counts: Float[Tensor, "class token"],
        chances: Float[Tensor, " class"],
        star: Int[Tensor, "class token"],
        permutation: Int[Tensor, " token"],
        attend_over: Literal["keys", "queries"],
    ):
        self.tokens = torch.nonzero(counts)[:, 1].view(len(counts), -1)
        self.labels = permutation[star.gather(1, self.tokens)]
        self.chances = chances
        self.attend_over: Literal["keys", "queries"] = attend_over

    def value(self, weights: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The loss, for autograd."""
        right = self._outputs(weights).gather(1, self.labels[:, None])[:, 0]
        return -(self.chances @ right.mean(1))

    def accuracy(self, weights: dict[str, Tensor]) -> float:
        """The share of positions that are right, by the chances of the sequences."""
        right = self._outputs(weights).argmax(1) == self.labels
        return float(self.chances @ right.double().mean(1))

    def _outputs(self, weights: dict[str, Tensor]) -> Float[Tensor, "sequence label position"]:
        return sequence_outputs(self.tokens, weights["W"], weights["V"], self.attend_over)


def _label_matrix(permutation: Int[Tensor, " token"]) -> Float[Tensor, "label token"]:
    P = torch.zeros(len(permutation), len(permutation), dtype=torch.float64)
    P[permutation, torch.arange(len(permutation))] = 1
    return P


def _cosine(A: Tensor, B: Tensor) -> float:
    norms = float(A.norm() * B.norm())
    return float((A * B).sum()) / norms if norms else 0.0


def choice_gradient(u: Float[Tensor, "key query"], rows: Rows) -> Float[Tensor, "key query"]:
    r"""Gradient of the limit of large values: V = cP, u = cW, $\tau = c^2 t$, $c \to \infty$,
    distinct tokens.

    There $\alpha_b = 1/n + O(1/c)$ and $z_b = c/n + (u_b - \bar u)/n$: the flow is that of the
    regression $\dot u_b = \frac1n \sum \mu\, (1[b = b^*] - p_b)$, $p = \mathrm{softmax}(u / n)$
    over the tokens of the sequence: Luce's choice model, a convex problem.
    """
    n = rows.counts.sum(1, keepdim=True)
    _, error = _errors(rows.log_counts + u.T[rows.query] / n, rows.star)
    return _by_query(error * (rows.weight[:, None] / n), rows.query, u.shape[1]).T


def exchangeable_loss_gradient(
    w: Float[Tensor, " place"], n_tokens: int, seq_len: int, scale: float
) -> tuple[Float[Tensor, ""], Float[Tensor, " place"]]:
    r"""Loss of one query, and its gradient, for uniform subsets and V = cP: $2^{m-1}$ terms for any
    number of tokens.

    By symmetry the column of a query holds m + 1 values: w[0] for every token outside of its list,
    w[i] for the entry $a_i$. The loss is the mean over sequences that hold the query; in the
    population loss each query counts 1 / n_tokens. The gradient in w[0] is that of each single
    token outside of the list.
    """
    m = len(w) - 1
    outside = n_tokens - m
    everything = comb(n_tokens - 1, seq_len - 1)
    terms, present = [], []
    for held in range(2 ** (m - 1)):
        heads = [i for i in range(1, m) if held >> (i - 1) & 1]
        rest = seq_len - 1 - len(heads)
        if 0 <= rest <= outside:
            terms.append((comb(outside, rest) / everything, float(rest)))
            present.append([float(rest), *(float(i in heads) for i in range(1, m)), 1.0])
    probability, rest = torch.tensor(terms, dtype=torch.float64).T
    counts = torch.tensor(present, dtype=torch.float64)
    star = counts[:, 1:].argmax(1, keepdim=True) + 1
    alpha = torch.softmax(
        torch.where(counts > 0, 0.0, -torch.inf) + w + counts.clamp(min=1).log(), -1
    )
    each = alpha / counts.clamp(min=1)  # of a single token
    absent = n_tokens - seq_len
    log_many = torch.cat([counts.log(), torch.full_like(rest[:, None], float(absent)).log()], 1)
    z = torch.cat([scale * each, torch.zeros_like(rest[:, None])], 1)
    total = torch.logsumexp(z + log_many, -1, keepdim=True)
    loss = (probability * (total - z.gather(1, star))[:, 0]).sum()
    p = (z - total).exp()[:, :-1]  # of a single token
    d = scale * p.scatter_add(1, star, torch.full_like(total, -1.0))
    pulled = each * (d - (alpha * d).sum(1, keepdim=True))
    share = (counts > 0).double()
    share[:, 0] = rest / max(outside, 1)  # the chance that a given outside token is in the sequence
    return loss, (probability[:, None] * share * pulled).sum(0)


class ScaledFlow:
    r"""Gradient flow on W at V = cP in u = cW and $\tau = c^2 t$, whose scale does not depend on c;
    ∞ is the limit.

    $\dot u = -\nabla_W(u / c) / c$, and minus the `choice_gradient` in the limit. States are flat
    arrays.
    """

    def __init__(self, rows: Rows, permutation: Int[Tensor, " token"], scale: float):
        self.rows, self.permutation, self.scale = rows, permutation, scale
        self.n_tokens, self.seq_len = rows.counts.shape[1], float(rows.counts[0].sum())
        self.repeats = bool((rows.counts > 1).any())
        self.V = _label_matrix(permutation) * (1.0 if math.isinf(scale) else scale)

    @property
    def start(self) -> Float[np.ndarray, " n"]:
        """W = 0."""
        return np.zeros(self.n_tokens**2)

    def matrix(self, x: Float[np.ndarray, " n"]) -> Float[Tensor, "key query"]:
        """The state as a matrix: u = cW."""
        return torch.from_numpy(x).view(self.n_tokens, self.n_tokens)

    def velocity(self, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        r"""$\dot u$."""
        if math.isinf(self.scale):
            return -choice_gradient(self.matrix(x), self.rows).flatten().numpy()
        W = self.matrix(x) / self.scale
        return (
            -(loss_gradients(W, self.V, self.rows, self.permutation)[1] / self.scale)
            .flatten()
            .numpy()
        )

    def measured(self, x: Float[np.ndarray, " n"]) -> dict[str, float]:
        """The loss, the accuracy over the law, and the least margin, in u."""
        losses, margins = (
            row_losses(self.matrix(x) / self.scale, self.V, self.rows, self.permutation),
            self.margins(x),
        )
        accuracy = self.rows.weight[margins > 0].sum()
        return {
            "loss": float(self.rows.weight @ losses),
            "accuracy": float(accuracy),
            "margin": float(margins.min()),
        }

    def margins(self, x: Float[np.ndarray, " n"]) -> Float[Tensor, " row"]:
        """The margin of each row, in u; without repeats the logarithms of the counts are zero, and
        u alone decides.
        """
        if not self.repeats:
            return attention_margins(self.matrix(x), self.rows)
        return attention_margins(self.matrix(x) / self.scale, self.rows) * self.scale

    def margin(self, x: Float[np.ndarray, " n"]) -> float:
        """The least margin."""
        return float(self.margins(x).min())

    def largest_attention(self, x: Float[np.ndarray, " n"]) -> float:
        r"""$\max n \alpha$ over all rows: 1 where attention is uniform."""
        return float(attention_rows(self.matrix(x) / self.scale, self.rows).max()) * self.seq_len

    def attention_to_star(self, x: Float[np.ndarray, " n"]) -> float:
        """The mean attention to the token that determines the label."""
        return float(self.rows.weight @ attention_to_star(self.matrix(x) / self.scale, self.rows))

    def at_once(self) -> bool:
        """Whether all is right at every small time after 0: the first velocity orders every column
        strictly.
        """
        return self.margin(self.velocity(self.start)) > 0 and not self.repeats


class ExchangeableFlow:
    """The same flow for uniform subsets, in the m + 1 values that a column holds
    (`exchangeable_loss_gradient`).
    """

    def __init__(self, n_tokens: int, seq_len: int, length: int, scale: float):
        self.n_tokens, self.seq_len, self.length, self.scale = n_tokens, seq_len, length, scale

    @property
    def start(self) -> Float[np.ndarray, " place"]:
        """W = 0."""
        return np.zeros(self.length + 1)

    def velocity(self, u: Float[np.ndarray, " place"]) -> Float[np.ndarray, " place"]:
        r"""$\dot u$."""
        w, c = torch.from_numpy(u) / self.scale, self.scale
        return -exchangeable_loss_gradient(w, self.n_tokens, self.seq_len, c)[1].numpy() / (
            c * self.n_tokens
        )

    def margin(self, u: Float[np.ndarray, " place"]) -> float:
        """The least lead of an entry of the list over what comes after it, and over the tokens
        outside.
        """
        return float(min(u[i] - max([u[0], *u[i + 1 :]]) for i in range(1, self.length + 1)))

    def at_once(self) -> bool:
        """Whether all is right at every small time after 0."""
        return self.margin(self.velocity(self.start)) > 0
