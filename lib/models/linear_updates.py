"""A live model whose linear modules stand anywhere between a base and what it was tuned to."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

Weight = Float[Tensor, "_ _"]


class Factors(NamedTuple):
    """An update as a product of two thin matrices, best first: U diag(sigma) Vh."""

    U: Float[Tensor, "row rank"]
    sigma: Float[Tensor, " rank"]
    Vh: Float[Tensor, "rank col"]

    def cut(self, rank: int) -> Weight:
        """The sum of the first `rank` terms."""
        return (self.U[:, :rank] * self.sigma[:rank]) @ self.Vh[:rank]


class LinearUpdates:
    """Weights of linear modules by name, moved in place between their base and what they were tuned to."""

    def __init__(self, parameters: Mapping[str, Weight], base: Mapping[str, Weight], factors: Mapping[str, Factors]):
        self.parameters = dict(parameters)
        self.base = dict(base)
        self.tuned = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        self.factors = dict(factors)

    @property
    def updates(self) -> dict[str, Weight]:
        """What training added to each."""
        return {name: tuned - self.base[name] for name, tuned in self.tuned.items()}

    def set(self, weights: Mapping[str, Weight]) -> None:
        """Have the model compute with these weights."""
        with torch.no_grad():
            for name, weight in weights.items():
                self.parameters[name].copy_(weight)

    def set_ranks(self, ranks: Mapping[str, int]) -> None:
        """Have the model compute with every update cut to its rank; a module that is not named keeps its base."""
        self.set(
            {
                name: base + self.factors[name].cut(ranks[name]).to(base) if ranks.get(name) else base
                for name, base in self.base.items()
            }
        )
