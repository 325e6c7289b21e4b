"""From B = 0, an adapter's start says when each direction is learned."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from lib.gradual_rank.adapted_layers import Adam, factors_of, pull_of_head, pull_of_matrix
from lib.gradual_rank.adapter_start import (
    LinearPull,
    crowded,
    exact_time,
    expected_at,
    forecasts,
    pace,
    scaling_of,
    small_update_time,
    times_in_flow,
)
from tests.gradual_rank.full_reference import normal


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("h", [1.0, 0.3])
@pytest.mark.parametrize(("a_squared", "s", "ratio"), [(1e-8, 1, 1), (0.3, 2, 9), (40, 0.5, 0.2)])
def test_the_exact_time_is_the_integral_of_one_over_the_speed(a_squared, s, ratio, h):
    theta, p = 0.7, 0.6

    def slowness(q):
        return 1 / (
            s**2 * h * (theta - q) * math.sqrt(ratio**2 * a_squared**2 + 4 * ratio * (q / s) ** 2)
        )

    wanted, _ = quad(slowness, 0, p, points=[a_squared], epsabs=0, epsrel=1e-10, limit=500)
    kappa = pace(s, ratio)
    assert exact_time(p, theta, a_squared, kappa, h) == pytest.approx(wanted, rel=1e-8)
    course = expected_at(np.array([0, p, theta, 1.0]), theta, a_squared, kappa, h * theta)
    np.testing.assert_allclose(course, [0, wanted, np.inf, np.inf], rtol=1e-8, atol=1e-12)


def test_the_short_formula_is_the_exact_one_while_the_update_is_small():
    times = [time(1e-5, 0.7, 1e-4, 1.5) for time in (small_update_time, exact_time)]
    assert times[0] == pytest.approx(times[1], rel=1e-4)
    assert small_update_time(0.35, 0.7, 1e-4, 1.5) < 0.95 * exact_time(0.35, 0.7, 1e-4, 1.5)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 4.0])
def test_the_flow_of_one_direction_takes_the_exact_time_whatever_the_scale_of_a(scale):
    """With one input nothing spills into other columns."""
    A = scale * drawn(1, 5, 1)
    pull = LinearPull(np.array([[0.7]]), np.array([[1.3]]))
    found, *_ = times_in_flow(
        pull, (np.zeros((1, 5)), A), np.array([0.4]), scaling=0.8, ratio=4, end=1e3
    )
    wanted = exact_time(0.4, 0.7 / 1.3, float((A**2).sum()), pace(0.8, 4), 1.3)
    np.testing.assert_allclose(found, wanted, rtol=1e-7)


def test_the_flow_is_the_limit_of_small_steps_of_gradient_descent():
    M, H, A = drawn(2, 3, 3), np.diag([1.0, 0.5, 2.0]), 0.1 * drawn(3, 2, 3)
    pull = LinearPull(M @ H, H)
    U, sigma, V = pull.triplets(2)
    aims = 0.3 * sigma / pull.curvatures(2)
    found, times, course = times_in_flow(
        pull, (np.zeros((3, 2)), A), aims, scaling=1.5, ratio=3, end=100
    )
    assert np.isfinite(found).all()
    B = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    A = torch.from_numpy(A).requires_grad_()
    rate, reached, k = 1e-3, np.full(2, np.inf), 0
    while np.isinf(reached).any():
        off = torch.from_numpy(M) - 1.5 * B @ A
        loss = (off @ torch.from_numpy(H) * off).sum() / 2
        update = (1.5 * B @ A).detach().numpy()
        learned = np.array([u @ update @ v for u, v in zip(U.T, V.T, strict=True)])
        reached = np.where((learned >= aims) & np.isinf(reached), k * rate, reached)
        g_B, g_A = torch.autograd.grad(loss, (B, A))
        with torch.no_grad():
            B -= 3 * rate * g_B
            A -= rate * g_A
        k += 1
    np.testing.assert_allclose(found, reached, rtol=0, atol=2 * rate)
    assert times[0] == 0
    np.testing.assert_array_equal(course[0], 0)
    assert (course[-1] >= aims).all()


def test_a_direction_that_is_not_learned_in_time_has_an_infinite_one():
    A = 1e-3 * drawn(4, 4, 6)
    pull = pull_of_matrix(0, 6, (1.0, 0.1))
    found, *_ = times_in_flow(
        pull, (np.zeros((6, 4)), A), np.array([0.5, 0.05]), scaling=1, ratio=1, end=15
    )
    assert np.isfinite(found[0])
    assert found[1] == np.inf


def test_crowding_counts_what_is_orthogonal_to_all_that_come_before():
    a, sigma = drawn(5, 4, 4), np.array([0.5, 1.0, 0.7, 0.6])
    a[:, 0] *= 1e3  # so that it is early in spite of its σ
    found = crowded(lambda i, square: -math.log(square) / sigma[i] + 20 / sigma[i], a)
    order = np.argsort(found.times)
    assert order[0] == 0
    for k, i in enumerate(order):
        Q, _ = np.linalg.qr(a[:, order[:k]])
        rest = a[:, i] - Q @ (Q.T @ a[:, i])
        assert found.a_squared[i] == pytest.approx(rest @ rest)
        assert found.times[i] == pytest.approx((20 - math.log(rest @ rest)) / sigma[i])
    with pytest.raises(ValueError, match=r"at most 2 directions, the rank of the adapter, got 4"):
        crowded(lambda i, square: 1.0, a[:2])


def test_from_a_small_start_the_forecast_with_crowding_is_the_flow():
    targets = (1.0, 0.7, 0.45, 0.3)
    pull = pull_of_matrix(3, 9, targets)
    B, A = factors_of(3, 9, 4, -5, "zero", 0)
    found, *_ = times_in_flow(pull, (B, A), np.array(targets) / 2, scaling=0.5, ratio=4, end=1e3)
    said = forecasts(pull, A, 4, 1.0)
    np.testing.assert_allclose(found, said.forecast, rtol=1e-4)
    assert np.abs(found / said.alone - 1).max() > 0.01
    assert (said.alone <= said.forecast).all()
    np.testing.assert_allclose(said.shuffled, forecasts_of(A, pull, np.roll(targets, 1)), rtol=1e-6)


def forecasts_of(A, pull, targets):
    """Times by hand: the formula for what QR leaves of each A v, the earliest first."""
    V = np.linalg.svd(pull.G)[2][:4].T
    a = A @ V
    times = np.full(4, np.inf)
    taken = np.zeros((4, 0))
    while np.isinf(times).any():
        Q = np.linalg.qr(taken)[0] if taken.size else taken
        rest = a - Q @ (Q.T @ a)
        waiting = {
            i: exact_time(targets[i] / 2, targets[i], rest[:, i] @ rest[:, i], 1.0)
            for i in range(4)
            if np.isinf(times[i])
        }
        first = min(waiting, key=waiting.get)
        times[first] = waiting[first]
        taken = np.column_stack([taken, a[:, first]])
    return times


def test_settings_act_through_the_pace_alone():
    """A ratio of 4 is twice the alpha; twice the alpha with A / √2 halves every time."""
    pull = pull_of_matrix(1, 6, (1.0, 0.5))
    B, A = factors_of(1, 6, 3, -1, "zero", 0)
    aims = np.array([0.5, 0.25])

    def times(A, **settings):
        return times_in_flow(pull, (B, A), aims, end=1e3, **settings)[0]

    twice = times(A / math.sqrt(2), scaling=2, ratio=1)
    np.testing.assert_allclose(times(A, scaling=1, ratio=4), times(A, scaling=2, ratio=1))
    np.testing.assert_allclose(2 * twice, times(A, scaling=1, ratio=1))
    assert pace(3, 16) == 12
    assert scaling_of(8, 16) == 0.5
    assert scaling_of(8, 16, rooted=True) == scaling_of(8 * 4, 16)
    with pytest.raises(ValueError, match=r"wanted a positive scaling and ratio .*, got 1 and 0"):
        pace(1, 0)
    with pytest.raises(ValueError, match=r"wanted aims below the targets 0.5, got 0.5"):
        exact_time(0.5, 0.5, 1.0, 1.0)


def test_the_pull_of_a_head_is_minus_the_gradient_of_its_loss_at_any_update():
    d, targets, seed = 4, (1.0, 0.5), 3
    pull = pull_of_head(seed, 7, 5, d, targets)
    X = normal(seed, "adapter's tokens", 7, 5, d)
    W_K, W_Q, W_V, W_O = normal(seed, "adapter's base", 4, d, d)
    attention = torch.softmax(X @ (W_K @ W_Q.T / d) @ X.mT, -1) @ X
    U, V = torch.linalg.qr(normal(seed, "adapter's task", 2, d, d)).Q[..., :2]
    change = U @ torch.diag(torch.tensor(targets).double()) @ V.T
    base = W_V @ W_O.T / d
    for update in (torch.zeros(d, d).double(), normal(0, "any", d, d)):
        W = (base + update.T).requires_grad_()
        loss = (attention @ W - attention @ (base + change.T)).square().mean()
        [g] = torch.autograd.grad(-loss, W)
        np.testing.assert_allclose(pull.at(update.numpy()), g.T.numpy(), atol=1e-12)
    assert np.linalg.svd(pull_of_matrix(seed, d, targets).G)[1][:2] == pytest.approx(targets)


def test_factors_have_the_scales_of_their_start():
    B, A = factors_of(0, 400, 16, -2, "both", -1)
    assert A.std() * 20 == pytest.approx(1e-2, rel=0.05)
    assert B.std() * 20 == pytest.approx(1e-2, rel=0.05)
    zero, same = factors_of(0, 400, 16, -2, "zero", -1)
    assert not zero.any()
    np.testing.assert_array_equal(same, A)
    of_B, of_A = factors_of(0, 400, 16, -2, "output", -1)
    np.testing.assert_array_equal(of_B, B)
    np.testing.assert_allclose(of_A, 10 * A)


def test_adam_is_its_formula():
    pull = pull_of_matrix(2, 4, (1.0, 0.4))
    B, A = factors_of(2, 4, 3, -1, "zero", 0)
    aims = np.array([0.02, 0.01])
    found, times, course = Adam(0.01, 30).times(pull, (B, A), aims, 1.5)
    U, _, V = pull.triplets(2)
    x = [B, A]
    m, v = [0 * B, 0 * A], [0 * B, 0 * A]
    wanted = np.full(2, np.inf)
    for k in range(len(times)):
        update = 1.5 * x[0] @ x[1]
        learned = np.diag(U.T @ update @ V)
        np.testing.assert_allclose(course[k], learned, atol=1e-9)
        wanted = np.where((learned >= aims) & np.isinf(wanted), 0.01 * k, wanted)
        G = 1.5 * (pull.G - update)
        for i, g in enumerate((G @ x[1].T, x[0].T @ G)):
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            root = np.sqrt(v[i] / (1 - 0.999 ** (k + 1))) + 1e-8
            x[i] = x[i] + 0.01 * m[i] / (1 - 0.9 ** (k + 1)) / root
    np.testing.assert_allclose(found, wanted)
    assert np.isfinite(found).all()
    assert np.isinf(Adam(0.01, 2).times(pull, (B, A), 100 * aims, 1.5)[0]).all()
