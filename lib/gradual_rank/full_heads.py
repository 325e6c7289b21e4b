r"""The attention head of Boix-Adserà et al. (2023), equation (1), with full d × d matrices, as a
loss of its products.

attention(X; W_K, W_Q, W_V, W_O) = softmax(X W_K W_Qᵀ Xᵀ) X W_V W_Oᵀ: no 1/√d, no residual, no bias.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Square = Float[Tensor, "*batch d d"]
BLOCK = 1 << 17  # numbers of the tokens of heads that are computed together: a megabyte


class FullHead:
    """One head under the mean squared error over samples, tokens and entries; seeds are a batch
    axis; float64.
    """

    def __init__(
        self, X: Float[Tensor, "*batch sample token d"], Y: Float[Tensor, "*batch sample token d"]
    ):
        self.X, self.Y = X.double(), Y.double()
        self._XT = self.X.mT.contiguous()

    def attended(self, W_KQ: Square) -> tuple[Tensor, Tensor]:
        r"""Attention weights $A = \mathrm{softmax}(X W_{KQ} X^\top)$ and mean tokens $Z = A X$."""
        S = _project(self.X, W_KQ) @ self._XT
        E = torch.exp(
            S - S.amax(-1, keepdim=True)
        )  # by hand: torch's softmax is slow on short rows in float64
        A = E / E.sum(-1, keepdim=True)
        return A, A @ self.X

    def output(self, W_KQ: Square, W_VO: Square) -> Float[Tensor, "*batch sample token d"]:
        r"""$\mathrm{softmax}(X W_{KQ} X^\top) X W_{VO}$."""
        return _project(self.attended(W_KQ)[1], W_VO)

    def loss_and_gradients(
        self, W_KQ: Square, W_VO: Square
    ) -> tuple[Float[Tensor, "*batch"], Square, Square]:
        r"""The loss, $-\partial L / \partial W_{KQ}$ and $G = -\partial L / \partial W_{VO}$."""
        batch = self.X.shape[:-3]
        size = self.X.shape[-3:]
        together = max(1, BLOCK // size.numel())
        of_data = (T.reshape(-1, *T.shape[-3:]).split(together) for T in (self.X, self._XT, self.Y))
        of_weights = (W.reshape(-1, size[-1], size[-1]).split(together) for W in (W_KQ, W_VO))
        found = [_heads(*parts) for parts in zip(*of_data, *of_weights, strict=True)]
        loss, g_KQ, g_VO = (torch.cat(parts) for parts in zip(*found, strict=True))
        return loss.reshape(batch), g_KQ.reshape(W_KQ.shape), g_VO.reshape(W_VO.shape)

    def loss_and_slopes(
        self, W: dict[str, Tensor]
    ) -> tuple[Float[Tensor, "*batch"], dict[str, Tensor]]:
        r"""The loss, and minus its gradient in each of W_K, W_Q, W_V and W_O: $G W_Q$ in W_K,
        $G^\top W_K$ in W_Q.
        """
        loss, g_KQ, g_VO = self.loss_and_gradients(W["W_K"] @ W["W_Q"].mT, W["W_V"] @ W["W_O"].mT)
        slopes = {
            "W_K": g_KQ @ W["W_Q"],
            "W_Q": g_KQ.mT @ W["W_K"],
            "W_V": g_VO @ W["W_O"],
            "W_O": g_VO.mT @ W["W_V"],
        }
        return loss, slopes


def _heads(
    X: Tensor, XT: Tensor, Y: Tensor, W_KQ: Tensor, W_VO: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss and slopes of some heads side by side."""
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
    """A B of many small matrices, by numpy, whose BLAS takes half of the time of torch's bmm on
    them.
    """
    with np.errstate(all="ignore"):  # what is not finite goes on as such, as with torch
        return torch.from_numpy(np.matmul(A.numpy(), B.numpy()))


def _project(
    X: Float[Tensor, "*batch sample token d"], W: Square
) -> Float[Tensor, "*batch sample token d"]:
    """X W as one product, not one a sample."""
    return (X.flatten(-3, -2) @ W).unflatten(-2, X.shape[-3:-1])


def first_rise(
    G: Square, W_V: Square, W_O: Square, log_scale: float, threshold: float, learning_rate: float
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    r"""When the first singular value of W_VO reaches the threshold: in the limit, at a finite
    scale, and for the steps.

    With $G = -\partial L/\partial W_{VO}$ at 0 and its leading $\sigma, u, v$, the flow near 0 is
    $\dot W_V = G W_O$, $\dot W_O = G^\top W_V$, so that $u^\top W_V + v^\top W_O$ grows as
    $e^{\sigma t}$. From $W_V, W_O$ times $\alpha = e^{\mathrm{log\_scale}}$, $t = \log(4 q /
    (\alpha^2 \|u^\top W_V + v^\top W_O\|^2)) / 2 \sigma$. The limit is $T_1 \log(1/\alpha)$ with
    $T_1 = 1/\sigma$, and gradient descent grows at $\log(1 + \eta \sigma) / \eta$ for σ. Times in
    units of the flow.
    """
    U, sigma, Vh = torch.linalg.svd(G)
    joint = (U[..., :, :1].mT @ W_V + Vh[..., :1, :] @ W_O)[..., 0, :]
    sigma = sigma[..., 0]
    exponent = torch.log(4 * threshold / joint.square().sum(-1)) - 2 * log_scale
    return (
        -log_scale / sigma,
        exponent / (2 * sigma),
        exponent * learning_rate / (2 * torch.log1p(learning_rate * sigma)),
    )
