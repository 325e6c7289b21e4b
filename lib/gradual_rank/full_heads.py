"""The attention head of Boix-Adserà et al. (2023), equation (1), with full d × d matrices.

attention(X; W_K, W_Q, W_V, W_O) = softmax(X W_K W_Qᵀ Xᵀ) X W_V W_Oᵀ: no 1/√d, no residual, no bias.
It has two losses: `FullHead` has one training on tokens of its own, `SharedTokensHead` has several
trainings on the same tokens. They order their sums differently, and it shows: from 1e-16, what
follows the first rise depends on rounding.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lib.files.files import InputError
from lib.files.params import Interval, Positive
from lib.training.attention import PRODUCTS
from lib.training.devices import generator
from lib.training.gradient_descent import Step, Weights, descent

Square = Float[Tensor, "*batch d d"]
Squares = Float[Tensor, "*batch training d d"]
Factors = dict[str, Float[Tensor, "side product *batch training d d"]]
SIDES = (("W_K", "W_V"), ("W_Q", "W_O"))  # P and Q of the products P Qᵀ
# how many numbers are computed together: a megabyte of them for heads, half of it for trainings
BLOCK_OF_HEADS = 1 << 17
BLOCK = 1 << 16
LARGE = 500.0  # up to here the exponentials of logits are far from the ends of float64


@dataclass(frozen=True, kw_only=True)
class FullSizes:
    """The width of the head, the tokens of a sequence, and the size of a direction that has risen.

    This is a singular value of a product.
    """

    seq_len: Annotated[int, Interval("[2, 1000]")]
    d_model: Annotated[int, Interval("[2, 1000]")]
    threshold: Positive


def output(
    X: Float[Tensor, "*batch sample token d"], W_KQ: Square, W_VO: Square
) -> Float[Tensor, "*batch sample token d"]:
    r"""The output $\mathrm{softmax}(X W_{KQ} X^\top) X W_{VO}$ of a head."""
    S = _project(X, W_KQ) @ X.mT.contiguous()
    # torch's softmax is slow on short rows in float64, so it is written out
    E = torch.exp(S - S.amax(-1, keepdim=True))
    return _project(E / E.sum(-1, keepdim=True) @ X, W_VO)


def _project(
    X: Float[Tensor, "*batch sample token d"], W: Square
) -> Float[Tensor, "*batch sample token d"]:
    """The products X W as one product for all samples, not as one for each."""
    return (X.flatten(-3, -2) @ W).unflatten(-2, X.shape[-3:-1])


class FullHead:
    """Heads, in float64, under the mean squared error over samples, tokens and entries."""

    def __init__(
        self, X: Float[Tensor, "*batch sample token d"], Y: Float[Tensor, "*batch sample token d"]
    ):
        self.X = X
        self.Y = Y
        self._XT = X.mT.contiguous()

    def loss_and_gradients(
        self, W_KQ: Square, W_VO: Square
    ) -> tuple[Float[Tensor, "*batch"], Square, Square]:
        r"""The losses, $-\partial L / \partial W_{KQ}$ and $-\partial L / \partial W_{VO}$."""
        size = self.X.shape[-3:]
        together = max(1, BLOCK_OF_HEADS // size.numel())
        of_data = (T.reshape(-1, *T.shape[-3:]).split(together) for T in (self.X, self._XT, self.Y))
        of_weights = (W.reshape(-1, size[-1], size[-1]).split(together) for W in (W_KQ, W_VO))
        found = [_heads(*parts) for parts in zip(*of_data, *of_weights, strict=True)]
        loss, g_KQ, g_VO = (torch.cat(parts) for parts in zip(*found, strict=True))
        return loss.reshape(self.X.shape[:-3]), g_KQ.reshape(W_KQ.shape), g_VO.reshape(W_VO.shape)


def _heads(
    X: Tensor, XT: Tensor, Y: Tensor, W_KQ: Tensor, W_VO: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The losses of some heads side by side, and minus their gradients in W_KQ and W_VO."""
    flat = X.flatten(1, 2)
    A = _small_products((flat @ W_KQ).view_as(X), XT)
    A.sub_(A.amax(-1, keepdim=True)).exp_()
    A /= A.sum(-1, keepdim=True)
    Z = _small_products(A, X).flatten(1, 2)
    off = torch.baddbmm(Y.flatten(1, 2), Z, W_VO, beta=-1)
    R = off * (2.0 / Y[0].numel())
    inner = _small_products((R @ W_VO.mT).view_as(X), XT).mul_(A)
    D = torch.addcmul(inner, A, inner.sum(-1, keepdim=True), value=-1)
    g_KQ = flat.mT @ _small_products(D, X).flatten(1, 2)
    return (off * R).sum((-2, -1)) / 2, -g_KQ, -(Z.mT @ R)


def _small_products(A: Tensor, B: Tensor) -> Tensor:
    """The products A B of many small matrices: numpy's BLAS takes half the time of torch's bmm."""
    with np.errstate(all="ignore"):  # as torch does: infinite and NaN go on
        return torch.from_numpy(np.matmul(A.numpy(), B.numpy()))


