"""Heads under weight decay: their flow, its clock, and what is slowed."""

import math

import numpy as np
import pytest

from lib.gradual_rank.decayed_turns import DecayedHeads, earlier_turn
from lib.gradual_rank.normalized_heads import Heads, Weights, flow, norm

N_HEADS, N, T, D = 2, 5, 4, 3


def made(scale=1.0):
    """Tokens, targets, and weights of two heads."""
    draw = np.random.default_rng(3)
    X, Y = draw.normal(size=(2, N_HEADS, N, T, D))
    factors = scale * draw.normal(size=(4, N_HEADS, D, D))
    return X, Y, Weights(factors, np.full(N_HEADS, math.sqrt(D)))


def decayed(X, Y, keys, values, **more):
    both = {"keys": np.full(N_HEADS, keys), "values": np.full(N_HEADS, values)}
    return DecayedHeads(X, Y, True, more.pop("stiffness", 1e9), **both, **more)


def ends(heads, start, end, longest=0.01):
    """The weights of every head just after an end, and when that is."""
    last = {}
    for moment in flow(heads, start, longest, lambda now: now.times >= end):
        for place, head in enumerate(moment.heads):
            last[head] = (moment.times[place], moment.weights.factors[:, place])
    return [last[head] for head in sorted(last)]


def test_decay_is_added_to_the_slopes():
    X, Y, W = made()
    plain = Heads(X, Y, True, 1e9).velocity(W).factors
    found = decayed(X, Y, 0.3, 0.7).velocity(W).factors
    np.testing.assert_allclose(found[:2], plain[:2] - 0.3 * W.factors[:2])
    np.testing.assert_allclose(found[2:], plain[2:] - 0.7 * W.factors[2:])


def test_keys_alone_are_slowed_as_far_as_the_gain_makes_them_stiff():
    X, Y, W = made()
    sizes = np.array([0.01, 0.01, 1.0, 1.0])[:, None, None, None]
    W = Weights(sizes * W.factors, np.array([2.0, 0.5]))
    ratio = Heads(X, Y, True, 1.0).ratio(W) * W.gain / math.sqrt(D)
    assert ratio.min() > 10
    fast = decayed(X, Y, 0.0, 0.0, learned=True).velocity(W)
    slow = decayed(X, Y, 0.0, 0.0, learned=True, stiffness=10).velocity(W)
    np.testing.assert_allclose(slow.factors[:2], fast.factors[:2] * (10 / ratio)[:, None, None])
    np.testing.assert_array_equal(slow.factors[2:], fast.factors[2:])
    np.testing.assert_array_equal(slow.gain, fast.gain)
    assert np.abs(fast.gain).min() > 0


def test_norms_of_keys_fall_as_decay_says_and_plain_heads_keep_none():
    X, Y, start = made(0.5)
    for head, (time, factors) in enumerate(ends(decayed(X, Y, 0.4, 0.1), start, 1.0, 0.05)):
        wanted = norm(start.factors[:2, head]) * math.exp(-0.4 * time)
        np.testing.assert_allclose(norm(factors[:2]), wanted, rtol=1e-12)
    moved = Weights(1.5 * start.factors, start.gain)
    heads = DecayedHeads(X, Y, False, 1.0, keys=np.zeros(N_HEADS), values=np.zeros(N_HEADS))
    assert heads.kept(moved, start, np.ones(N_HEADS)) is moved


def test_some_heads_have_their_own_decay():
    X, Y, _ = made()
    keys, values = np.array([[1.0, 2], [3, 4]])
    some = DecayedHeads(X, Y, True, 1.0, keys=keys, values=values).only(np.array([1]))
    assert (list(some.keys), list(some.values), len(some.X)) == ([2], [4], 1)


def test_decay_of_all_matrices_moves_no_turn_of_small_heads():
    """Without their decay the weights are those of the flow that has none."""
    X, Y, start = made(1e-3)
    end = 2.0
    free = ends(decayed(X, Y, 0.0, 0.0), start, end)
    held = ends(decayed(X, Y, 0.2, 0.2), start, end)
    for (time, factors), (late, shrunk) in zip(free, held, strict=True):
        assert late == pytest.approx(time, abs=0.05)
        far = norm(factors[:2] - start.factors[:2, 0]).max()
        assert norm(math.exp(0.2 * late) * shrunk - factors).max() < 0.05 * far


def test_with_values_fixed_a_turn_comes_at_the_logarithm_of_its_clock():
    times = np.linspace(0, 10, 20001)
    found = earlier_turn(times, np.full_like(times, 3.0), turn=6.0, decay=0.25)
    assert found == pytest.approx(math.log(1 + 2 * 0.25 * 6.0) / (2 * 0.25), rel=1e-6)
    assert earlier_turn(times, np.exp(times), 6.0, 0.0) == pytest.approx(6.0)
    growing = earlier_turn(times, np.exp(0.5 * times), 6.0, 0.25)
    wanted = math.log(1 + (math.exp(0.5 * 6.0) - 1) / 0.5) / 1.0
    assert growing == pytest.approx(wanted, rel=1e-6)


def test_a_turn_that_comes_after_the_last_time_is_put_there():
    """It is the decay of values that makes a turn later: the decay of keys less it is negative."""
    times = np.linspace(0, 10, 20001)
    pulls = np.full_like(times, 3.0)
    later = earlier_turn(times, pulls, turn=2.0, decay=-0.1)
    assert later == pytest.approx(-math.log(1 - 2 * 0.1 * 2.0) / (2 * 0.1), rel=1e-6)
    assert earlier_turn(times, pulls, turn=9.0, decay=-0.25) == 10
