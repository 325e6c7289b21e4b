r"""Attention heads of full d × d matrices (see full_attention) on the same tokens: trainings side
by side.

For each sample the trainings' queries are rows of one matrix, so that a step of k trainings costs k
times the operations in a kth of the products. Row maxima are taken off the logits where these are
large alone, and

$A = \mathrm{diag}(E 1)^{-1} E$ with $E = \exp(X W_{KQ} X^\top)$ is nowhere formed: with R the slope
of the loss in the output and $B = R W_{VO}^\top X^\top$, the slope in the logits is $D = A \odot (B
- ((A \odot B) 1) 1^\top)$, and

$D X = \mathrm{diag}(E 1)^{-1} (E \odot B) X - \mathrm{diag}((R W_{VO}^\top \odot Z) 1) Z$ with $Z =
A X$.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Squares = Float[Tensor, "*batch training d d"]
Factors = dict[str, Float[Tensor, "side product *batch training d d"]]
SIDES = (("W_K", "W_V"), ("W_Q", "W_O"))  # P and Q of the products P Qᵀ
BLOCK = (
    1 << 16
)  # numbers of the tokens of all trainings that are computed together: half a megabyte
LARGE = 500.0  # of logits, whose exponentials are far from the ends of float64


class SharedTokensHead:
    """Heads under the mean squared error over samples, tokens and entries; one X, and a Y of each
    training; float64.
    """

    def __init__(
        self,
        X: Float[Tensor, "*batch sample token d"],
        Y: Float[Tensor, "*batch training sample token d"],
    ):
        self._batch = Y.shape[:-3]
        k = Y.shape[-4]
        size = X.shape[-3] * X.shape[-2]
        tokens = X.double().reshape(-1, *X.shape[-3:]).numpy()
        targets = Y.double().movedim(-4, -2).reshape(-1, size, k, X.shape[-1]).contiguous().numpy()
        together = max(1, BLOCK // targets[0].size)
        self._blocks = [
            _Block(tokens[i : i + together], targets[i : i + together])
            for i in range(0, len(tokens), together)
        ]

    def loss_and_gradients(
        self, W_KQ: Squares, W_VO: Squares
    ) -> tuple[Float[Tensor, "*batch training"], Squares, Squares]:
        r"""The losses, $-\partial L / \partial W_{KQ}$ and $-\partial L / \partial W_{VO}$."""
        loss, G = self._at(torch.stack([W_KQ, W_VO]).numpy())
        g_KQ, g_VO = torch.from_numpy(G)
        return torch.from_numpy(loss), g_KQ, g_VO

    def loss_and_slopes(self, W: Factors) -> tuple[Float[Tensor, "*batch training"], Factors]:
        r"""The losses, and minus their gradients in the factors of both products: $G Q$ in P,
        $G^\top P$ in Q.
        """
        factors = W["factors"].numpy()
        P, Q = factors
        slopes = np.empty_like(factors)
        with np.errstate(all="ignore"):  # what is not finite goes on as such, as with torch
            loss, G = self._at(P @ Q.swapaxes(-1, -2))
            np.matmul(G, Q, out=slopes[0])
            np.matmul(G.swapaxes(-1, -2), P, out=slopes[1])
        return torch.from_numpy(loss), {"factors": torch.from_numpy(slopes)}

    def growth_at_zero(self, learning_rate: float) -> Float[Tensor, "*batch training"]:
        r"""How fast W_VO leaves zero under steps of a rate η, per τ: $\log(1 + \eta \sigma_1) /
        \eta$.

        σ₁ is the largest singular value of $-\partial L / \partial W_{VO}$ at $W_{KQ} = W_{VO} =
        0$.
        """
        d = self._blocks[0].X.shape[-1]
        zeros = torch.zeros(2, *self._batch, d, d, dtype=torch.float64)
        sigma = torch.linalg.svdvals(self.loss_and_gradients(*zeros)[2])[..., 0]
        return torch.log1p(learning_rate * sigma) / learning_rate

    def _at(self, products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses, and minus the gradients in both products [product, *batch, training, d,
        d].
        """
        whole = products.reshape(2, -1, *products.shape[-3:])
        G = np.empty_like(products)
        slopes = G.reshape(whole.shape)
        losses = []
        begin = 0
        with np.errstate(all="ignore"):
            for block in self._blocks:
                these = slice(begin, begin + len(block.X))
                loss, slopes[0, these], slopes[1, these] = block.loss_and_gradients(
                    *whole[:, these]
                )
                losses.append(loss)
                begin = these.stop
        return np.concatenate(losses).reshape(self._batch), G