def full_descent(
    head: FullHead, start: Weights, rate: float, name: str = "learning_rate"
) -> Iterator[Step]:
    """Gradient descent on W_K, W_Q, W_V and W_O.

    Raises `InputError`, which names the param of the rate, at a step whose loss is not finite.
    """

    def loss_and_slopes(W: Weights) -> tuple[Tensor, Weights]:
        products = (W[a] @ W[b].mT for a, b in PRODUCTS.values())
        loss, g_KQ, g_VO = head.loss_and_gradients(*products)
        return loss, {"W_KQ": g_KQ, "W_VO": g_VO}

    def moved(_: int, W: Weights, g: Weights) -> Weights:
        return {
            "W_K": W["W_K"] + rate * g["W_KQ"] @ W["W_Q"],
            "W_Q": W["W_Q"] + rate * g["W_KQ"].mT @ W["W_K"],
            "W_V": W["W_V"] + rate * g["W_VO"] @ W["W_O"],
            "W_O": W["W_O"] + rate * g["W_VO"].mT @ W["W_V"],
        }

    for step in descent(loss_and_slopes, start, moved):
        if not step.loss.isfinite().all():
            raise InputError(
                f"{name}: wanted one with which descent stays finite, got {rate:g} (step "
                f"{step.number})"
            )
        yield step


