r"""Which rank each module's update is given, when all together may spend a number of parameters.

A module of shape m × n costs $c = m + n$ parameters per rank. Every rule gives each next direction
of each module a value, and buys in the order of falling value what still fits (`fill`):

- `attributed`: $v_{ij} = |g_i|\, \sigma_{ij}^2 / \|\Delta W_i\|_F^2 / c_i$, where $g_i$ is the loss
  that module i
  earned (`lib/checkpoints/attribution.py`): ours. A $g_i$ below zero does not say that the update
  may go: it is bought by its size, and at a full budget every update is whole;
- `water-filling`: $v_{ij} = \sigma_{ij}^2 / c_i$, one threshold for all modules;
- `energy`: minus the share of $\|\Delta W_i\|_F^2$ that the directions before hold: every module
  keeps an equal share
  (peft's `convert_to_lora`);
- `uniform`: the number of directions before: one rank for all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float

Rule = Literal["uniform", "energy", "water-filling", "attributed"]
Ranks = dict[str, int]


@dataclass(frozen=True)
class Module:
    """What a rule knows of a module: shape, leading singular values, squared norm, the largest rank
    it may have.
    """

    shape: tuple[int, int]
    sigma: Float[np.ndarray, " rank"]
    squared_norm: float
    limit: int

    @property
    def cost(self) -> int:
        """Parameters per rank."""
        return sum(self.shape)


def budget_of(modules: Mapping[str, Module], rank: float) -> int:
    """The parameters of one uniform rank, which may lie between whole ranks."""
    return round(rank * sum(module.cost for module in modules.values()))


def parameters(modules: Mapping[str, Module], ranks: Mapping[str, int]) -> int:
    """What ranks cost."""
    return sum(modules[name].cost * rank for name, rank in ranks.items())


def plan(
    rule: Rule,
    modules: Mapping[str, Module],
    budget: int,
    earned: Mapping[str, float] | None = None,
) -> Ranks:
    """The ranks that a rule gives for a budget; `earned` is the attributed loss of each module, for
    that rule.
    """
    if rule == "attributed" and earned is None:
        raise ValueError("earned: wanted the attributed loss of each module, got none")
    weight = {name: abs(earned[name]) if earned else 1.0 for name in modules}
    value: dict[Rule, Callable[[str, Module], np.ndarray]] = {
        "uniform": lambda _, module: -np.arange(len(module.sigma), dtype=float),
        "energy": lambda _, module: -_before(module),
        "water-filling": lambda _, module: module.sigma**2 / module.cost,
        "attributed": lambda name, module: weight[name] * _shares(module) / module.cost,
    }
    values = {name: value[rule](name, module) for name, module in modules.items()}
    return fill(values, modules, budget)


def fill(
    values: Mapping[str, Float[np.ndarray, " rank"]], modules: Mapping[str, Module], budget: int
) -> Ranks:
    """Ranks bought in the order of falling value; what does not fit any more is skipped.

    Equal values are bought in the order of the names, and in a module its directions come in their
    order.
    """
    names = list(modules)
    offered = [
        (-values[name][j], i, j)
        for i, name in enumerate(names)
        for j in range(min(len(values[name]), modules[name].limit))
    ]
    ranks, left = dict.fromkeys(names, 0), budget
    for _, i, j in sorted(offered, key=lambda one: (one[0], one[2], one[1])):
        name = names[i]
        if ranks[name] == j and modules[name].cost <= left:
            ranks[name] += 1
            left -= modules[name].cost
    return ranks


def shuffled(
    ranks: Mapping[str, int], modules: Mapping[str, Module], generator: torch.Generator
) -> Ranks:
    """The null of a plan: its ranks given at random to modules of the same shape, so that it costs
    the same.

    A rank beyond its new module's limit stays at that limit; what is then left is not spent.
    """
    by_shape: dict[tuple[int, int], list[str]] = {}
    for name in ranks:
        by_shape.setdefault(modules[name].shape, []).append(name)
    given = {}
    for names in by_shape.values():
        order = torch.randperm(len(names), generator=generator).tolist()
        for name, other in zip(names, order, strict=True):
            given[name] = min(ranks[names[other]], modules[name].limit)
    return {name: given[name] for name in ranks}


def candidates(
    modules: Mapping[str, Module],
    budget: int,
    earned: Mapping[str, float] | None,
    n_shuffles: int,
    source: Callable[[int, int], torch.Generator],
) -> Iterator[tuple[Rule, int, Ranks]]:
    """The plans of a budget, a uniform rank: rule, the number of the shuffle (0 for the plan
    itself), ranks.

    The attributed plan, and its shuffles, are there where it is known what was earned. `source` has
    a generator for the budget and the number of a shuffle.
    """
    for rule in get_args(Rule):
        if rule == "attributed" and earned is None:
            continue
        ranks = plan(rule, modules, budget_of(modules, budget), earned)
        yield rule, 0, ranks
        for shuffle in range(1, n_shuffles + 1 if rule == "attributed" else 1):
            yield rule, shuffle, shuffled(ranks, modules, source(budget, shuffle))


def least_budget(
    lost: Callable[[int], float], most: int, max_share: float, n_steps: int
) -> tuple[int | None, Sequence[tuple[int, float]]]:
    """The least budget, by bisection, that loses at most a share of the gain, and what was tried;
    None where none does.

    It takes the loss for falling in the budget: where it is not, some budget that keeps the share
    is found, not the least.
    """
    tried = [(most, lost(most))]
    if tried[0][1] > max_share:
        return None, tried
    low, high = 0, most
    for _ in range(n_steps):
        middle = (low + high) // 2
        if middle in (low, high):
            break
        tried.append((middle, lost(middle)))
        low, high = (low, middle) if tried[-1][1] <= max_share else (middle, high)
    return high, tried


def least_attributed(
    lost: Callable[[Ranks], float],
    modules: Mapping[str, Module],
    earned: Mapping[str, float],
    max_share: float,
    n: int,
) -> list[tuple[int, float, bool]]:
    """`least_budget` of the attributed plan, in at most n steps down from all limits: each budget
    that was tried, the share `lost` with its ranks, and whether it is the least.
    """

    def of_budget(budget: int) -> float:
        return lost(plan("attributed", modules, budget, earned))

    most = sum(module.cost * module.limit for module in modules.values())
    least, tried = least_budget(of_budget, most, max_share, n)
    return [(budget, share, budget == least) for budget, share in tried]


def _shares(module: Module) -> Float[np.ndarray, " rank"]:
    return module.sigma**2 / (module.squared_norm if module.squared_norm > 0 else 1.0)


def _before(module: Module) -> Float[np.ndarray, " rank"]:
    """The share of the squared norm before each direction."""
    return np.concatenate([[0.0], _shares(module).cumsum()[:-1]])
