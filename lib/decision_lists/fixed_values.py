r"""The population loss at V = cP, as a function of W alone, in numpy: for flows, which ask often.

It is that of attention.py, but looks in each row at the tokens that may have attention alone: at
those of the sequence, or at every token where some may repeat. The axes are the place of a token
and the row. W is a flat array, in the order [key, query].
"""

import numpy as np
from jaxtyping import Float
from scipy import sparse

from lib.decision_lists.attention import Rows

WIDEST = 600.0  # between two entries of a column, whose exponentials then are in double range
Vector = Float[np.ndarray, " n"]
Placed = Float[np.ndarray, "place row"]


class FixedValues:
    r"""The rows of a population loss at V = cP.

    The logits are $z = c\, \alpha$ for the labels of tokens, and zero for the labels of the
    `n_absent` tokens that have no place.
    """

    def __init__(self, rows: Rows):
        counts = rows.counts.numpy()
        query = rows.query.numpy()
        n_rows, L = counts.shape
        self.repeats = bool((counts > 1).any())
        if self.repeats:
            tokens = np.tile(np.arange(L)[:, None], n_rows)
        else:
            tokens = np.nonzero(counts)[1].reshape(n_rows, -1).T
        self.counts = np.ascontiguousarray(counts.T) if self.repeats else None
        with np.errstate(divide="ignore"):
            self.log_counts = None if self.counts is None else np.log(self.counts)
        self.n_absent = L - len(tokens)
        self.n_tokens = L
        self.entries = np.ascontiguousarray(tokens * L + query)  # places in a flat W
        star = (tokens == rows.star.numpy()).argmax(0)
        self.star = star * n_rows + np.arange(n_rows)  # in a flattened place, row
        self.star_entries = self.entries.ravel()[self.star]
        self.weight = rows.weight.numpy()
        columns = np.arange(self.entries.size)
        weights = np.tile(self.weight, len(tokens))
        shape = L * L, self.entries.size
        self.sums = sparse.csr_matrix((weights, (self.entries.ravel(), columns)), shape)

    def attention(self, W: Vector) -> Placed:
        r"""$\alpha$ of every row; one exponential of each entry of W serves all rows."""
        square = W.reshape(self.n_tokens, -1)
        largest = square.max(0)
        if (largest - square.min(0)).max() < WIDEST:
            alpha = np.exp(square - largest).ravel().take(self.entries)
            if self.counts is not None:
                alpha *= self.counts
        else:
            scores = self._scores(W)
            alpha = np.exp(scores - scores.max(0))
        alpha /= alpha.sum(0)
        return alpha

    def losses(self, W: Vector, scale: float) -> Float[np.ndarray, " row"]:
        r"""$-\log f$ of the right label in every row."""
        _, total, ahead = self._others(scale * self.attention(W), self.n_absent)
        return np.logaddexp(ahead + np.log(total), 0.0)

    def ascent(self, W: Vector, scale: float) -> Vector:
        r"""The velocity $-\nabla_W / c = -\sum \mu\, \alpha_b (d_b - \langle \alpha, d \rangle)$.

        There $d = p - e_*$ over the tokens.
        """
        alpha = self.attention(W)
        slopes = self._errors(scale * alpha, self.n_absent)
        slopes -= (alpha * slopes).sum(0)
        slopes *= alpha
        return -(self.sums @ slopes.ravel())

    def ascent_of_choices(self, u: Vector) -> Vector:
        r"""The velocity of u = cW in the limit of large values, $c \to \infty$, on distinct tokens.

        There $\alpha_b = 1/n + O(1/c)$ and $z_b = c/n + (u_b - \bar u)/n$: the flow is that of the
        regression $\dot u_b = \frac1n \sum \mu\, (1[b = b^*] - p_b)$, $p = \mathrm{softmax}(u / n)$
        over the tokens of the sequence: Luce's choice model, a convex problem.
        """
        n = len(self.entries)
        return -(self.sums @ self._errors(u.take(self.entries) / n, 0).ravel()) / n

    def margins(self, W: Vector) -> Float[np.ndarray, " row"]:
        r"""$\log N_{b^*} + W_{b^*, a} - \max_{b \ne b^*} (\log N_b + W_{b, a})$ of every row."""
        scores = self._scores(W)
        right = scores.ravel()[self.star]
        scores.ravel()[self.star] = -np.inf
        return right - scores.max(0)

    def attention_to_star(self, W: Vector) -> Float[np.ndarray, " row"]:
        r"""$\alpha_{b^*}$ of every row."""
        return self.attention(W).ravel()[self.star]

    def _scores(self, W: Vector) -> Placed:
        scores = W.take(self.entries)
        return scores if self.log_counts is None else scores + self.log_counts

    def _others(self, z: Placed, n_absent: int) -> tuple[Placed, Vector, Vector]:
        """The exponentials of the other labels' logits over the largest of them, their sum, and how
        far that largest is ahead of the right label; z is overwritten.
        """
        right = z.ravel()[self.star]
        z.ravel()[self.star] = -np.inf
        largest = np.maximum(z.max(0), 0.0 if n_absent else -1e300)
        E = np.exp(np.subtract(z, largest, out=z), out=z)
        total = E.sum(0)
        if n_absent:
            total += n_absent * np.exp(-largest)
        return E, total, largest - right

    def _errors(self, z: Placed, n_absent: int) -> Placed:
        r"""$p - e_*$, $p = \mathrm{softmax}(z)$; z is overwritten.

        $1 - p_*$ is the sum of the others' probabilities: where it is small, p_* - 1 would be
        rounding alone.
        """
        E, total, ahead = self._others(z, n_absent)
        with np.errstate(over="ignore"):
            share = 1 / (np.exp(-ahead) + total)
        E *= share
        E.ravel()[self.star] = -total * share
        return E
