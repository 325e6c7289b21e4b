r"""Shares of the singular values, of arrays or tensors alike: stored values are summed up without torch."""

from typing import Any

from jaxtyping import Float


def leading_energy(sigma: Float[Any, "*batch rank"], k: int) -> Float[Any, "*batch"]:
    r"""$e_k = \sum_{i \le k} \sigma_i^2 / \sum_i \sigma_i^2$; one for $W = 0$, of which nothing is left out."""
    return 1 - nuclear_tail(sigma**2, k)


def nuclear_tail(sigma: Float[Any, "*batch rank"], k: int) -> Float[Any, "*batch"]:
    r"""$\sum_{i > k} \sigma_i / \sum_i \sigma_i$; zero for $W = 0$.

    It weighs many small singular values far more than `leading_energy` does: e_2 may be 0.98 while this is 0.27.
    """
    total = sigma.sum(-1)
    return sigma[..., k:].sum(-1) / (total + (total == 0))
