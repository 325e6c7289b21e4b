"""Algorithm 1 finds the stages that can be worked out by hand, and says when there is none."""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import DiagonalHead, Quadratic, diagonal_head
from lib.gradual_rank.flow import LogCoordinates, log_flow, staged_flow, with_events
from lib.gradual_rank.greedy import greedy, stability_limit
from lib.gradual_rank.rest import refined, rest_nearby
from lib.training.stiff_flow import StalledError

NUMBERS = {"kick": 1e-5, "stationary": 1e-5, "rtol": 1e-5, "atol": 1e-4}
H = torch.tensor([[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], dtype=torch.float64)
MINIMUM = torch.tensor([1, 0.8, -0.2], dtype=torch.float64)


def stages(loss, size, at_most=50):
    return list(itertools.islice(greedy(loss, size, **NUMBERS), at_most))


def test_the_sign_of_the_gradient_matters():
    class Flipped(Quadratic):
        def gradient(self, p):
            return -super().gradient(p)

    with pytest.raises(StalledError):
        stages(Flipped(H, MINIMUM), 3)


def test_a_stage_that_does_not_come_to_rest_ends_in_a_clear_error(monkeypatch):
    monkeypatch.setattr("lib.gradual_rank.greedy.MAX_STEPS", 5)
    with pytest.raises(StalledError, match="1 coordinates did not come to rest in 5 steps"):
        stages(Quadratic(H, MINIMUM), 3)


def test_a_stage_comes_to_rest_where_less_is_asked_of_g_than_the_solver_resolves():
    """At the tolerances of params the solver of log|p| knows a state to some 1e-7 of it, so that g
    never falls to 1e-8 of its start; the stages are those of a rest that is easy to reach.
    """
    draw = torch.Generator().manual_seed(0)
    X = torch.randn(50, 5, 4, generator=draw, dtype=torch.float64)
    w = torch.randn(4, 8, generator=draw, dtype=torch.float64)
    loss = DiagonalHead(X, diagonal_head(X, w[0] * w[1]))
    solver = {"kick": 1e-4, "rtol": 1e-5, "atol": 1e-4, "curvature": loss.on_share(0.25)}
    easy, hard = (
        list(itertools.islice(greedy(loss, 8, stationary=rest, **solver), 9))
        for rest in (1e-4, 1e-8)
    )
    assert [(s.coordinate, s.sign) for s in hard] == [(s.coordinate, s.sign) for s in easy]
    np.testing.assert_allclose([s.time for s in hard], [s.time for s in easy], rtol=1e-8)
    np.testing.assert_allclose([s.p for s in hard], [s.p for s in easy], atol=1e-8)


def test_newton_ends_a_stage_where_the_solver_alone_comes_to_rest(monkeypatch):
    draw = torch.Generator().manual_seed(1)
    X = torch.randn(50, 5, 4, generator=draw, dtype=torch.float64)
    w = torch.randn(4, 8, generator=draw, dtype=torch.float64)
    loss = DiagonalHead(X, diagonal_head(X, w[0] * w[1]))
    found = stages(loss, 8, 9)
    monkeypatch.setattr("lib.gradual_rank.greedy.SLOW", 0)
    alone = stages(loss, 8, 9)
    assert [(s.coordinate, s.sign) for s in found] == [(s.coordinate, s.sign) for s in alone]
    np.testing.assert_allclose([s.p for s in found], [s.p for s in alone], atol=1e-9)


def test_newton_reaches_the_minimum_of_a_quadratic_on_the_support_and_keeps_signs():
    loss = Quadratic(H, MINIMUM)
    found = refined(loss, np.array([0.9, 0.0, 0.5]), 1e-12)
    np.testing.assert_allclose(found, [0.41472, 0, 0.70043], atol=1e-4)
    assert refined(loss, np.array([0.9, 0.7, 0.5]), 1e-12)[2] > 0  # the minimum has -0.2 there
    assert not refined(loss, np.zeros(3), 1e-12).any()


def test_rest_is_found_nearby_or_not_at_all():
    loss = Quadratic(H, MINIMUM)
    p = np.array([0.23950 / 0.5775, 0, 0.4045 / 0.5775])
    near = rest_nearby(loss, p * (1 + 1e-5), 1e-12, 1e-5, 1e-4)
    np.testing.assert_allclose(near, p, rtol=1e-12)
    assert rest_nearby(loss, p * 1.01, 1e-12, 1e-5, 1e-4) is None
    assert rest_nearby(loss, np.array([0.9, 0.7, 0.5]), 1e-12, 1e-5, 10.0) is None


def test_what_is_curved_downwards_bounds_no_learning_rate():
    assert stability_limit(-H.numpy(), MINIMUM.numpy()) == math.inf


def test_stages_of_tiny_slopes_come_to_rest_as_those_of_large_ones_do():
    """Beside a coordinate of slope 1 stands the example at a ten thousandth of its size: it has the
    same stages, at larger times.
    """
    small = 1e-4
    whole, minimum = torch.eye(4, dtype=torch.float64), torch.cat([torch.ones(1), small * MINIMUM])
    whole[1:, 1:] = H
    found = list(
        greedy(
            Quadratic(whole, minimum.double()), 4, kick=1e-9, stationary=1e-3, rtol=1e-5, atol=1e-4
        )
    )
    assert [(stage.coordinate, stage.sign) for stage in found[1:]] == [
        (0, 1),
        (3, 1),
        (1, 1),
        (2, 1),
        (3, -1),
    ]
    plateaus = [
        (0, 0, 0.97),
        (0.23950 / 0.5775, 0, 0.4045 / 0.5775),
        (0.87, 0.67, 0),
        (1, 0.8, -0.2),
    ]
    np.testing.assert_allclose(
        [stage.p[1:] / small for stage in found[2:]], plateaus, rtol=1e-9, atol=1e-12
    )
    times = np.array([1.0309, 1.4614, 2.8226, 67.3387]) / small
    np.testing.assert_allclose([stage.time for stage in found[2:]], times, rtol=1e-4)


def test_predictions_of_tiny_slopes_wait_for_what_grows_before_them():
    """The third coordinate's slope falls to a third of what it is until the second has grown."""
    block = 1e-4 * torch.tensor([[1, 0.6], [0.6, 1]])
    loss = Quadratic(
        torch.block_diag(torch.eye(1), block).double(), torch.tensor([1.0, 1, 0.5]).double()
    )
    start = LogCoordinates.of(
        np.array([1.5, 1.1, 0.7]), np.array([0.6, 0.5, 1.3]), -12 * math.log(10)
    )
    solver = {"rtol": 1e-6, "atol": 1e-6}
    predicted = list(
        staged_flow(loss, start, 2e6, threshold=1e-3, stationary=1e-3, max_events=9, **solver)
    )
    flow = with_events(log_flow(loss, start, 2e6, **solver), start, 1e-3)
    measured = [event for _, events in flow for event in events]
    assert (
        [event.coordinate for event in predicted]
        == [event.coordinate for event in measured]
        == [0, 1, 2]
    )
    np.testing.assert_allclose([e.time for e in predicted], [e.time for e in measured], rtol=1e-2)
