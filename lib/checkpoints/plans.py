r"""Which rank each module's update is given, when all together may spend a number of parameters.

A module of shape m × n costs $c = m + n$ parameters per rank. Every rule gives each next direction
of each module a value, and buys in the order of falling value what still fits (`fill`).
Directions that rounding can have made come after all others, so that a full budget has the whole
update:

- `attributed`: $v_{ij} = |g_i|\, \sigma_{ij}^2 / \|\Delta W_i\|_F^2 / c_i$, where $g_i$ is the loss
  that module i
  earned (`lib/checkpoints/attribution.py`): ours. A $g_i$ below zero does not say that the update
  may go: it is bought by its size, and at a full budget every update is whole;
- `gains-first`: as attributed, but what earned no gain ($g_i \le 0$) comes after all that did;
- `water-filling`: $v_{ij} = \sigma_{ij}^2 / c_i$, one threshold for all modules;
- `energy`: minus the share of $\|\Delta W_i\|_F^2$ that the directions before hold: every module
  keeps an equal share
  (peft's `convert_to_lora`);
- `uniform`: the number of directions before: one rank for all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float

Rule = Literal["uniform", "energy", "water-filling", "attributed", "gains-first"]
BY_ATTRIBUTION = ("attributed", "gains-first")  # rules that want the attributed losses
NEGLIGIBLE = 1e-8  # of the squared norm of an update: what no loss shows
WITHIN = 0.1  # of itself: how near below the least budget one was tried that does not do
Ranks = dict[str, int]


@dataclass(frozen=True)
class Module:
    """What a rule knows of a module: shape, leading singular values, squared norm, the largest rank
    it may have, and how many directions are above the edge of rounding (all, where not said).
    """

    shape: tuple[int, int]
    sigma: Float[np.ndarray, " rank"]
    squared_norm: float
    limit: int
    above_edge: int | None = None

    @property
    def cost(self) -> int:
        """Parameters per rank."""
        return sum(self.shape)


def largest_rank(sigma: Float[np.ndarray, " rank"], squared_norm: float) -> int:
    """The least rank that leaves a negligible share of the squared norm; at most what is known."""
    before = np.concatenate([[0.0], (sigma**2).cumsum()[:-1]]) if len(sigma) else sigma
    return int((squared_norm - before > NEGLIGIBLE * squared_norm).sum())


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
    """The ranks that a rule gives for a budget.

    `earned` is the attributed loss of each module, for the rules by attribution.
    """
    gains = earned or {}
    value: dict[Rule, Callable[[str, Module], np.ndarray]] = {
        "uniform": lambda _, module: -np.arange(len(module.sigma), dtype=float),
        "energy": lambda _, module: -_before(module),
        "water-filling": lambda _, module: module.sigma**2 / module.cost,
        "attributed": lambda name, module: _attributed(module, gains[name]),
        "gains-first": lambda name, module: _gain_first(module, gains[name]),
    }
    values = {name: value[rule](name, module) for name, module in modules.items()}
    return fill(values, modules, budget)


def fill(
    values: Mapping[str, Float[np.ndarray, " rank"]], modules: Mapping[str, Module], budget: int
) -> Ranks:
    """Ranks bought in the order of falling value; what does not fit any more is skipped.

    Equal values are bought in the order of the names, and in a module its directions come in their
    order. Those that are not above the edge of rounding come last.
    """
    names = list(modules)
    edges = [one.limit if one.above_edge is None else one.above_edge for one in modules.values()]
    most = [min(one.limit, budget // max(one.cost, 1)) for one in modules.values()]
    offered = [
        (j >= edges[i], -value, j, i)
        for i, name in enumerate(names)
        for j, value in enumerate(values[name][: most[i]].tolist())
    ]
    ranks, left = dict.fromkeys(names, 0), budget
    for *_, j, i in sorted(offered):
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

    Plans by attribution, and the shuffles of the attributed one, are there where it is known what
    was earned. `source` has a generator for the budget and the number of a shuffle.
    """
    for rule in rules(earned):
        ranks = plan(rule, modules, budget_of(modules, budget), earned)
        yield rule, 0, ranks
        for shuffle in range(1, n_shuffles + 1 if rule == "attributed" else 1):
            yield rule, shuffle, shuffled(ranks, modules, source(budget, shuffle))


def rules(earned: Mapping[str, float] | None) -> list[Rule]:
    """All rules, or those that can do without attribution where it is not known what was earned."""
    return [rule for rule in get_args(Rule) if earned is not None or rule not in BY_ATTRIBUTION]


def least_budget(
    lost: Callable[[int], float], most: int, max_share: float, known: Mapping[int, float]
) -> tuple[int | None, dict[int, float]]:
    """The least budget that loses at most a share of the gain, and all whose loss is known.

    It is searched to a tenth of itself: by doubling what is known to lose more, then by bisection
    of the ratio. None where even the most loses more. It takes the loss for falling in the budget:
    where it is not, some budget that keeps the share is found, not the least.
    """
    tried = dict(known)

    def keeps(budget: int) -> bool:
        if budget not in tried:
            tried[budget] = lost(budget)
        return tried[budget] <= max_share

    high = min(filter(keeps, known), default=None)
    low = max((budget for budget in known if high is None or budget < high), default=0)
    if high is None:
        while 0 < 2 * low < most and not keeps(2 * low):
            low = 2 * low
        high = min(2 * low, most) if low else most
    if not keeps(high):
        return None, tried
    while high - low > WITHIN * high:
        middle = isqrt(low * high) if low else high // 2
        if middle in (low, high):
            break
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high, tried


def least_of_rule(
    rule: Rule,
    lost: Callable[[Ranks], float],
    modules: Mapping[str, Module],
    earned: Mapping[str, float],
    max_share: float,
    known: Mapping[int, float],
) -> list[tuple[str, int, float, bool]]:
    """`least_budget` of a rule, up to the ranks of all limits.

    `known` are the shares that it loses at budgets given as uniform ranks. Gives of each budget
    that was tried the rule, the parameters of its plan, the share `lost` with its ranks, and
    whether it is the least.
    """

    def ranks(budget: int) -> Ranks:
        return plan(rule, modules, budget, earned)

    most = sum(module.cost * module.limit for module in modules.values())
    shares = {budget_of(modules, rank): share for rank, share in known.items()}
    least, tried = least_budget(lambda budget: lost(ranks(budget)), most, max_share, shares)
    return [
        (rule, parameters(modules, ranks(budget)), share, budget == least)
        for budget, share in sorted(tried.items())
    ]


def _attributed(module: Module, gain: float) -> Float[np.ndarray, " rank"]:
    """What each direction earned, by its share of the squared norm, for each of its parameters."""
    return abs(gain) * _shares(module) / module.cost


def _gain_first(module: Module, gain: float) -> Float[np.ndarray, " rank"]:
    """As `_attributed`; without a gain, in the same order but below zero."""
    values = _attributed(module, gain)
    if gain > 0:
        return values
    with np.errstate(divide="ignore"):
        return -1 / values


def _shares(module: Module) -> Float[np.ndarray, " rank"]:
    return module.sigma**2 / (module.squared_norm if module.squared_norm > 0 else 1.0)


def _before(module: Module) -> Float[np.ndarray, " rank"]:
    """The share of the squared norm before each direction."""
    return np.concatenate([[0.0], _shares(module).cumsum()[:-1]])
