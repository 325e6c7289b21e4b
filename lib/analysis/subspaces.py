r"""Where the leading directions of an update lie, and how much of it they hold."""

import torch
from jaxtyping import Float
from torch import Tensor


def leading_energy(sigma: Float[Tensor, "*batch rank"], k: int) -> Float[Tensor, "*batch"]:
    r"""$e_k = \sum_{i \le k} \sigma_i^2 / \sum_i \sigma_i^2$; one for $W = 0$, of which nothing is left out."""
    return 1 - _share(sigma.square(), k)


def nuclear_tail(sigma: Float[Tensor, "*batch rank"], k: int) -> Float[Tensor, "*batch"]:
    r"""$\sum_{i > k} \sigma_i / \sum_i \sigma_i$; zero for $W = 0$.

    It weighs many small singular values far more than `leading_energy` does: e_2 may be 0.98 while this is 0.27.
    """
    return _share(sigma, k)


def _share(values: Tensor, k: int) -> Tensor:
    total = values.sum(-1)
    return torch.where(total > 0, values[..., k:].sum(-1) / torch.where(total > 0, total, 1.0), 0.0)


def leading_directions(
    W: Float[Tensor, "*batch row col"], k: int
) -> tuple[Float[Tensor, "*batch row {k}"], Float[Tensor, "*batch col {k}"]]:
    """The k leading left and right singular vectors, as columns, in float64."""
    U, _, Vh = torch.linalg.svd(W.double(), full_matrices=False)
    return U[..., :k], Vh.mT[..., :k]


def alignment(directions: Float[Tensor, "dim k"], span: Float[Tensor, "n dim"]) -> Float[Tensor, ""]:
    r"""Mean squared cosine of orthonormal directions (columns) with the span of the rows: $\|Q^\top U\|_F^2 / k$.

    One where the directions lie in the span; n / dim on average for random ones (rows independent).
    """
    Q = torch.linalg.qr(span.double().mT).Q
    return (Q.mT @ directions.double()).square().sum() / directions.shape[-1]


def energy_inside(W: Float[Tensor, "dim col"], span: Float[Tensor, "n dim"]) -> Float[Tensor, ""]:
    r"""The share of $\|W\|_F^2$ whose columns lie in the span of the rows; one for $W = 0$."""
    W = W.double()
    Q = torch.linalg.qr(span.double().mT).Q
    total = W.square().sum()
    return torch.where(total > 0, (Q.mT @ W).square().sum() / torch.where(total > 0, total, 1.0), 1.0)
