"""Saddles of heads under uniform attention, and the way between them, against obvious references.

They are autograd, the exponential of a matrix, and Dormand and Prince's method on all weights.
"""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from lib.files.files import InputError
from lib.gradual_rank.connections import connection, reached
from lib.gradual_rank.normalized_heads import Heads
from lib.gradual_rank.saddles import (
    Saddles,
    events,
    near_the_first_rise,
    overlap,
    slopes_at,
    spread,
)
from tests.gradual_rank.full_reference import normal, output, taught

N = 12
T = 4
D = 3
SEEDS = (2, 3)


def data(seed):
    X = normal(seed, "tokens", N, T, D)
    return X, taught(X, seed)


@pytest.fixture(scope="module")
def heads():
    X, Y = (torch.stack(one).numpy() for one in zip(*map(data, SEEDS), strict=True))
    return Heads(X, Y, normalized=False, stiffness=1.0)


@pytest.fixture(scope="module")
def saddles(heads):
    return Saddles.of(heads)


@pytest.fixture(scope="module")
def factors():
    return torch.stack([normal(seed, "full start", 4, D, D) for seed in SEEDS], 1).numpy()


def loss(seed, W_KQ, W_VO):
    X, Y = data(seed)
    eye = torch.eye(D, dtype=torch.float64)
    return (output(X, W_KQ, eye, W_VO, eye) - Y).square().mean()


def test_slopes_are_those_of_autograd(heads):
    W_VO = np.stack([normal(seed, "any", D, D).numpy() for seed in SEEDS])
    for n, seed in enumerate(SEEDS):
        zero = torch.zeros(D, D, dtype=torch.float64, requires_grad=True)
        W = torch.from_numpy(W_VO[n]).requires_grad_()
        wanted = torch.autograd.grad(loss(seed, zero, W), (zero, W))
        for found, one in zip(slopes_at(heads, W_VO), wanted, strict=True):
            np.testing.assert_allclose(found[n], -one.numpy(), atol=1e-14)


def test_the_loss_is_the_quadratic_while_attention_is_uniform(saddles):
    for n, seed in enumerate(SEEDS):
        W = normal(seed, "any", D, D)
        zero = torch.zeros_like(W)
        found = (W * (torch.from_numpy(saddles.C[n]) @ W)).sum() / 2
        found -= (torch.from_numpy(saddles.G[n]) * W).sum()
        wanted = loss(seed, zero, W) - loss(seed, zero, zero)
        assert float(found) == pytest.approx(float(wanted), rel=1e-10)


def test_no_descent_of_rank_one_comes_below_the_optimum_of_rank_one(saddles):
    for n, seed in enumerate(SEEDS):
        zero = torch.zeros(D, D, dtype=torch.float64)
        best = float(loss(seed, zero, torch.from_numpy(saddles.optimum(0, 1)[n])))
        ends = []
        for attempt in range(3):
            ab = normal(seed, f"attempt {attempt}", 2, D).requires_grad_()
            search = torch.optim.LBFGS([ab], max_iter=300, line_search_fn="strong_wolfe")

            def value(ab=ab, search=search, zero=zero, seed=seed):
                search.zero_grad()
                found = loss(seed, zero, torch.outer(*ab))
                found.backward()
                return found.detach()

            search.step(value)
            ends.append(float(value()))
        assert min(ends) == pytest.approx(best, rel=1e-8)


def test_optima_are_at_rest_along_what_has_risen(saddles):
    for rank in range(D + 1):
        W = saddles.optimum(0, rank)
        slope = saddles.slopes(rank).VO
        assert np.linalg.matrix_rank(W, tol=1e-10).tolist() == [rank] * len(SEEDS)
        np.testing.assert_allclose(slope @ W.swapaxes(-1, -2), 0, atol=1e-14)
        np.testing.assert_allclose(slope.swapaxes(-1, -2) @ W, 0, atol=1e-14)


def test_no_direction_is_slower_behind_the_first_rise(saddles):
    """By Eckart, Young and Mirsky: σ₁(G − C W) ≥ σ₂(G) for every W of rank one."""
    second = np.linalg.svd(saddles.G, compute_uv=False)[:, 1]
    assert (np.linalg.svd(saddles.slopes(1).VO, compute_uv=False)[:, 0] >= second).all()


def test_too_few_sequences_are_refused(heads):
    few = Heads(heads.X[:, :2], heads.Y[:, :2], normalized=False, stiffness=1.0)
    with pytest.raises(InputError, match="n_samples: wanted at least d_model, which is 3, got 2"):
        Saddles.of(few)


def test_events_are_those_of_exponents_on_straight_lines():
    """The first direction rises at 1/2, with half of the second's exponent left. Then keys need
    1/2, and the second direction 1/2 at the rate 4/5, which is later.
    """
    KQ = np.array([[0.0, 0], [2, 1], [8, 1]])
    VO = np.array([[2.0, 1], [0.8, 0.1], [0.1, 0]])
    assert events(KQ, VO) == ([0.5], 1.0)


def test_a_direction_that_is_faster_than_keys_comes_before_them():
    """It rises at 1/2 + 1/4, when 3/4 of the exponent of keys is left, for the rate 1/2."""
    KQ = np.array([[0.0, 0], [1, 1], [0.5, 0]])
    VO = np.array([[2.0, 1], [2, 0.1], [0.1, 0]])
    values, keys = events(KQ, VO)
    assert values == [0.5, 0.75]
    assert keys == pytest.approx(0.75 + 0.75 / 0.5)


