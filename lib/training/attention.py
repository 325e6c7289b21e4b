"""Attention heads in the papers' row convention: tokens are rows, and a projection acts as x W.

Per head, W_Q, W_K, W_V and W_O are d_model × d_head. A head reads and writes only through the two
products W_KQ = W_K W_Qᵀ and W_VO = W_V W_Oᵀ, both d_model × d_model and of rank at most d_head.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

PRODUCTS = {"W_KQ": ["W_K", "W_Q"], "W_VO": ["W_V", "W_O"]}


def merge_heads(
    W: Float[Tensor, "*layer head d_model d_head"],
) -> Float[Tensor, "*layer d_model head*d_head"]:
    """The projections of all heads side by side, as one matrix."""
    return W.transpose(-3, -2).flatten(-2)


def split_heads(
    W: Float[Tensor, "*layer d_model inner"], n_heads: int
) -> Float[Tensor, "*layer {n_heads} d_model d_head"]:
    """The inverse of `merge_heads`."""
    return W.unflatten(-1, (n_heads, -1)).transpose(-3, -2)


def project(
    X: Float[Tensor, "batch token d_model"], W: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "batch head token d_head"]:
    """x W for every head."""
    return (X @ merge_heads(W)).unflatten(-1, (W.shape[0], W.shape[2])).transpose(1, 2)


def attention(
    X_query: Float[Tensor, "batch query d_model"],
    X: Float[Tensor, "batch token d_model"],
    W_Q: Float[Tensor, "head d_model d_head"],
    W_K: Float[Tensor, "head d_model d_head"],
    W_V: Float[Tensor, "head d_model d_head"],
    W_O: Float[Tensor, "head d_model d_head"],
    biases: Sequence[Tensor] = (),
    *,
    fused: bool = True,
) -> Float[Tensor, "batch query d_model"]:
    r"""Multi-head attention (Vaswani et al. 2017).

    It is the sum over heads of
    $\mathrm{softmax}(X_q W_Q W_K^\top X^\top / \sqrt{d_\mathrm{head}}) \, X W_V W_O^\top$.
    With `biases`, b_Q, b_K and b_V [head, d_head] are added to the projections of every token, and
    b_O [d_model] to the sum.
    """
    projected = [project(X_query, W_Q), project(X, W_K), project(X, W_V)]
    if biases:
        of_heads = zip(projected, biases[:3], strict=True)
        projected = [Y + b[:, None] for Y, b in of_heads]
    Z = attend(*projected, fused=fused)
    summed = Z.transpose(1, 2).flatten(2) @ merge_heads(W_O).T
    return summed + biases[3] if biases else summed


def attend(
    Q: Float[Tensor, "batch head query d_head"],
    K: Float[Tensor, "batch head token d_head"],
    V: Float[Tensor, "batch head token d_head"],
    *,
    fused: bool = True,
) -> Float[Tensor, "batch head query d_head"]:
    r"""$\mathrm{softmax}(Q K^\top / \sqrt{d_\mathrm{head}}) V$, by what is fastest for few tokens.

    On a CPU plain products are fastest, on a GPU torch's fused kernels, which are used where they
    are wanted (`fused`): they have no gradient for models that are trained stacked, and do not give
    the same bits each time.
    """
    if Q.device.type == "cpu" or not fused:
        return torch.softmax(Q @ K.transpose(-1, -2) * K.shape[-1] ** -0.5, -1) @ V
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V)
