"""Under weight decay what rests is the minimum with the 1-norm."""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.decay import Decayed, rest_error, ridge_error
from lib.gradual_rank.decayed_matrices import DecayedHeads, Nearness
from lib.gradual_rank.diagonal_heads import DiagonalHead, DiagonalLoss, Quadratic
from lib.gradual_rank.greedy import greedy

NUMBERS = {"kick": 1e-5, "stationary": 1e-5, "rtol": 1e-5, "atol": 1e-4}


def test_the_last_plateau_is_the_minimum_with_the_1_norm():
    """The minimum of a random convex quadratic, by many steps of soft thresholding."""
    draw = np.random.default_rng(5)
    A = draw.normal(size=(6, 6))
    M = A @ A.T / 6 + 0.2 * np.eye(6)
    target = draw.normal(size=6)
    decay = 0.4 * np.abs(M @ target).max()
    p = np.zeros(6)
    rate = 1 / np.linalg.eigvalsh(M)[-1]
    for _ in range(5000):
        moved = p + rate * M @ (target - p)
        p = np.sign(moved) * np.maximum(np.abs(moved) - rate * decay, 0)
    assert 0 < (p != 0).sum() < 6
    loss = Decayed(Quadratic(torch.from_numpy(M), torch.from_numpy(target)), decay)
    *_, last = greedy(loss, 12, lowest=-math.inf, **NUMBERS)
    np.testing.assert_allclose(last.p[:6] - last.p[6:], p, atol=1e-8)
    assert last.next_time == math.inf
    g = M @ (target - p)
    assert rest_error(g, p, decay) < 1e-9
    assert rest_error(g, target, decay) > 0.1
    assert rest_error(1.5 * g, p, decay) == pytest.approx(0.5)
    assert ridge_error(decay * p, p, decay) == 0


@pytest.mark.parametrize("support", [[1], [0, 3, 5], [2, 6, 9], [0, 1, 4, 8, 9, 11], []])
def test_halves_that_are_zero_need_not_be_computed(support):
    """The support has one half of a product, or both, of keys and of values; it is compared with
    the whole loss.
    """
    g = torch.Generator().manual_seed(0)
    X, Y = torch.randn(2, 5, 4, 3, generator=g, dtype=torch.float64)
    loss = Decayed(DiagonalHead(X, Y), 0.3)
    on = torch.tensor(support, dtype=torch.long)
    q = torch.rand(len(on), generator=g, dtype=torch.float64)
    every = torch.arange(len(on))
    fast = loss.restricted(on)
    obvious = DiagonalLoss.restricted(loss, on)
    torch.testing.assert_close(fast.value(q), obvious.value(q))
    torch.testing.assert_close(fast.gradient(q), obvious.gradient(q))
    torch.testing.assert_close(fast.hessian(q, every), obvious.hessian(q, every))


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0])
def test_heads_are_at_rest_where_every_distance_from_rest_is_small(scale):
    """The distances are those of `rests`; a head without decay is never at rest."""
    heads = DecayedHeads.drawn((0, 1), (20, 4, 3), (0.0, 0.3, 1.2))
    W = scale * heads.start
    every = np.array([*heads.rests(W, 0.05).values()]).max((0, 1))
    farthest = float(every[:, 1:].max())
    assert heads.at_rest(W, 0.05, farthest).tolist() == [[False, True, True]] * 2
    below = heads.at_rest(W, 0.05, farthest - 1e-9).numpy()
    np.testing.assert_array_equal(below[:, 1:], every[:, 1:] < farthest)


def test_what_has_come_to_rest_is_followed_no_longer_and_the_others_go_on_as_they_would():
    heads = DecayedHeads.drawn((3,), (20, 4, 3), (0.0, 0.3, 0.9))
    found = list(heads.looks(0.3, 0.2, 10, Nearness(0.05, 1e-4)))
    alone = list(itertools.islice(heads.looks(0.3, 0.2, 10), len(found)))
    assert [look.number for look in found] == [10 * k for k in range(len(found))]
    rested = [int(heads.at_rest(look.factors, 0.05, 1e-4).sum()) for look in alone]
    first = rested.index(1)
    assert rested[0] == 0
    assert first < len(found) - 1
    [[_, *resting]] = heads.at_rest(alone[first].factors, 0.05, 1e-4).tolist()
    still = 1 + resting.index(True)
    for look, other in zip(found, alone, strict=True):
        moving = [k for k in range(3) if k != still or look.number <= alone[first].number]
        mine = look.factors[:, :, 0, moving]
        torch.testing.assert_close(mine, other.factors[:, :, 0, moving], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(look.loss[:, moving], other.loss[:, moving])
    assert torch.equal(found[-1].factors[:, :, 0, still], found[first].factors[:, :, 0, still])
    assert heads.at_rest(found[-1].factors, 0.05, 1e-4).tolist() == [[False, True, True]]
