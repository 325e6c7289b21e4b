"""Small and large neurons, and the ways to remove neurons and columns."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.matrices.pruning import Order, n_pruned, removal_order


class Removal(NamedTuple):
    """What goes and in which order: the units (what never goes is last), and how many may go."""

    what: str
    order: Order
    units: Int[Tensor, " ordered"]
    most: int


def otsu_threshold(values: Float[Tensor, " n"]) -> float:
    r"""The threshold between two groups that are farthest apart (Otsu 1979), exactly.

    Among the sorted values, the cut after the k smallest maximises $k (n - k) (m_0 - m_1)^2$, m the
    means of the groups; the threshold is the middle between the neighbours of the cut.
    """
    n = len(values)
    ordered = values.double().sort().values
    k = torch.arange(1, n, dtype=torch.float64)
    below = ordered.cumsum(0)[:-1]
    between = k * (n - k) * (below / k - (ordered.sum() - below) / (n - k)) ** 2
    cut = int(between.argmax())
    return float((ordered[cut] + ordered[cut + 1]) / 2)


def bimodality_coefficient(values: Float[Tensor, " n"]) -> float:
    """Sarle's (skewness² + 1) / kurtosis, by population moments: uniform 5/9, two points 1."""
    z = values.double() - values.double().mean()
    variance = z.square().mean()
    skewness = (z**3).mean() / variance**1.5
    kurtosis = (z**4).mean() / variance**2
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


def removals(
    norms: Float[Tensor, " unit"],
    is_large: Bool[Tensor, " unit"],
    source: Callable[[str], torch.Generator],
) -> Iterator[Removal]:
    """Yield every way in which neurons go.

    All neurons go in each order. The large ones go at random when the small ones are gone, and the
    small ones at random. Last, as many of all go as are small, in each order. `source` has a
    generator for each kind of random order.
    """

    def shuffled(chosen: Tensor, name: str) -> Tensor:
        units = chosen.nonzero()[:, 0]
        return units[torch.randperm(len(units), generator=source(name))]

    large = shuffled(is_large, "large neurons")
    small = shuffled(~is_large, "small neurons")
    orders = {
        order: removal_order(norms[None], order, source("neurons"))[0] for order in get_args(Order)
    }
    for order, units in orders.items():
        yield Removal("neurons", order, units, len(units))
    yield Removal("large neurons", "random", large, len(large))
    yield Removal("small neurons", "random", torch.cat([small, large]), len(small))
    for order, units in orders.items():
        yield Removal("as many as small", order, units, len(small))


def without_columns(W: Float[Tensor, "row col"], rate: float) -> Float[Tensor, "row col"]:
    """W with a share of its columns set to zero, the columns of smallest norm first."""
    [columns] = removal_order(torch.linalg.vector_norm(W, dim=0)[None].cpu(), "smallest")
    left = W.clone()
    left[:, columns[: n_pruned(len(columns), rate)]] = 0
    return left