def side_by_side(W_K: Squares, W_Q: Squares, W_V: Squares, W_O: Squares) -> Factors:
    """Factors of the four matrices."""
    return {"factors": torch.stack([torch.stack([W_K, W_V]), torch.stack([W_Q, W_O])])}


def gaussian_factors(d: int, sources: Sequence[torch.Generator]) -> Factors:
    """Factors of N(0, 1) entries, one of the batch from each source."""
    each = [torch.randn(4, d, d, generator=source, dtype=torch.float64) for source in sources]
    return side_by_side(*torch.stack(each, 1))


def products_of_ranks(
    W: Float[Tensor, "side product *batch d d"], ranks: Sequence[int]
) -> list[Float[Tensor, "product *batch d d"]]:
    r"""For each rank r, $P_r Q_r^\top / \sqrt{d r}$ of the first r columns of the factors: both
    products, of one norm.

    With N(0, 1) entries each product has entries of variance 1/d, whatever the rank.
    """
    P, Q = W
    return [P[..., :r] @ Q[..., :r].mT / math.sqrt(P.shape[-1] * r) for r in ranks]


def named(W: Factors) -> dict[str, Squares]:
    """The matrices of factors by their names."""
    P, Q = (side.unbind() for side in W["factors"])
    return {
        name: w.contiguous()
        for names, side in zip(SIDES, (P, Q), strict=True)
        for name, w in zip(names, side, strict=True)
    }


def spectra(W: Factors) -> Float[np.ndarray, "product *batch training d"]:
    """The singular values of both products."""
    P, Q = W["factors"]
    return torch.linalg.svdvals(P @ Q.mT).numpy()


class _Block:
    """Some seeds, few enough to stay in the processor's cache."""

    def __init__(self, X: np.ndarray, Y: np.ndarray):
        self.X, self.Y = X, Y
        self.flat = X.reshape(len(X), -1, X.shape[-1])
        self.XT = np.ascontiguousarray(X.swapaxes(-1, -2))
        self.flat_T = np.ascontiguousarray(self.flat.swapaxes(-1, -2))
        self.ones = (
            np.ones(X.shape[-2:]),
            np.ones(X.shape[-1:] * 2),
        )  # a product with them has every row's sum d times

    def loss_and_gradients(
        self, W_KQ: np.ndarray, W_VO: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of [seed, training, d, d], as `SharedTokensHead` has them."""
        (n_seeds, n, _, d), k = self.X.shape, W_KQ.shape[1]
        # rows are tokens × trainings
        by_sample = (n_seeds, n, -1, d)
        by_token = (n_seeds, -1, k, d)
        side_by_side = W_KQ.transpose(0, 2, 1, 3).reshape(n_seeds, d, k * d)
        E = (self.flat @ side_by_side).reshape(by_sample) @ self.XT
        if E.max() > LARGE or E.min() < -LARGE:
            E -= E.max(-1, keepdims=True)
        np.exp(E, out=E)
        sums = E @ self.ones[0]
        Z = E @ self.X
        Z /= sums
        Z = Z.reshape(by_token)
        Z_of = Z.swapaxes(1, 2)  # [seed, training, token, d]
        R = np.empty_like(Z)
        back = np.empty_like(Z)
        np.matmul(Z_of, W_VO, out=R.swapaxes(1, 2))
        R -= self.Y
        np.matmul(R.swapaxes(1, 2), W_VO.swapaxes(-1, -2).copy(), out=back.swapaxes(1, 2))
        E *= back.reshape(by_sample) @ self.XT
        DX = E @ self.X
        DX /= sums
        DX = DX.reshape(by_token)
        back *= Z
        shares = (back.reshape(-1, d) @ self.ones[1]).reshape(by_token)
        shares *= Z
        DX -= shares
        g_KQ = (
            (self.flat_T @ DX.reshape(n_seeds, -1, k * d)).reshape(n_seeds, d, k, d).swapaxes(1, 2)
        )
        g_VO = Z_of.swapaxes(-1, -2) @ R.swapaxes(1, 2)
        size = self.X[0].size
        return np.einsum("stkd,stkd->sk", R, R) / size, g_KQ * (-2 / size), g_VO * (-2 / size)
