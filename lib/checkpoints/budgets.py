"""Plans at equal budgets, with the loss of each, and the least budget that keeps a share."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from lib.checkpoints.gains import GainMeasure, mean_and_noise
from lib.checkpoints.plans import Module, Ranks, candidates, least_of_rule, parameters, rules
from lib.checkpoints.texts import batch_losses, mean_of, shares
from lib.training.devices import generator
from lib.work.cells import Keep

SEED = 0  # of shuffles
CERTAIN = 1.0  # times the noise: so far from the share that is looked for half of the batches do
Tried = tuple[str, int, float, bool]  # rule, parameters, share that is lost, whether the least
Known = dict[tuple[int, ...], list[float]]  # losses of the measured batches, by ranks


def plan_table(
    n_shuffles: int,
    budgets: Sequence[int],
    modules: Mapping[str, Module],
    earned: Mapping[str, float] | None,
) -> pd.DataFrame:
    """The plan of every rule and, of the attributed one, its nulls, at every budget."""
    source = partial(generator, SEED, "shuffle")
    rows = []
    for budget in budgets:
        for one in candidates(modules, budget, earned, n_shuffles, source):
            rule, shuffle, ranks = one
            row = {"budget": budget, "rule": rule, "shuffle": shuffle}
            row |= {"parameters": parameters(modules, ranks)}
            rows.append(row | {"ranks": [ranks[name] for name in modules]})
    return pd.DataFrame(rows)


def with_losses(
    plans: pd.DataFrame, modules: Collection[str], measure: GainMeasure, keep: Keep
) -> tuple[pd.DataFrame, Known]:
    """The plans, each with its loss and the share of the gain that is lost; and the losses of the
    batches.
    """
    known: Known = {}
    for ranks in plans["ranks"]:
        of_module = dict(zip(modules, ranks, strict=True))
        known[tuple(ranks)] = kept_losses(of_module, measure, keep)
    each = [known[tuple(ranks)] for ranks in plans["ranks"]]
    plans = plans.assign(loss=[mean_of(losses, measure.batches) for losses in each])
    noise = [measure.share_noise(losses) for losses in each]
    return plans.assign(share_lost=measure.share_lost(plans["loss"]), share_noise=noise), known


def kept_losses(ranks: Ranks, measure: GainMeasure, keep: Keep) -> list[float]:
    """The losses of the batches with every update cut to its rank; none is measured twice."""
    return keep(f"{ranks}", partial(measure.of, ranks))


def least_budgets(
    measure: GainMeasure,
    modules: Mapping[str, Module],
    earned: Mapping[str, float],
    plans: pd.DataFrame,
    known: Known,
    share: float,
    keep: Keep,
    *,
    thorough: bool,
) -> list[Tried]:
    """The budgets that the search of every rule tries, up to the least that loses at most a share.

    `known` are the losses of the batches with the `plans`.
    """

    def share_lost(ranks: Ranks) -> float:
        losses = kept_losses(ranks, measure, keep)
        return measure.share_lost(mean_of(losses, measure.batches))

    tried = []
    for rule in rules(earned):
        rows = plans[(plans["rule"] == rule) & (plans["shuffle"] == 0)]
        of_rule = dict(zip(rows["budget"], rows["share_lost"], strict=True))
        given = {"modules": modules, "earned": earned, "max_share": share, "known": of_rule}
        search = partial(least_of_rule, rule, **given)
        if thorough or not Halves.possible(len(measure.batches)):
            tried += search(share_lost)
        else:
            own = map(tuple, rows["ranks"])
            halves = Halves(measure, modules, known, own, share, keep)
            tried += halves.searched(search)
    return tried


class Halves:
    """The share of the gain that the plans of a rule lose, for the search of its least budget.

    `known` are the losses of the measured batches with some plans, by ranks; those of this rule are
    `own`. Of another plan the first half of the batches does where it is certain, beside the own
    plan of the nearest size, on which side of the share that is looked for all of them are. The
    others follow where it is not, and for the budget that is found.
    """

    def __init__(
        self,
        measure: GainMeasure,
        modules: Mapping[str, Module],
        known: Mapping[tuple[int, ...], Sequence[float]],
        own: Iterable[tuple[int, ...]],
        share: float,
        keep: Keep,
    ):
        self.measure = measure
        self.modules = modules
        self.known = dict(known)
        self.own = {self._size(ranks): known[ranks] for ranks in own}
        self.share = share
        self.keep = keep
        self.found: dict[str, list[float]] = {}
        self.n = len(measure.batches) // 2

    @staticmethod
    def possible(n_batches: int) -> bool:
        """Whether half of this number of batches is enough to have a noise."""
        return n_batches // 2 > 1

    def searched(self, search: Callable[..., list[Tried]]) -> list[Tried]:
        """The budgets that a search tries; all batches measure the least one.

        Where that one loses more by all of them, the search is made again, with what is known now.
        """
        while True:
            tried: dict[int, Ranks] = {}

            def lost(ranks: Ranks, tried: dict[int, Ranks] = tried) -> float:
                tried[parameters(self.modules, ranks)] = ranks
                return self.of(ranks)

            found = search(lost)
            by_half = [cost for _, cost, _, least in found if least and cost not in self.own]
            whole = {cost: self.of_all(tried[cost]) for cost in by_half}
            if all(share <= self.share for share in whole.values()):
                return [
                    (rule, cost, whole.get(cost, share) if least else share, least)
                    for rule, cost, share, least in found
                ]

    def of(self, ranks: Ranks) -> float:
        r"""The share by half of the batches, or by all where these leave it open.

        The loss of all N batches is that of the nearest plan and the mean difference over the
        first n; its noise is $\sqrt{1 - n / N}$ times two standard errors of the differences.
        """
        measure = self.measure
        size = parameters(self.modules, ranks)
        if size in self.own:
            return self.of_all(ranks)
        near = min(self.own, key=lambda one: abs(one - size))
        first = slice(self.n)
        weights = np.array(shares(measure.batches[first])) / self.n
        apart = np.subtract(self._losses(ranks, first), self.own[near][first])
        mean, noise = mean_and_noise(weights, apart)
        share = measure.share_lost(mean_of(self.own[near], measure.batches) + mean)
        noise *= (1 - self.n / len(measure.batches)) ** 0.5 / measure.gain
        return share if abs(share - self.share) > CERTAIN * noise else self.of_all(ranks)

    def of_all(self, ranks: Ranks) -> float:
        """The share by all batches; none is measured twice."""
        halves = (slice(self.n), slice(self.n, None))
        losses = [one for half in halves for one in self._losses(ranks, half)]
        self.own[parameters(self.modules, ranks)] = losses
        return self.measure.share_lost(mean_of(losses, self.measure.batches))

    def _losses(self, ranks: Ranks, half: slice) -> Sequence[float]:
        place = tuple(ranks[name] for name in self.modules)
        if place in self.known:
            return self.known[place][half]

        def lost() -> list[float]:
            linear = self.measure.linear
            linear.set_ranks(ranks, self.measure.factors)
            return batch_losses(linear.model, self.measure.batches[half])

        name = f"batches {half.start or 0} to {half.stop} of {ranks}"
        if name not in self.found:
            self.found[name] = self.keep(name, lost)
        return self.found[name]

    def _size(self, ranks: tuple[int, ...]) -> int:
        return parameters(self.modules, dict(zip(self.modules, ranks, strict=True)))
