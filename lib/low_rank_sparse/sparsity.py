"""How magnitudes fall into a small and a large group, and what remains when some units are
removed.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def otsu_threshold(values: Float[Tensor, " n"]) -> float:
    r"""The threshold between two groups that are farthest apart (Otsu 1979), exactly.

    Of the sorted values, the cut after the k smallest maximises $k (n - k) (m_0 - m_1)^2$, m the
    means of the groups; the threshold is the middle between the neighbours of the cut. Raises
    `ValueError` for fewer than two values.
    """
    n = len(values)
    if n < 2:
        raise ValueError(f"wanted two values or more to part, got {n}")
    ordered = values.double().sort().values
    k = torch.arange(1, n, dtype=torch.float64)
    below = ordered.cumsum(0)[:-1]
    between = k * (n - k) * (below / k - (ordered.sum() - below) / (n - k)) ** 2
    cut = int(between.argmax())
    return float((ordered[cut] + ordered[cut + 1]) / 2)


def bimodality_coefficient(values: Float[Tensor, " n"]) -> float:
    """(skewness² + 1) / kurtosis by population moments: 5/9 for the uniform law, 1 for two points
    (Sarle).
    """
    z = values.double() - values.double().mean()
    variance = z.square().mean()
    skewness, kurtosis = (z**3).mean() / variance**1.5, (z**4).mean() / variance**2
    return float((skewness**2 + 1) / kurtosis)


def norm_groups(norms: Float[Tensor, " n"]) -> dict[str, float]:
    """How norms part into small and large ones at Otsu's threshold."""
    threshold = otsu_threshold(norms)
    large = norms > threshold
    return {
        "threshold": threshold,
        "small_share": 1 - large.double().mean().item(),
        "small_norm": norms[~large].mean().item(),
        "large_norm": norms[large].mean().item(),
        "bimodality": bimodality_coefficient(norms),
    }


def sums_of_last(
    parts: Float[Tensor, "sample unit"], units: Int[Tensor, " ordered"]
) -> Float[Tensor, "kept sample"]:
    """Row k: the sum, for every sample, of what the last k of these units add; row 0 is zero."""
    return torch.cat([parts.new_zeros(1, len(parts)), parts[:, units.flip(0)].mT.cumsum(0)])
