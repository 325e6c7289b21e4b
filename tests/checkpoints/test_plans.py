from typing import get_args

import numpy as np
import pytest
import torch

from lib.checkpoints.plans import (
    Module,
    Rule,
    largest_rank,
    least_budget,
    least_of_rule,
    plan,
    shuffled,
)


def module(sigma, shape=(6, 4), limit=None):
    sigma = np.array(sigma, dtype=float)
    return Module(shape, sigma, float((sigma**2).sum()), len(sigma) if limit is None else limit)


THREE = {"a": module([5, 4, 1]), "b": module([3, 2, 0.5], (3, 3)), "c": module([2, 2, 2], (8, 12))}


@pytest.mark.parametrize(
    ("rule", "order"),
    [
        ("uniform", "abcabcabc"),
        (
            "energy",
            "abccacbab",
        ),  # before the second and third direction: a .60, .98; b .68, .98; c .33, .67
        ("water-filling", "aabbcccab"),  # a 2.5, 1.6, .1; b 1.5, .67, .04; c .2 thrice
        ("attributed", "ababacccb"),  # in thousandths: a 119, 76, 4.8; b 113, 50, 3.1; c 3.3 thrice
        ("gains-first", "aaacccbbb"),  # as above; b, whose gain is below zero, after all others
    ],
)
def test_ranks_at_every_budget_by_hand(rule, order):
    for budget in range(110):
        ranks, left, skipped = dict.fromkeys(THREE, 0), budget, set()
        for name in order:
            if THREE[name].cost > left:
                skipped.add(name)
            if name not in skipped:
                ranks[name] += 1
                left -= THREE[name].cost
        assert plan(rule, THREE, budget, {"a": 2.0, "b": -1.0, "c": 0.2}) == ranks, budget


@pytest.mark.parametrize("rule", get_args(Rule))
@pytest.mark.parametrize("seed", range(4))
def test_a_plan_buys_until_no_other_direction_fits(rule, seed):
    random = np.random.default_rng(seed)
    shapes = [tuple(shape) for shape in random.integers(1, 40, (5, 2)).tolist()]
    sigmas = [np.sort(random.integers(0, 9, min(shape)) / 2)[::-1] for shape in shapes]
    modules = {name: module(*of) for name, *of in zip("abcde", sigmas, shapes, strict=True)}
    earned = dict(zip("abcde", random.normal(size=5), strict=True))
    for budget in (0, 30, 200, 10_000):
        ranks = plan(rule, modules, budget, earned)
        left = budget - sum(modules[name].cost * rank for name, rank in ranks.items())
        assert left >= 0
        whole = [ranks[name] == one.limit or one.cost > left for name, one in modules.items()]
        assert all(whole)


def test_directions_below_the_edge_of_rounding_come_after_all_others():
    modules = {
        "a": Module((2, 3), np.array([9.0, 8.0]), 145.0, 2, above_edge=1),
        "b": Module((2, 3), np.array([2.0, 1.0]), 5.0, 2, above_edge=2),
    }
    order = [list(plan("water-filling", modules, 5 * n).values()) for n in range(5)]
    assert order == [[0, 0], [1, 0], [1, 1], [1, 2], [2, 2]]


@pytest.mark.parametrize(
    ("sigma", "rank"),
    [([3.0, 2.0, 1.0], 3), ([3.0, 1.0, 1e-5], 2), ([3.0, 1.0, 1e-3], 3), ([0.0, 0.0], 0), ([], 0)],
)
def test_the_largest_rank_leaves_a_negligible_share(sigma, rank):
    sigma = np.array(sigma)
    assert largest_rank(sigma, float((sigma**2).sum())) == rank
    if rank:
        assert largest_rank(sigma, float((sigma**2).sum()) + 1) == len(sigma), "not all are known"


LIMITED = {"a": module([5, 4, 1], limit=2), "b": module([3, 3, 3], limit=0), "c": module([2, 2])}


@pytest.mark.parametrize("rule", get_args(Rule))
def test_at_a_full_budget_every_update_is_whole_and_none_beyond_its_limit(rule):
    """This holds whatever a module earned."""
    earned = {"a": -2.0, "b": 1.0, "c": 0.0}
    for budget in (40, 41, 99):
        assert plan(rule, LIMITED, budget, earned) == {"a": 2, "b": 0, "c": 2}


def test_a_shuffle_moves_ranks_within_a_shape_up_to_the_limit_of_the_new_module():
    other = module([1, 1], (9, 9))
    modules = {"a": module([3, 2, 1], limit=1), "d": other, "b": module([3, 2, 1]), "e": other}
    found = set()
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        ranks = shuffled({"a": 1, "d": 0, "b": 3, "e": 2}, modules, draw)
        assert list(ranks) == list(modules)
        found.add((ranks["a"], ranks["b"], ranks["d"], ranks["e"]))
    assert found == {(1, one, *rest) for one in (1, 3) for rest in ((0, 2), (2, 0))}


@pytest.mark.parametrize("known", [{}, {400: 0.6, 800: 0.2}, {10: 0.99}, {900: 0.1}])
@pytest.mark.parametrize("share", [0.05, 0.25, 0.98])
def test_the_least_budget_is_found_to_a_tenth_of_itself(share, known):
    """The loss falls as 1 - b / 1000; what is known already is not asked for."""
    asked = []

    def lost(budget):
        asked.append(budget)
        return 1 - budget / 1000

    least, tried = least_budget(lost, 1000, share, known)
    exact = round(1000 * (1 - share))
    assert exact <= least <= exact / 0.9 + 1
    assert max(budget for budget, lost in tried.items() if lost > share) >= 0.9 * least - 1
    assert not set(asked) & set(known)
    assert len(asked) == len(set(asked)) <= 14


@pytest.mark.parametrize(("known", "tried"), [({}, [1000]), ({300: 0.7}, [300, 600, 1000])])
def test_where_no_budget_keeps_the_share_there_is_no_least(known, tried):
    least, found = least_budget(lambda _: 0.5, 1000, 0.25, known)
    assert (least, list(found)) == (None, tried)


@pytest.mark.parametrize(
    ("rule", "known", "least"),
    [
        ("attributed", {}, [("attributed", 10, 1 - 2 / 3, True)]),
        ("uniform", {1: 1 / 3}, [("uniform", 10, 1 - 2 / 3, True)]),
    ],
)
def test_the_least_plan_of_a_rule_is_sought_among_its_plans_up_to_all_limits(rule, known, least):
    """Two modules of 5 and 7 parameters a rank, at most two and one of them: 17 parameters; what b
    earned is a hundredth of what a did.
    """
    modules = {
        "a": Module((2, 3), np.array([3.0, 2.0]), 13.0, 2),
        "b": Module((3, 4), np.array([1.0]), 1.0, 1),
    }
    asked = []

    def lost(ranks):
        asked.append(ranks)
        return 1 - (ranks["a"] + ranks["b"]) / 3

    found = least_of_rule(rule, lost, modules, {"a": 1.0, "b": 0.01}, 0.5, known)
    assert [one for one in found if one[3]] == least
    assert known or asked[0] == {"a": 2, "b": 1}
