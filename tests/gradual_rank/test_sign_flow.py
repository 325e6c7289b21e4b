"""Sign flow against hand-made cases, and against many small steps of the signed roots."""

import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import Quadratic
from lib.gradual_rank.sign_flow import (
    first_change,
    sign_flow,
)

ACCURACY, COARSE = {"rtol": 1e-6, "atol": 1e-8}, {"rtol": 1e-3, "atol": 1e-5}


def quadratic(seed, n=5):
    """A random convex quadratic, and targets of both signs."""
    draw = np.random.default_rng(seed)
    A = draw.normal(size=(n, n))
    return Quadratic(
        torch.from_numpy(A @ A.T / n + 0.1 * np.eye(n)), torch.from_numpy(draw.normal(size=n))
    )


def small_steps(loss, end, rate):
    """Signed roots that move by `rate` a step, each by the sign of its gradient."""
    q = torch.zeros(loss.size, dtype=torch.float64)
    for k in range(round(end / rate) + 1):
        yield k * rate, q.numpy().copy()
        q = q + rate * loss.gradient(q * q.abs()).sign()


def test_without_coupling_each_product_rises_as_tau_squared_and_rests_at_its_minimum():
    loss = Quadratic(torch.eye(3), torch.tensor([0.25, -0.81, 0.49]))
    pieces = list(sign_flow(loss, 1.2, **ACCURACY))
    events = [event for piece in pieces for event in piece.events]
    assert [(event.coordinate, event.kind) for event in events] == [
        (0, "slides"),
        (2, "slides"),
        (1, "slides"),
    ]
    np.testing.assert_allclose([event.time for event in events], [0.5, 0.7, 0.9], rtol=1e-8)
    np.testing.assert_allclose(pieces[-1].q * np.abs(pieces[-1].q), [0.25, -0.81, 0.49], rtol=1e-6)
    assert pieces[-1].time == 1.2
    assert first_change(loss, 2.0) == (pytest.approx(0.5, rel=1e-9), 0)
    assert first_change(loss, 0.4) == (math.inf, -1)


@pytest.mark.parametrize("seed", range(6))
def test_the_flow_is_the_limit_of_small_steps(seed):
    loss, end = quadratic(seed), 2.0
    pieces = list(sign_flow(loss, end, **ACCURACY))
    knots, path = (
        np.array([piece.time for piece in pieces]),
        np.stack([piece.q for piece in pieces]),
    )
    worst = {}
    for rate in (2e-3, 2e-4):
        steps = list(small_steps(loss, end, rate))
        times, q = np.array([time for time, _ in steps]), np.stack([q for _, q in steps])
        worst[rate] = max(
            np.abs(np.interp(times, knots, path[:, i]) - q[:, i]).max() for i in range(loss.size)
        )
    assert worst[2e-4] < 0.01
    assert worst[2e-4] < 0.5 * worst[2e-3]


def test_these_cases_have_every_kind_of_event():
    kinds = {
        event.kind
        for seed in range(6)
        for piece in sign_flow(quadratic(seed), 2.0, **ACCURACY)
        for event in piece.events
    }
    assert kinds == {"slides", "turns", "leaves", "passes"}
