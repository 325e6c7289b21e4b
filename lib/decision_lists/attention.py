r"""One attention layer f(X) = softmax(V X softmax(Xᵀ W X)), and its exact population loss.

The paper's convention: tokens are columns of X, and both softmaxes run down the columns. So
$W_{b,a}$ is [key, query], $V_{k,b}$ is [label, token], and with $N_b$ copies of token b in the
sequence the query a attends to

$$\alpha_b(a, s) = \frac{N_b(s)\, e^{W_{b,a}}}{\sum_k N_k(s)\, e^{W_{k,a}}}, \qquad z(a, s) = V
\alpha(a, s).$$

All positions that hold a give the same output: the population loss is a sum over rows, a row being
a class s of sequences and a query a in it, with weight $\mu_a(s) = P(s) N_a(s) / n$. Everything is
float64.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.decision_lists.lists import Task, in_list_order, label_matrix

Value = TypeVar("Value")
WIDEST = 600.0  # between two entries of a column, whose exponentials then are in double range
FEW = 2000  # entries of all rows, whose softmax costs less than a look at how wide a column is


def initial_weights(
    start: Mapping[str, Any], task: Task, draw: torch.Generator
) -> dict[str, Tensor]:
    """W_0 and V_0 of a `start`.

    W is Gaussian, or against the order of the lists. V is Gaussian, or a multiple of P, -P or a
    wrong P plus a little noise that breaks every symmetry.
    """
    L = task.n_tokens
    P = task.label_matrix
    W = torch.randn(L, L, generator=draw, dtype=torch.float64)
    if start["W"] == "reverse order":
        W = -in_list_order(task.lists)
    V = torch.randn(L, L, generator=draw, dtype=torch.float64)
    if start["V"] == "gaussian":
        V = start["V_scale"] * V
    else:
        V = {"P": P, "-P": -P, "wrong P": P.roll(1, 0)}[start["V"]] * start["V_scale"] + 0.01 * V
    return {"W": start["W_scale"] * W, "V": V}


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
    """The rows of a population loss, each a class of sequences and a query in it."""

    counts: Float[Tensor, "row key"]
    query: Int[Tensor, " row"]
    star: Int[Tensor, " row"]  # the token that determines the label
    place: Int[Tensor, " row"]  # the place of that token in the query's list, from 1
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
        return Rows(*(getattr(self, field.name)[kept] for field in fields(self)))

    @cached_property
    def log_counts(self) -> Float[Tensor, "row key"]:
        r"""$\log N_b$, $-\infty$ where the token is absent."""
        return self.counts.log()

    @cached_property
    def log_counts_of_star(self) -> Float[Tensor, " row"]:
        r"""$\log N_{b^*}$ of the token that determines the label."""
        return self.log_counts.gather(1, self.star[:, None])[:, 0]

    @cached_property
    def others(self) -> Float[Tensor, "row key"]:
        r"""$\log N_b$ of the tokens that do not determine the label."""
        return self.log_counts.scatter(1, self.star[:, None], -torch.inf)


def attention_rows(W: Float[Tensor, "key query"], rows: Rows) -> Float[Tensor, "row key"]:
    r"""$\alpha_b(a, s)$ of every row.

    One exponential of each entry of W serves all rows, unless so small a one would be zero.
    """
    if rows.counts.numel() < FEW or (W.amax(0) - W.amin(0)).max().item() > WIDEST:
        return torch.softmax(rows.log_counts + W.T[rows.query], -1)
    shares = rows.counts * torch.exp(W - W.detach().amax(0)).T[rows.query]
    return shares / shares.sum(1, keepdim=True)


def attention_to_star(W: Float[Tensor, "key query"], rows: Rows) -> Float[Tensor, " row"]:
    r"""$\alpha_{b^*}(a, s)$ of every row: the attention to the token that determines the label."""
    return attention_rows(W, rows).gather(1, rows.star[:, None])[:, 0]


def attention_on_sequences(
    W: Float[Tensor, "key query"],
    counts: Float[Tensor, "sequence token"],
    star: Int[Tensor, "sequence token"],
) -> dict[str, np.ndarray]:
    """The attention of each query to each key of its sequence, as columns of a table.

    Sequences are numbered in the order in which they are given. `star` is the token that determines
    the label.
    """
    alpha = torch.softmax(counts.log()[:, :, None] + W, 1)  # sequence, key, query
    present = counts > 0
    together = present[:, :, None] & present[:, None, :]
    sequence, query, key = torch.nonzero(together, as_tuple=True)
    columns = {
        "sequence": sequence,
        "query": query,
        "star": star[sequence, query],
        "key": key,
        "attention": alpha[sequence, key, query],
    }
    return {name: column.numpy() for name, column in columns.items()}


def row_losses(
    W: Float[Tensor, "key query"],
    V: Float[Tensor, "label token"],
    rows: Rows,
    permutation: Int[Tensor, " token"],
) -> Float[Tensor, " row"]:
    r"""$-\log f$ of the right label $\pi(b^*)$ in every row."""
    return errors(attention_rows(W, rows) @ V.T, permutation[rows.star])[0]


def errors(
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
    E = (others - largest).exp_()
    total = E.sum(1, keepdim=True)
    ahead = largest - right
    loss = torch.logaddexp(ahead + total.log(), torch.zeros_like(right))
    share = torch.exp(ahead - loss)
    return loss[:, 0], (E * share).scatter_(1, y, -total * share)


class _Slopes:
    r"""The parts from which the derivatives of the population loss are computed, row by row.

    $p = \mathrm{softmax}(z)$, $G = \mu (p - e_y)$ and $d = V^\top G$. What is not asked for is not
    computed.
    """

    def __init__(
        self,
        alpha: Float[Tensor, "row key"],
        V: Float[Tensor, "label token"],
        rows: Rows,
        permutation: Int[Tensor, " token"],
    ):
        self.rows = rows
        self.query = rows.query
        self.mu = rows.weight[:, None]
        self.V = V
        self.y = permutation[rows.star][:, None]
        self.alpha = alpha
        self.z = alpha @ V.T

    @cached_property
    def _errors(self) -> tuple[Float[Tensor, " row"], Float[Tensor, "row label"]]:
        return errors(self.z, self.y[:, 0])

    @cached_property
    def G(self) -> Float[Tensor, "row label"]:  # noqa: N802
        return self._errors[1] * self.mu

    @cached_property
    def centred(self) -> Float[Tensor, "row token"]:
        r"""$d - \langle \alpha, d \rangle$."""
        d = self.G @ self.V
        return d - (self.alpha * d).sum(1, keepdim=True)

    @property
    def p(self) -> Float[Tensor, "row label"]:
        losses, error = self._errors
        return error.scatter(1, self.y, torch.exp(-losses)[:, None])

    def loss(self) -> Float[Tensor, ""]:
        return self.rows.weight @ self._errors[0]

    def in_W(self) -> Float[Tensor, "key query"]:  # noqa: N802
        return self.by_query(self.alpha * self.centred).T

    def in_V(self) -> Float[Tensor, "label token"]:  # noqa: N802
        return self.G.T @ self.alpha

    def margins(self) -> Float[Tensor, " row"]:
        others = self.z.scatter(1, self.y, -torch.inf)
        return self.z.gather(1, self.y)[:, 0] - others.amax(1)

    def by_query(self, values: Float[Tensor, "row n"]) -> Float[Tensor, "query n"]:
        return by_query(values, self.query, self.alpha.shape[1])


def by_query(
    values: Float[Tensor, "row n"], query: Int[Tensor, " row"], n_tokens: int
) -> Float[Tensor, "query n"]:
    """The sum of the rows of each query."""
    return torch.index_add(values.new_zeros(n_tokens, values.shape[1]), 0, query, values)


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
    at = _Slopes(attention_rows(W, rows), V, rows, permutation)
    return at.loss(), at.in_W(), at.in_V()


def attention_margins(W: Float[Tensor, "key query"], rows: Rows) -> Float[Tensor, " row"]:
    r"""$\log N_{b^*} + W_{b^*, a} - \max_{b \ne b^*} (\log N_b + W_{b, a})$ of every row.

    With V = cP, c > 0, a row is right if and only if it is positive: the logits $c\, \alpha$ of two
    tokens may be equal in floating point where these are not. Infinite where a row holds a single
    token.
    """
    right = rows.log_counts_of_star + W[rows.star, rows.query]
    return right - (rows.others + W.T[rows.query]).amax(1)


class _Latest(Generic[Value]):
    """The value of a function for the tensors of the last call, computed again for others.

    A tensor must not change in place between two calls.
    """

    def __init__(self, compute: Callable[..., Value]):
        self._compute = compute
        self._known: tuple[Tensor, ...] = ()

    def __call__(self, *tensors: Tensor) -> Value:
        if not self._known or any(a is not b for a, b in zip(tensors, self._known, strict=True)):
            self._value = self._compute(*tensors)
            self._known = tensors
        return self._value


class _ClosedForm(torch.autograd.Function):
    """The population loss as autograd sees it, with its gradients in closed form."""

    @staticmethod
    def forward(ctx: Any, W: Tensor, V: Tensor, loss: "PopulationLoss") -> Tensor:
        ctx.at = _Slopes(attention_rows(W, loss.rows), V, loss.rows, loss.permutation)
        return ctx.at.loss()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        [slope] = grad_outputs
        of_W, of_V, _ = ctx.needs_input_grad
        in_W = slope * ctx.at.in_W() if of_W else None
        in_V = slope * ctx.at.in_V() if of_V else None
        return in_W, in_V, None


class PopulationLoss:
    """The population loss of weights {"W", "V"} with its gradients, as a descent asks for it.

    What was computed last is kept for the same two tensors, which must not change in place; `value`
    alone, with which optimisers work that do change them, computes anew.
    """

    def __init__(self, rows: Rows, permutation: Int[Tensor, " token"]):
        self.rows = rows
        self.permutation = permutation
        self._attention = _Latest(lambda W: attention_rows(W, rows))
        self._at = _Latest(lambda W, V: _Slopes(self._attention(W), V, rows, permutation))

    @classmethod
    def of(cls, task: Task) -> "PopulationLoss":
        """The loss of a task, on every sequence of its law."""
        rows = Rows.of(task.counts, task.chances, task.star, task.place)
        return cls(rows, task.labels)

    def __call__(self, weights: dict[str, Tensor]) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss, and its gradients in W and V."""
        at = self._at(weights["W"], weights["V"])
        return at.loss(), {"W": at.in_W(), "V": at.in_V()}

    def gradient_in(
        self, name: Literal["W", "V"], weights: dict[str, Tensor]
    ) -> tuple[Float[Tensor, ""], dict[str, Tensor]]:
        """The loss, and its gradient in that matrix alone."""
        at = self._at(weights["W"], weights["V"])
        return at.loss(), {name: at.in_W() if name == "W" else at.in_V()}

    def value(self, weights: dict[str, Tensor]) -> Float[Tensor, ""]:
        """The loss alone, of which autograd takes the gradients in closed form."""
        return _ClosedForm.apply(weights["W"], weights["V"], self)

    def margins(self, weights: dict[str, Tensor]) -> Float[Tensor, " row"]:
        """The right label's logit less the largest of the others, of every row."""
        return self._at(weights["W"], weights["V"]).margins()

    def right(self, weights: dict[str, Tensor]) -> Bool[Tensor, " row"]:
        """Whether each row is right; a tie is not."""
        return self.margins(weights) > 0

    def accuracy(self, weights: dict[str, Tensor]) -> float:
        """The share of these rows, by their weights, that are right."""
        return float(self.rows.weight[self.right(weights)].sum() / self.rows.weight.sum())

    def measured(self, weights: dict[str, Tensor]) -> dict[str, float]:
        """The accuracy over the law, and how far V is along P.

        V and P are compared raw and with their columns centred. The accuracy is 1 if and only if
        every row is right, whatever the rounding of the weights' sum.
        """
        V = weights["V"]
        right = self.right(weights)
        P = label_matrix(self.permutation)
        return {
            "accuracy": 1.0 if bool(right.all()) else float(self.rows.weight[right].sum()),
            "cosine": _cosine(V, P),
            "centred_cosine": _cosine(V - V.mean(0), P - P.mean(0)),
            "argmax_right": float((V.argmax(0) == self.permutation).double().mean()),
        }

    def attention_curvature(self, weights: dict[str, Tensor]) -> float:
        r"""The largest eigenvalue of the Hessian in W, over its blocks, one for each query.

        At fixed V the columns do not interact. A row adds $\mu\, B^\top (\mathrm{diag}\, p - p
        p^\top) B + \mathrm{diag}(g) - \alpha g^\top - g \alpha^\top$ with $B_{kb} = (V_{kb} -
        z_k)\, \alpha_b$ and g the row's gradient.
        """
        V = weights["V"]
        at = self._at(weights["W"], V)
        alpha = at.alpha
        p = at.p
        g = alpha * at.centred
        B = (V - at.z[:, :, None]) * alpha[:, None, :]
        mean = (p[:, :, None] * B).sum(1)
        blocks = torch.einsum("rkb,rk,rkc->rbc", B, p * at.mu, B)
        blocks -= at.mu[:, :, None] * mean[:, :, None] * mean[:, None, :]
        blocks -= alpha[:, :, None] * g[:, None, :] + g[:, :, None] * alpha[:, None, :]
        blocks += torch.diag_embed(g)
        of_queries = at.by_query(blocks.flatten(1)).unflatten(1, V.shape)
        return float(torch.linalg.eigvalsh(of_queries)[:, -1].max())

    def hessian(
        self, weights: dict[str, Tensor]
    ) -> tuple[Callable[[Tensor], Tensor], Float[Tensor, " n"]]:
        r"""The Hessian as a map of flat vectors, W first, and the gradient as such a vector.

        It differentiates `loss_gradients` along $(\dot W, \dot V)$: $\dot s = \dot W_{\cdot, a}$,
        $\dot\alpha = \alpha (\dot s - \langle \alpha, \dot s \rangle)$, $\dot z = V \dot\alpha +
        \dot V \alpha$, $\dot G = \mu p (\dot z - \langle p, \dot z \rangle)$, and so on. As
        $\dot\alpha$ sums to zero, what is subtracted from d does not count in $\langle
        \dot\alpha, d \rangle$.
        """
        V = weights["V"]
        at = self._at(weights["W"], V)
        alpha = at.alpha
        p = at.p
        weighted = p * at.mu

        def flat(of_W: Tensor, of_V: Tensor) -> Tensor:
            return torch.cat([of_W.flatten(), of_V.flatten()])

        def apply(direction: Tensor) -> Tensor:
            W_dot, V_dot = direction.view(2, *V.shape)
            alpha_dot = W_dot.T[self.rows.query]
            alpha_dot -= (alpha * alpha_dot).sum(1, keepdim=True)
            alpha_dot *= alpha
            G_dot = (alpha @ V_dot.T).addmm_(alpha_dot, V.T)  # so far the derivative of z
            G_dot -= (p * G_dot).sum(1, keepdim=True)
            G_dot *= weighted
            pulled = (at.G @ V_dot).addmm_(G_dot, V)  # so far that of d
            pulled *= alpha
            pulled.addcmul_(alpha_dot, at.centred)
            pulled.addcmul_(alpha, pulled.sum(1, keepdim=True), value=-1)
            return flat(at.by_query(pulled).T, G_dot.T @ alpha + at.G.T @ alpha_dot)

        return apply, flat(at.in_W(), at.in_V())


class SequenceLoss:
    """The same loss on sequences of distinct tokens, position by position (`sequence_outputs`)."""

    def __init__(self, task: Task, attend_over: Literal["keys", "queries"]):
        self.tokens = torch.nonzero(task.counts)[:, 1].view(len(task.counts), -1)
        self.labels = task.labels[task.star.gather(1, self.tokens)]
        self.chances = task.chances
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


def _cosine(A: Tensor, B: Tensor) -> float:
    norms = float(A.norm() * B.norm())
    return float((A * B).sum()) / norms if norms else 0.0
