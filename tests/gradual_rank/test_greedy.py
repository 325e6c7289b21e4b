"""Algorithm 1 finds the stages that can be worked out by hand, and says when there is none."""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import (
    Quadratic,
)
from lib.gradual_rank.flow import LogCoordinates, log_flow, staged_flow, with_events
from lib.gradual_rank.greedy import greedy, stability_limit
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


def test_what_is_curved_downwards_bounds_no_learning_rate():
    assert stability_limit(-H.numpy(), MINIMUM.numpy()) == math.inf


def test_stages_of_tiny_slopes_come_to_rest_as_those_of_large_ones_do():
    """Beside a coordinate of slope 1, the example at a ten thousandth of its size: the same stages,
    times larger.
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
