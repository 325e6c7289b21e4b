r"""The attention head of Boix-Adserà et al. (2023), equation (1), with full d × d matrices, as a loss of its products.

attention(X; W_K, W_Q, W_V, W_O) = softmax(X W_K W_Qᵀ Xᵀ) X W_V W_Oᵀ: no 1/√d, no residual, no bias.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Square = Float[Tensor, "*batch d d"]


class FullHead:
    """One head under the mean squared error over samples, tokens and entries; seeds are a batch axis; float64."""

    def __init__(self, X: Float[Tensor, "*batch sample token d"], Y: Float[Tensor, "*batch sample token d"]):
        self.X, self.Y = X.double(), Y.double()
        self._XT = self.X.mT.contiguous()

    def attended(self, W_KQ: Square) -> tuple[Tensor, Tensor]:
        r"""Attention weights $A = \mathrm{softmax}(X W_{KQ} X^\top)$ and mean tokens $Z = A X$."""
        S = _project(self.X, W_KQ) @ self._XT
        E = torch.exp(S - S.amax(-1, keepdim=True))  # by hand: torch's softmax is slow on short rows in float64
        A = E / E.sum(-1, keepdim=True)
        return A, A @ self.X

    def output(self, W_KQ: Square, W_VO: Square) -> Float[Tensor, "*batch sample token d"]:
        r"""$\mathrm{softmax}(X W_{KQ} X^\top) X W_{VO}$."""
        return _project(self.attended(W_KQ)[1], W_VO)

    def loss_and_gradients(self, W_KQ: Square, W_VO: Square) -> tuple[Float[Tensor, "*batch"], Square, Square]:
        r"""The loss, $-\partial L / \partial W_{KQ}$ and $G = -\partial L / \partial W_{VO}$."""
        X = self.X
        A, Z = self.attended(W_KQ)
        off = _project(Z, W_VO) - self.Y
        R = off * (2.0 / (X.shape[-3] * X.shape[-2] * X.shape[-1]))
        inner = _project(R, W_VO.mT) @ self._XT
        D = A * (inner - (A * inner).sum(-1, keepdim=True))
        g_KQ = -X.flatten(-3, -2).mT @ (D @ X).flatten(-3, -2)
        g_VO = -Z.flatten(-3, -2).mT @ R.flatten(-3, -2)
        return off.square().mean((-3, -2, -1)), g_KQ, g_VO


def _project(X: Float[Tensor, "*batch sample token d"], W: Square) -> Float[Tensor, "*batch sample token d"]:
    """X W as one product, not one a sample."""
    return (X.flatten(-3, -2) @ W).unflatten(-2, X.shape[-3:-1])


def first_rise(
    G: Square, W_V: Square, W_O: Square, log_scale: float, threshold: float, learning_rate: float
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    r"""When the first singular value of W_VO reaches the threshold: in the limit, at a finite scale, and for the steps.

    With $G = -\partial L/\partial W_{VO}$ at 0 and its leading $\sigma, u, v$, the flow near 0 is $\dot W_V = G W_O$,
    $\dot W_O = G^\top W_V$, so that $u^\top W_V + v^\top W_O$ grows as $e^{\sigma t}$. From $W_V, W_O$ times
    $\alpha = e^{\mathrm{log\_scale}}$, $t = \log(4 q / (\alpha^2 \|u^\top W_V + v^\top W_O\|^2)) / 2 \sigma$.
    The limit is $T_1 \log(1/\alpha)$ with $T_1 = 1/\sigma$, and gradient descent grows at
    $\log(1 + \eta \sigma) / \eta$ for σ. Times in units of the flow.
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
