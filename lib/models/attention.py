"""Attention heads in the papers' row convention: tokens are rows, and a projection acts as x W.

Per head, W_Q, W_K, W_V and W_O are d_model × d_head. A head reads and writes only through the two products
W_KQ = W_K W_Qᵀ and W_VO = W_V W_Oᵀ, both d_model × d_model and of rank at most d_head.
"""

import torch
from jaxtyping import Float
from torch import Tensor

PRODUCTS = {"W_KQ": ["W_K", "W_Q"], "W_VO": ["W_V", "W_O"]}


def merge_heads(W: Float[Tensor, "head d_model d_head"]) -> Float[Tensor, "d_model head*d_head"]:
    """All heads' projections side by side, as one matrix."""
    return W.transpose(0, 1).flatten(1)


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
) -> Float[Tensor, "batch query d_model"]:
    r"""Multi-head attention without biases (Vaswani et al. 2017).

    The sum over heads of $\mathrm{softmax}(X_q W_Q W_K^\top X^\top / \sqrt{d_\mathrm{head}}) \, X W_V W_O^\top$.
    """
    Q, K, V = project(X_query, W_Q), project(X, W_K), project(X, W_V)
    if X.device.type == "cpu":  # on short sequences faster than the fused kernel
        logits = Q @ K.transpose(-1, -2) * K.shape[-1] ** -0.5
        Z = torch.softmax(logits, -1) @ V
    else:
        Z = torch.nn.functional.scaled_dot_product_attention(Q, K, V)
    return Z.transpose(1, 2).flatten(2) @ merge_heads(W_O).T
