r"""How well the difference of the two factors of a product is kept, which flows of some optimisers
conserve.

Of $P Q^\top$ gradient flow keeps $P^\top P - Q^\top Q$, and Muon flow of aligned weights
$\sqrt{P^\top P} - \sqrt{Q^\top Q}$. Of diagonal weights p = u ⊙ v gradient flow keeps u² - v², and
sign flow |u| - |v|.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Factors = Float[Tensor, "side product *batch row col"]


def square(W: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch col col"]:
    r"""$W^\top W$."""
    return W.mT @ W


def root(W: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch col col"]:
    r"""$\sqrt{W^\top W} = V \Sigma V^\top$ of $W = U \Sigma V^\top$."""
    _, sigma, Vh = torch.linalg.svd(W, full_matrices=False)
    return Vh.mT @ (sigma[..., None] * Vh)


def changes(
    before: Factors, after: Factors, products: Sequence[str]
) -> dict[str, Float[Tensor, "*batch"]]:
    """The change of the difference of P and Q over that of their sum, in Frobenius norms: of
    squares and of roots.
    """
    found = {}
    for kind, of in (("square", square), ("root", root)):
        P, Q = of(after) - of(before)
        off = torch.linalg.matrix_norm(P - Q)
        on = torch.linalg.matrix_norm(P + Q)
        found |= {
            f"{kind}_change_{name}": share for name, share in zip(products, off / on, strict=True)
        }
    return found


def diagonal_shares(
    before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]
) -> dict[str, Float[np.ndarray, "*batch"]]:
    """What ||u| - |v|| and |u² - v²| are, in multiples of what they were: medians over the
    pairs.
    """
    (l_0, s_0), (l_1, s_1) = (
        ((u.abs() - v.abs()).abs(), u.abs() + v.abs()) for u, v in (before, after)
    )  # u² - v² = (|u| - |v|) (|u| + |v|), without rounding of small numbers
    lengths = l_1 / l_0
    found = {"lengths_kept": lengths, "squares_kept": lengths * (s_1 / s_0)}
    return {name: share.median(-1).values.numpy() for name, share in found.items()}
