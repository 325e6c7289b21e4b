"""The flow in log coordinates is the flow of u and v, at scales that doubles hold and at those that
they do not.
"""

import math
from collections import Counter

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import DiagonalHead, Quadratic, diagonal_head
from lib.gradual_rank.flow import (
    LogCoordinates,
    Solver,
    log_flow,
    staged_flow,
)
from lib.gradual_rank.tasks import gaussian_pair, gaussian_sequences
from lib.training.devices import generator
from lib.training.stiff_flow import StalledError, crossing_of

USUAL = {"rtol": 1e-6, "atol": 1e-4}
STAGED = {**USUAL, "threshold": 1e-2, "stationary": 1e-6, "max_events": 100}
H = torch.tensor([[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], dtype=torch.float64)
MINIMUM = torch.tensor([1, 0.8, -0.2], dtype=torch.float64)
TIMES = [1.0309, 1.4614, 2.8226, 67.3387]  # of the limit
U, V = np.random.default_rng(0).standard_normal((2, 3))


def quadratic():
    return Quadratic(H, MINIMUM)


def crossings(loss, start, end, q=1e-2):
    """(time, coordinate, rises) of all crossings of |p| = q."""
    level, found = start.level(q), []
    for step in log_flow(loss, start, end, **USUAL):
        before, after = np.abs(step.origin), np.abs(step.state)
        for i in np.flatnonzero((before < level) != (after < level)):
            rises = after[i] >= level[i]
            y = (step.state if rises else step.origin)[i]
            found.append(
                (crossing_of(step, int(i), float(np.copysign(level[i], y))), int(i), bool(rises))
            )
    return sorted(found)


def test_a_start_with_equal_weights_is_refused():
    with pytest.raises(ValueError, match="to differ"):
        LogCoordinates.of(np.array([1.0, 2.0]), np.array([0.5, -2.0]))


def test_the_product_is_capped_and_not_infinite_far_out():
    start = LogCoordinates.of(U, V)
    assert np.isfinite(start.products(np.full(3, 1e5))).all()


def test_the_flow_from_1e_1000_activates_when_the_limit_says():
    log_scale = -1000 * math.log(10)
    found = crossings(quadratic(), LogCoordinates.of(U, V, log_scale), -70 * log_scale)
    assert [(i, rises) for _, i, rises in found] == [
        (2, True),
        (0, True),
        (1, True),
        (2, False),
        (2, True),
    ]
    rising = [time / -log_scale for time, _, rises in found if rises]
    np.testing.assert_allclose(rising, TIMES, rtol=2e-3)


def test_the_finite_scale_prediction_is_better_than_the_limit():
    log_scale = -4 * math.log(10)
    start = LogCoordinates.of(U, V, log_scale)
    measured = np.array(
        [time for time, _, rises in crossings(quadratic(), start, -70 * log_scale) if rises]
    )
    events = staged_flow(quadratic(), start, -70 * log_scale, **STAGED)
    predicted = np.array([event.time for event in events if event.rises])
    of_the_limit = np.array(TIMES) * -log_scale
    assert np.median(np.abs(predicted - measured) / measured) < 0.1 * np.median(
        np.abs(of_the_limit - measured) / measured
    )


def gaussian_head(seed):
    """A teacher's head of 16 products, and a start; with it, its adapter to a teacher of which six
    are others.
    """
    X = gaussian_sequences(200, 10, 8, generator(seed, "tokens"))
    teacher, start, change = (
        gaussian_pair(16, generator(seed, name)) for name in ("teacher", "start", "change")
    )
    base = teacher[0] * teacher[1]
    changed = torch.randperm(16, generator=generator(seed, "changed coordinates"))[:6]
    target = base.index_add(0, changed, (change[0] * change[1])[changed])
    u, v = (w.numpy() for w in start)
    return (
        DiagonalHead(X, diagonal_head(X, base)),
        DiagonalHead(X, diagonal_head(X, target), base),
        u,
        v,
    )


def predicted_rises(loss, start, end):
    """How often each coordinate is predicted to rise."""
    usual = {"threshold": 1e-2, "stationary": 1e-4, "max_events": 500, "rtol": 1e-5, "atol": 1e-4}
    return Counter(
        event.coordinate for event in staged_flow(loss, start, end, **usual) if event.rises
    )


def test_the_head_of_seed_9003_is_predicted_to_rise_as_often_as_its_flow_which_is_15_times():
    loss, _, u, v = gaussian_head(9003)
    log_scale = -32 * math.log(10)
    rises = predicted_rises(loss, LogCoordinates.of(u, v, log_scale), 241.7 * (4 - log_scale))
    assert rises.total() == 15
    assert rises[5] == 1


@pytest.mark.parametrize("seed", [3, 7])
def test_no_coordinate_of_an_adapter_with_u_of_order_1_is_predicted_to_rise_more_than_three_times(
    seed,
):
    _, loss, u, v = gaussian_head(seed)
    rises = predicted_rises(loss, LogCoordinates.of(u, np.zeros_like(v)), 400.0)
    assert max(rises.values()) <= 3


class Broken(Quadratic):
    """A loss whose gradient is not a number beyond |p| = 0.1."""

    def gradient(self, p):
        return super().gradient(p) + torch.where(p.abs().max() > 0.1, math.nan, 0.0)


def test_a_gradient_that_is_not_a_number_ends_in_a_clear_error():
    start = LogCoordinates.of(U, V, -8 * math.log(10))
    for flow in (
        lambda: list(log_flow(Broken(H, MINIMUM), start, 1e3, **USUAL)),
        lambda: list(staged_flow(Broken(H, MINIMUM), start, 1e3, **STAGED)),
    ):
        with pytest.raises(StalledError):
            flow()


def test_a_loss_without_a_minimum_ends_in_a_clear_error():
    start = LogCoordinates.of(U, V, -8 * math.log(10))
    with pytest.raises(StalledError, match="products below"):
        list(log_flow(Quadratic(-H, MINIMUM), start, 1e4, **USUAL))


SOLVER = {**STAGED, "margin": 4, "kick": 1e-4, "curvature_share": 0.25}


def test_a_run_ends_by_the_margin_after_the_last_stage():
    assert Solver(**SOLVER).end(3.0, -8 * math.log(10)) == pytest.approx(3 * (8 * math.log(10) + 4))
