r"""Attention with normalised queries and keys (QK-norm; Henry et al. 2020, Dehghani et al. 2023).

In the papers' rows, with $q = x_q W_Q$ and $k = x W_K$, a head's scores are
$\gamma \langle q, k\rangle / (\|q\| \|k\|)$. They do not depend on the norms of $W_Q$ and $W_K$.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from lib.training.attention import attend, merge_heads, project


def normalized_attention(
    X_query: Float[Tensor, "batch query d_model"],
    X: Float[Tensor, "batch token d_model"],
    W_Q: Float[Tensor, "head d_model d_head"],
    W_K: Float[Tensor, "head d_model d_head"],
    W_V: Float[Tensor, "head d_model d_head"],
    W_O: Float[Tensor, "head d_model d_head"],
    gain: Float[Tensor, " head"],
    biases: Sequence[Tensor] = (),
    *,
    fused: bool = True,
) -> Float[Tensor, "batch query d_model"]:
    r"""Multi-head attention whose queries and keys are normalised, each head with its gain.

    It is the sum over heads of $\mathrm{softmax}(\gamma \hat Q \hat K^\top) X W_V W_O^\top$, with
    the rows of $\hat Q$ and $\hat K$ of length one; a row that is zero stays zero. `biases` are
    those of `attention`, and are added before the rows are normalised.
    """
    projected = [project(X_query, W_Q), project(X, W_K), project(X, W_V)]
    if biases:
        of_heads = zip(projected, biases[:3], strict=True)
        projected = [Y + b[:, None] for Y, b in of_heads]
    Q, K, V = projected
    # `attend` divides scores by the root of d_head.
    scale = gain[:, None, None] * Q.shape[-1] ** 0.5
    Z = attend(scale * normalize(Q, dim=-1), normalize(K, dim=-1), V, fused=fused)
    summed = Z.transpose(1, 2).flatten(2) @ merge_heads(W_O).T
    return summed + biases[3] if biases else summed
