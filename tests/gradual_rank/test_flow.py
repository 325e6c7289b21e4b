"""The flow in log coordinates, at a scale that doubles do not hold, and what it refuses."""

import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import Quadratic
from lib.gradual_rank.flow import LogCoordinates, log_flow, with_events
from lib.training.stiff_flow import StalledError

USUAL = {"rtol": 1e-6, "atol": 1e-4}
H = torch.tensor([[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], dtype=torch.float64)
MINIMUM = torch.tensor([1, 0.8, -0.2], dtype=torch.float64)
U, V = np.random.default_rng(0).standard_normal((2, 3))


def test_a_start_with_equal_weights_is_refused():
    with pytest.raises(ValueError, match="to differ"):
        LogCoordinates.of(np.array([1.0, 2.0]), np.array([0.5, -2.0]))


def test_the_product_is_capped_and_not_infinite_far_out():
    start = LogCoordinates.of(U, V)
    assert np.isfinite(start.products(np.full(3, 1e5))).all()


def test_a_product_that_is_too_small_to_count_is_zero_and_not_subnormal():
    start = LogCoordinates(np.array([-350.0, -190.0, 350.0]), np.full(3, -1380.0))
    p = start.products()
    assert p[0] == p[1] == p[2] == 0
    far = start.products(np.array([-600.0, 0.0, 600.0]))
    np.testing.assert_allclose(far, np.array([-1, 0, 1]) * np.exp(-180.0) / 4)


def test_the_flow_from_1e_1000_activates_when_the_limit_says():
    log_scale = -1000 * math.log(10)
    start = LogCoordinates.of(U, V, log_scale)
    flow = log_flow(Quadratic(H, MINIMUM), start, -70 * log_scale, **USUAL)
    events = [event for _, found in with_events(flow, start, 1e-2) for event in found]
    kinds = [(2, True), (0, True), (1, True), (2, False), (2, True)]
    assert [(event.coordinate, event.rises) for event in events] == kinds
    rising = [event.time / -log_scale for event in events if event.rises]
    np.testing.assert_allclose(rising, [1.0309, 1.4614, 2.8226, 67.3387], rtol=2e-3)


def test_a_loss_without_a_minimum_ends_in_a_clear_error():
    start = LogCoordinates.of(U, V, -8 * math.log(10))
    with pytest.raises(StalledError, match="products below"):
        list(log_flow(Quadratic(-H, MINIMUM), start, 1e4, **USUAL))