def test_keys_that_never_grow_never_rise():
    assert events(np.zeros((2, 2)), np.array([[2.0, 1], [1, 0.1]])).keys == math.inf


def test_spread_is_the_exponential():
    G = normal(1, "any", D, D).numpy()
    block = np.block([[np.zeros((D, D)), G], [G.T, np.zeros((D, D))]])
    for time in (-0.3, 0.0, 1.7):
        np.testing.assert_allclose(spread(G, time), expm(time * block), rtol=1e-9, atol=1e-9)


def test_overlaps_are_one_for_equal_pairs_and_zero_for_others():
    W = np.diag([3.0, 1, 0])
    other = np.diag([1.0, 3, 0])
    assert overlap(W[None], -2 * W[None])[0] == pytest.approx(1)
    assert overlap(W[None], other[None])[0] == pytest.approx(0)


def test_flows_begin_where_the_first_direction_has_its_size(saddles, factors):
    sizes = np.array([1e-12, 1e-9])
    start = near_the_first_rise(saddles.G, factors, sizes, 1e-3)
    W_K, _, W_V, W_O = start.weights.factors
    np.testing.assert_array_equal(W_K, sizes[:, None, None] * factors[0])
    for n, G in enumerate(saddles.G):
        block = np.block([[np.zeros((D, D)), G], [G.T, np.zeros((D, D))]])
        moved = expm(start.times[n] * block) @ (sizes[n] * np.concatenate(factors[2:, n]))
        wanted = moved[:D] @ moved[D:].T
        np.testing.assert_allclose(W_V[n] @ W_O[n].T, wanted, rtol=1e-6, atol=1e-15)
        U, _, Vh = np.linalg.svd(G)
        w = U[:, 0] @ W_V[n] + Vh[0] @ W_O[n]
        assert abs(w[0]) == pytest.approx(2e-3, rel=1e-6)
        assert np.abs(w[1:]).max() < 1e-14


def followed(seed, scale, end):
    """All weights by an explicit method of order eight, and sizes of three products."""
    X, Y = data(seed)

    def velocity(_, x):
        W = torch.from_numpy(x.reshape(4, D, D)).requires_grad_()
        (slope,) = torch.autograd.grad((output(X, *W) - Y).square().mean(), W)
        return -slope.numpy().ravel()

    start = scale * normal(seed, "full start", 4, D, D).numpy().ravel()
    times = np.linspace(0, end, 4000)
    path = solve_ivp(velocity, (0, end), start, "DOP853", times, rtol=1e-9, atol=1e-15).y.T
    W_K, W_Q, W_V, W_O = np.moveaxis(path.reshape(-1, 4, D, D), 1, 0)
    keys = np.linalg.svd(W_K @ W_Q.swapaxes(-1, -2), compute_uv=False)[:, 0]
    return times, keys, np.linalg.svd(W_V @ W_O.swapaxes(-1, -2), compute_uv=False)[:, :2]


@pytest.mark.parametrize("n", range(len(SEEDS)))
def test_the_way_says_when_things_rise(saddles, factors, n):
    risen = 1e-3
    way = connection(saddles, n, factors)
    said = way.rises(-5, risen)
    times, keys, values = followed(SEEDS[n], 1e-5, 1.2 * min(said.keys, said.values))
    assert said.first == pytest.approx(reached(times, values[:, 0], risen, 1.0), rel=1e-3)
    if said.keys < said.values:
        assert said.keys == pytest.approx(reached(times, keys, risen, 1.0), rel=1e-3)
    else:
        assert said.values == pytest.approx(reached(times, values[:, 1], risen, 1.0), rel=1e-3)


@pytest.mark.parametrize("n", range(len(SEEDS)))
def test_times_of_the_way_go_to_those_of_the_limit(saddles, factors, n):
    way = connection(saddles, n, factors)
    KQ, VO = (
        [np.linalg.svd(one[n], compute_uv=False) for one in (saddles.slopes(k)[i] for k in (0, 1))]
        for i in (0, 1)
    )
    begin = way.rises(-60, 0.05)
    end = way.rises(-90, 0.05)
    efolds = 30 * math.log(10)
    assert (end.first - begin.first) / efolds == pytest.approx(1 / VO[0][0])
    limit = 1 / VO[0][0] + 1 / KQ[1][0]
    assert (end.keys - begin.keys) / efolds == pytest.approx(limit, rel=1e-3)
    second = 1 / VO[0][0] + (1 - VO[0][1] / VO[0][0]) / VO[1][0]
    assert (end.values - begin.values) / efolds == pytest.approx(second, rel=1e-2)


def test_a_crossing_is_where_both_are_at_one_time(saddles, factors):
    found = [connection(saddles, n, factors) for n in range(len(SEEDS))]
    for way in found:
        crossing = way.crossing(0.05)
        late = [way.keys(s, 0.05) - way.values(s, 0.05) for s in (-2.0, -64.0)]
        assert math.isnan(crossing) == (not late[0] > 0 >= late[1])
        if not math.isnan(crossing):
            at = way.keys(crossing, 0.05)
            assert at == pytest.approx(way.values(crossing, 0.05), abs=1e-1)
