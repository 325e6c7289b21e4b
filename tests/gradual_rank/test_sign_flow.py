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

ACCURACY = {"rtol": 1e-6, "atol": 1e-8}
SEEDS = range(6)


def quadratic(seed, n=5):
    """A random convex quadratic, and targets of both signs."""
    draw = np.random.default_rng(seed)
    A = draw.normal(size=(n, n))
    return Quadratic(
        torch.from_numpy(A @ A.T / n + 0.1 * np.eye(n)), torch.from_numpy(draw.normal(size=n))
    )


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


def test_the_flow_is_the_limit_of_small_steps_through_every_kind_of_event():
    """The path of signed roots that move by a rate a step, each by the sign of its gradient."""
    kinds = set()
    for seed in SEEDS:
        loss = quadratic(seed)
        pieces = list(sign_flow(loss, 2.0, **ACCURACY))
        kinds |= {event.kind for piece in pieces for event in piece.events}
        knots, path = [piece.time for piece in pieces], np.stack([piece.q for piece in pieces], 1)
        worst = []
        for rate in (4e-3, 4e-4):
            q = torch.zeros(loss.size, dtype=torch.float64)
            steps = []
            for _ in range(round(2 / rate) + 1):
                steps.append(q)
                q = q + rate * loss.gradient(q * q.abs()).sign()
            times = rate * np.arange(len(steps))
            flow = [np.interp(times, knots, own) for own in path]
            worst.append(np.abs(np.stack(flow, 1) - torch.stack(steps).numpy()).max())
        assert worst[1] < 0.02
        assert worst[1] < 0.5 * worst[0]
    assert kinds == {"slides", "turns", "leaves", "passes"}
