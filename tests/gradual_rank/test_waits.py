"""The roots by which optimisers leave a saddle, against torch.optim on one number."""

import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.waits import (
    adam_root,
    end_under_adam,
    exponent,
    lag,
    root,
    step_of,
    steps_under_adam,
    warmed_up,
)

SIGMA = 0.7


def course(optimizer, n_steps, rates=None, start=1.0):
    """One number whose slope is SIGMA times itself, after every step of an optimiser of torch."""
    x = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    own = optimizer([x])
    found = [start]
    for step in range(n_steps):
        if rates is not None:
            own.param_groups[0]["lr"] = rates[step]
        x.grad = -SIGMA * x.detach()
        own.step()
        found.append(x.item())
    return np.array(found)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("beta", [0.5, 0.9, 0.95])
def test_momentum_of_torch_grows_by_the_root_and_begins_with_the_lag(beta, nesterov):
    x = course(lambda w: torch.optim.SGD(w, 0.1, beta, nesterov=nesterov), 400)
    mu = root(np.array(0.1 * SIGMA), beta, nesterov=nesterov)
    assert x[-1] / x[-2] == pytest.approx(mu, rel=1e-12)
    assert x[-1] == pytest.approx(
        float(lag(np.array(0.1 * SIGMA), beta, nesterov=nesterov)) * mu**400
    )


def test_without_momentum_the_root_is_one_plus_the_strength_and_nothing_lags():
    assert root(np.array([0.1, 2.0])) == pytest.approx([1.1, 3.0])
    assert lag(np.array([0.1, 2.0]), 0.0) == pytest.approx([1.0, 1.0])


def test_the_folklore_is_too_fast_and_right_for_small_strengths():
    s = np.array([1e-6, 1e-3, 0.1, 3.0])
    share = (root(s, 0.9) - 1) / (s / (1 - 0.9))
    assert (share < 1).all()
    assert share[0] == pytest.approx(1, abs=1e-3)
    assert share[2] < 0.5


@pytest.mark.parametrize("strength", [0.05, 1.0, 20.0])
def test_adam_of_torch_far_below_epsilon_grows_by_its_root(strength):
    eps = 1e6 * SIGMA
    rate = strength * eps / SIGMA
    n = 150 if strength < 5 else 60  # until the bias correction is one
    x = course(lambda w: torch.optim.Adam(w, rate, eps=eps), n, start=1e-60)
    assert x[-1] / x[-2] == pytest.approx(adam_root(strength, 0.9), rel=3e-3)


@pytest.mark.parametrize("eps", [1e-30, 1e-4, 1e-2])
def test_one_number_under_adam_is_the_adam_of_torch(eps):
    rate, betas, start = 1e-2, (0.8, 0.99), 1e-6
    x = course(lambda w: torch.optim.Adam(w, rate, betas, eps), 900, start=start)
    k = int(np.argmax(x >= 0.3))
    part = math.log(0.3 / x[k - 1]) / math.log(x[k] / x[k - 1])
    found = steps_under_adam(SIGMA, (start, 0.3), rate, betas, eps)
    assert found == pytest.approx(k - 1 + part, rel=1e-9)
    assert end_under_adam(SIGMA, start, found, rate, betas, eps) == pytest.approx(0.3, rel=1e-9)


def test_a_longer_wait_makes_adam_faster_behind_it():
    times = [steps_under_adam(SIGMA, (x, 0.03), 1e-3, (0.9, 0.999), 1e-4) for x in (1e-6, 1e-12)]
    law = math.log(1e6) / math.log(adam_root(1e-3 * SIGMA / 1e-4, 0.9))
    assert 0.5 * law < times[1] - times[0] < law - 1


@pytest.mark.parametrize("warmup", [7, 500])
def test_a_warm_up_ends_the_wait_when_the_sum_says_so(warmup):
    rates = warmed_up(0.1, warmup, 600)
    assert rates[:2] == pytest.approx([0.1 / warmup, 0.2 / warmup])
    assert rates[-1] == pytest.approx(0.1)
    x = course(lambda w: torch.optim.SGD(w, 0.1), 600, rates)
    wanted = math.log(1e6)
    k = int(np.argmax(x >= 1e6))
    part = math.log(1e6 / x[k - 1]) / math.log(x[k] / x[k - 1])
    found = step_of(np.log(root(np.array(rates) * SIGMA)), wanted)
    assert found == pytest.approx(k - 1 + part)
    plain = wanted / math.log1p(0.1 * SIGMA)
    late = math.sqrt(2 * warmup * plain) if warmup > 2 * plain else plain + warmup / 2
    assert found == pytest.approx(late, rel=0.02)


def test_a_sum_that_never_comes_there_is_never_there():
    assert step_of(np.array([1.0, 1.0]), 3.0) == math.inf
    assert step_of(np.array([1.0, 2.0]), 2.0) == pytest.approx(1.5)
    assert step_of(np.array([1.0]), -1.0) == 0


def test_the_exponent_is_that_of_four_times_the_threshold_over_the_square():
    assert exponent(9.0, -2.0, 0.05) == pytest.approx(math.log(0.2 / (1e-4 * 9)) / 2)