class SharedTokensHead:
    r"""Heads whose trainings share one X and have a Y each; otherwise they are as in `FullHead`.

    For each sample the queries of all trainings are rows of one matrix: a step of k trainings takes
    as many matrix products as one training, each with k times the operations. Row maxima are
    subtracted from the logits only where these are large, and $A = \mathrm{diag}(E 1)^{-1} E$ with
    $E = \exp(X W_{KQ} X^\top)$ is nowhere formed. With R the slope of the loss in the output and
    $B = R W_{VO}^\top X^\top$, the slope in the logits is $D = A \odot (B - ((A \odot B) 1)
    1^\top)$, and with $Z = A X$

    $D X = \mathrm{diag}(E 1)^{-1} (E \odot B) X - \mathrm{diag}((R W_{VO}^\top \odot Z) 1) Z$.
    """

    def __init__(
        self,
        X: Float[Tensor, "*batch sample token d"],
        Y: Float[Tensor, "*batch training sample token d"],
    ):
        self._batch = Y.shape[:-3]
        k, size = Y.shape[-4], X.shape[-3] * X.shape[-2]
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
        r"""The losses, and minus their gradients in both factors: $G Q$ in P, $G^\top P$ in Q."""
        factors = W["factors"].numpy()
        P, Q = factors
        slopes = np.empty_like(factors)
        with np.errstate(all="ignore"):  # as torch does: infinite and NaN go on
            loss, G = self._at(P @ Q.swapaxes(-1, -2))
            np.matmul(G, Q, out=slopes[0])
            np.matmul(G.swapaxes(-1, -2), P, out=slopes[1])
        return torch.from_numpy(loss), {"factors": torch.from_numpy(slopes)}

    def growth_at_zero(self, learning_rate: float) -> Float[Tensor, "*batch training"]:
        r"""How fast W_VO leaves zero under steps of a rate η: $\log(1 + \eta \sigma_1) / \eta$ per
        τ.

        σ₁ is the largest singular value of $-\partial L / \partial W_{VO}$ there.
        """
        d = self._blocks[0].X.shape[-1]
        zeros = torch.zeros(2, *self._batch, d, d, dtype=torch.float64)
        sigma = torch.linalg.svdvals(self.loss_and_gradients(*zeros)[2])[..., 0]
        return torch.log1p(learning_rate * sigma) / learning_rate

    def _at(self, products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The losses, and minus the gradients, as [product, *batch, training, d, d]."""
        G = np.empty_like(products)
        whole = products.reshape(2, -1, *products.shape[-3:])
        slopes = G.reshape(whole.shape)
        losses: list[np.ndarray] = []
        begin = 0
        with np.errstate(all="ignore"):
            for block in self._blocks:
                these = slice(begin, begin + len(block.X))
                losses.append(block.loss_and_gradients(*whole[:, these], *slopes[:, these]))
                begin = these.stop
        return np.concatenate(losses).reshape(self._batch), G


def gaussian_factors(
    d: int, seeds: Sequence[int], purpose: str
) -> Float[Tensor, "side product *batch d d"]:
    """The factors of every seed, with N(0, 1) entries: W_K, W_Q, W_V and W_O, in drawing order."""
    sources = [generator(seed, purpose) for seed in seeds]
    each = [torch.randn(4, d, d, generator=source, dtype=torch.float64) for source in sources]
    return torch.stack(each, 1).unflatten(0, (2, 2)).transpose(0, 1).contiguous()


def products_of_ranks(
    W: Float[Tensor, "side product *batch d d"], ranks: Sequence[int]
) -> list[Float[Tensor, "product *batch d d"]]:
    r"""The products $P_r Q_r^\top / \sqrt{d r}$ of the first r columns of the factors, for each
    rank r.

    With N(0, 1) entries both products have entries of variance 1/d, whatever the rank.
    """
    P, Q = W
    return [P[..., :r] @ Q[..., :r].mT / math.sqrt(P.shape[-1] * r) for r in ranks]


def targets(
    X: Float[Tensor, "seed sample token d"], seeds: Sequence[int], ranks: Sequence[int]
) -> Float[Tensor, "seed teacher sample token d"]:
    """The targets of every seed's teachers, which have these ranks and one norm."""
    teachers = products_of_ranks(gaussian_factors(X.shape[-1], seeds, "full teacher"), ranks)
    return torch.stack([output(X, W_KQ, W_VO) for W_KQ, W_VO in teachers], 1)


def named(W: Float[Tensor, "side product *batch d d"]) -> dict[str, Float[Tensor, "*batch d d"]]:
    """The matrices of the factors, by name."""
    return {
        name: w.contiguous()
        for names, products in zip(SIDES, W, strict=True)
        for name, w in zip(names, products, strict=True)
    }


def spectra(W: Float[Tensor, "side product *batch d d"]) -> Float[np.ndarray, "product *batch d"]:
    """The singular values of both products."""
    P, Q = W
    return torch.linalg.svdvals(P @ Q.mT).numpy()


def first_rise(
    G: Square,
    W: Float[Tensor, "side product *batch d d"],
    log_scale: float,
    threshold: float,
    learning_rate: float,
) -> dict[str, Float[Tensor, "*batch"]]:
    r"""When the first singular value of W_VO reaches the threshold q, in units of the flow.

    The time is given in the `limit`, from a `finite` scale, and for the steps of descent
    (`stepped`). With $G = -\partial L/\partial W_{VO}$ at 0 and its leading $\sigma, u, v$, the
    flow near 0 is $\dot W_V = G W_O$, $\dot W_O = G^\top W_V$, so that $u^\top W_V + v^\top W_O$
    grows as $e^{\sigma t}$. From the factors W times $\alpha = e^{\mathrm{log\_scale}}$, $t =
    \log(4 q / (\alpha^2 \|u^\top W_V + v^\top W_O\|^2)) / 2 \sigma$. The limit is $T_1
    \log(1/\alpha)$ with $T_1 = 1/\sigma$, and gradient descent grows at $\log(1 + \eta \sigma) /
    \eta$ instead of σ.
    """
    U, sigma, Vh = torch.linalg.svd(G)
    W_V, W_O = W[:, 1]
    joint = (U[..., :, :1].mT @ W_V + Vh[..., :1, :] @ W_O)[..., 0, :]
    sigma = sigma[..., 0]
    exponent = torch.log(4 * threshold / joint.square().sum(-1)) - 2 * log_scale
    return {
        "limit": -log_scale / sigma,
        "finite": exponent / (2 * sigma),
        "stepped": exponent * learning_rate / (2 * torch.log1p(learning_rate * sigma)),
    }


class _Block:
    """Some seeds, few enough to stay in the processor's cache."""

    def __init__(self, X: np.ndarray, Y: np.ndarray):
        self.X, self.Y = X, Y
        self.flat = X.reshape(len(X), -1, X.shape[-1])
        self.XT = np.ascontiguousarray(X.swapaxes(-1, -2))
        self.flat_T = np.ascontiguousarray(self.flat.swapaxes(-1, -2))
        # a product with these has every row's sum in each of its columns
        self.ones_of_tokens = np.ones(X.shape[-2:])
        self.ones_of_entries = np.ones(X.shape[-1:] * 2)

    def loss_and_gradients(
        self, W_KQ: np.ndarray, W_VO: np.ndarray, g_KQ: np.ndarray, g_VO: np.ndarray
    ) -> np.ndarray:
        """The losses; minus their gradients are written into g_KQ and g_VO.

        All weights are [seed, training, d, d].
        """
        n_seeds, n, _, d = self.X.shape
        k = W_KQ.shape[1]
        by_sample = (n_seeds, n, -1, d)  # a row for each token and training
        by_token = (n_seeds, -1, k, d)
        W_side_by_side = W_KQ.transpose(0, 2, 1, 3).reshape(n_seeds, d, k * d)
        E = (self.flat @ W_side_by_side).reshape(by_sample) @ self.XT
        if E.max() > LARGE or E.min() < -LARGE:
            E -= E.max(-1, keepdims=True)
        np.exp(E, out=E)
        sums = E @ self.ones_of_tokens
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
        shares = (back.reshape(-1, d) @ self.ones_of_entries).reshape(by_token)
        shares *= Z
        DX -= shares
        slope = (self.flat_T @ DX.reshape(n_seeds, -1, k * d)).reshape(n_seeds, d, k, d)
        size = self.X[0].size
        g_KQ[:] = slope.swapaxes(1, 2) * (-2 / size)
        g_VO[:] = (Z_of.swapaxes(-1, -2) @ R.swapaxes(1, 2)) * (-2 / size)
        R_side_by_side = R.reshape(n_seeds, -1, k * d)
        squares = np.einsum("ste,ste->se", R_side_by_side, R_side_by_side)
        return squares.reshape(n_seeds, k, d).sum(-1) / size
