"""Summaries of stored singular values: a new summary costs no decomposition.

The zeros that pad a stack of spectra change no summary.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import entr


def summaries(
    singular_values: Sequence[Float[np.ndarray, " _"]], rtol: float
) -> dict[str, np.ndarray]:
    """Every summary of each spectrum, as columns: one value for each spectrum."""
    sigma = np.zeros((len(singular_values), max(map(len, singular_values), default=1)))
    for row, values in zip(sigma, singular_values, strict=True):
        row[: len(values)] = values
    return {
        "norm": np.sqrt(np.square(sigma).sum(-1)),
        "stable_rank": stable_rank(sigma),
        "effective_rank": effective_rank(sigma),
        "numerical_rank": numerical_rank(sigma, rtol),
        **{f"rank_{share:.0%}"[:-1]: energy_rank(sigma, share) for share in (0.90, 0.95, 0.99)},
    }


def stable_rank(sigma: Float[np.ndarray, "*batch case rank"]) -> Float[np.ndarray, "*batch case"]:
    r"""Stable rank $\|W\|_F^2 / \|W\|_2^2$ (Rudelson & Vershynin 2007); zero for $W = 0$.

    It is at least 1 and at most the rank of $W$. Unlike the rank, it moves continuously with $W$,
    so that a run shows *when* a direction starts to grow.
    """
    return np.square(_shares(sigma)).sum(-1)


def effective_rank(
    sigma: Float[np.ndarray, "*batch case rank"],
) -> Float[np.ndarray, "*batch case"]:
    r"""Effective rank $\exp H(\sigma / \sum \sigma)$ (Roy & Vetterli 2007); zero for $W = 0$.

    H is the Shannon entropy.
    """
    total = sigma.sum(-1, keepdims=True)
    p = sigma / np.where(total > 0, total, 1.0)
    return np.where(total[..., 0] > 0, np.exp(entr(p).sum(-1)), 0.0)


def numerical_rank(
    sigma: Float[np.ndarray, "*batch case rank"], rtol: float
) -> Int[np.ndarray, "*batch case"]:
    r"""Numerical rank $\#\{i : \sigma_i > \mathrm{rtol} \cdot \sigma_1\}$."""
    return (sigma > rtol * sigma[..., :1]).sum(-1)


def energy_rank(
    sigma: Float[np.ndarray, "*batch case rank"], share: float
) -> Int[np.ndarray, "*batch case"]:
    r"""The least r with $\sum_{i \le r} \sigma_i^2 \ge \mathrm{share} \cdot \|W\|_F^2$.

    It is zero for $W = 0$. At this rank the best approximation of $W$ leaves a relative error of
    $\sqrt{1 - \mathrm{share}}$.
    """
    energy = np.square(_shares(sigma)).cumsum(-1)
    below = energy < share * energy[..., -1:] * (1 - 1e-12)
    return np.where(energy[..., -1] > 0, below.sum(-1) + 1, 0)


def _shares(sigma: Float[np.ndarray, "*batch case rank"]) -> Float[np.ndarray, "*batch case rank"]:
    """The singular values divided by the largest of them."""
    largest = sigma[..., :1]
    return sigma / np.where(largest > 0, largest, 1.0)
