"""The ranks of a plan as a grid: a row for each kind of module, and a column for each layer."""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float


@dataclass(frozen=True)
class RankGrid:
    """The ranks that a rule gives at a budget, NaN where a layer has no module of a kind; 0 is the
    layer of a module that is in none.
    """

    rule: str
    budget: int
    kinds: list[str]
    layers: list[int]
    ranks: Float[np.ndarray, "kind layer"]

    @property
    def shares(self) -> Float[np.ndarray, "kind layer"]:
        """The ranks as shares of the largest."""
        return self.ranks / max(float(np.nanmax(self.ranks)), 1.0)


def middle_budget(plans: pd.DataFrame) -> int:
    """The budget in the middle of those of some plans."""
    budgets = sorted(set(plans["budget"]))
    return int(budgets[len(budgets) // 2])


def rank_grid(plans: pd.DataFrame, modules: pd.DataFrame, budget: int) -> RankGrid:
    """The grid of one run's plan at a budget: the attributed one, or the uniform one where nothing
    was attributed.
    """
    rule = "attributed" if (plans["rule"] == "attributed").any() else "uniform"
    chosen = plans[(plans["rule"] == rule) & (plans["shuffle"] == 0) & (plans["budget"] == budget)]
    [ranks] = chosen["ranks"]
    places = [_place(name) for name in modules["module"]]
    kinds = list(dict.fromkeys(kind for kind, _ in places))
    layers = sorted({layer for _, layer in places})
    grid = np.full((len(kinds), len(layers)), np.nan)
    for (kind, layer), rank in zip(places, ranks, strict=True):
        grid[kinds.index(kind), layers.index(layer)] = rank
    return RankGrid(rule, budget, kinds, layers, grid)


def _place(module: str) -> tuple[str, int]:
    """What a module is within its layer, and the layer from 1."""
    found = re.search(r"^(?:.*?\.)?(\d+)\.(.+)$", module)
    return (found[2], int(found[1]) + 1) if found else (module, 0)
