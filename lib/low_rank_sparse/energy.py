r"""The shares of singular values; arrays serve as well as tensors: stored values need no torch."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from lib.files.tables import pick


def leading_energy(sigma: Float[Any, "*batch rank"], k: int) -> Float[Any, "*batch"]:
    r"""$e_k = \sum_{i \le k} \sigma_i^2 / \sum_i \sigma_i^2$, which is one for $W = 0$."""
    return 1 - nuclear_tail(sigma**2, k)


def nuclear_tail(sigma: Float[Any, "*batch rank"], k: int) -> Float[Any, "*batch"]:
    r"""$\sum_{i > k} \sigma_i / \sum_i \sigma_i$, which is zero for $W = 0$.

    It weighs many small singular values far more than `leading_energy` does: e_2 may be 0.98 while
    this is 0.27.
    """
    total = sigma.sum(-1)
    return sigma[..., k:].sum(-1) / (total + (total == 0))


def padded(sigma: Float[np.ndarray, "*batch rank"], n: int) -> Float[np.ndarray, "*batch padded"]:
    """Singular values with zeros up to n of them, where a matrix has fewer."""
    missing = max(0, n - sigma.shape[-1])
    return np.pad(sigma, [(0, 0)] * (sigma.ndim - 1) + [(0, missing)])


def gap(sigma: Float[np.ndarray, "*batch rank"], k: int) -> Float[np.ndarray, "*batch"]:
    r"""$\sigma_{k+1} / \sigma_k$, near zero where the rank is about k; NaN for $\sigma_k = 0$."""
    sigma = padded(sigma, k + 1)
    at = sigma[..., k - 1]
    return np.where(at > 0, sigma[..., k] / np.where(at > 0, at, 1.0), np.nan)


def around(sigma: Float[np.ndarray, " rank"], k: int) -> dict[str, float]:
    r"""What is behind the k-th singular value, and behind the second.

    The row has the energies $e_k$ and $e_2$, the gaps (NaN for $W = 0$), and $\sigma_{k+1}$.
    """
    sigma = padded(sigma, k + 1)
    return {
        "energy": float(leading_energy(sigma, k)),
        "energy_2": float(leading_energy(sigma, 2)),
        "gap": float(gap(sigma, k)),
        "gap_2": float(gap(sigma, 2)),
        "next": float(sigma[k]),
    }


def around_each(sigmas: Mapping[str, Float[np.ndarray, " _"]], k: int) -> dict[str, Any]:
    """`around` of several matrices, as `W_K_gap`; with their `W_K_singular_values`."""
    found: dict[str, Any] = {}
    for name, sigma in sigmas.items():
        found |= {f"{name}_{key}": value for key, value in around(sigma, k).items()}
        found[f"{name}_singular_values"] = sigma
    return found


def of_matrices(spectra: pd.DataFrame, summary: Callable[[np.ndarray, int], Any]) -> pd.DataFrame:
    """A summary of what is behind the second singular value of each matrix: a row per seed.

    `spectra` has one row per seed and matrix, with its `singular_values`; each column
    is named by the letter of a matrix.
    """
    columns = {}
    for letter in ("Q", "K", "V", "O"):
        sigma = pick(spectra, matrix=f"W_{letter}")["singular_values"]
        columns[letter] = pd.Series(summary(np.stack(list(sigma)), 2), sigma.index)
    return pd.DataFrame(columns)
