"""The flow in log coordinates is the flow of u and v, at scales that doubles hold and at those that
they do not.
"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from lib.gradual_rank.diagonal_heads import DiagonalHead, Quadratic, diagonal_head
from lib.gradual_rank.flow import (
    Event,
    LogCoordinates,
    Solver,
    event_table,
    log_flow,
    staged_flow,
    with_events,
    with_samples,
)
from lib.gradual_rank.tasks import gaussian_pair, gaussian_sequences
from lib.training.devices import generator
from lib.training.stiff_flow import StalledError, Step, crossing_of

FINE = {"rtol": 1e-7, "atol": 1e-7}
USUAL = {"rtol": 1e-6, "atol": 1e-4}
STAGED = {**USUAL, "threshold": 1e-2, "stationary": 1e-6, "max_events": 100}
H = torch.tensor([[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], dtype=torch.float64)
MINIMUM = torch.tensor([1, 0.8, -0.2], dtype=torch.float64)
TIMES = [1.0309, 1.4614, 2.8226, 67.3387]  # of the limit
U, V = np.random.default_rng(0).standard_normal((2, 3))


def quadratic():
    return Quadratic(H, MINIMUM)


def head():
    g = torch.Generator().manual_seed(0)
    X, w = (torch.randn(*size, generator=g, dtype=torch.float64) for size in ((20, 4, 2), (4, 4)))
    return DiagonalHead(X, diagonal_head(X, w[0] * w[1])), w[2].numpy(), w[3].numpy()


def brute_force(loss, u, v, end):
    """(u, v) at a time by equation (4) as it stands, with an explicit solver."""

    def rate(_, uv):
        u, v = np.split(uv, 2)
        g = loss.gradient(torch.from_numpy(u * v)).numpy()
        return np.concatenate([v * g, u * g])

    found = solve_ivp(
        rate, (0, end), np.concatenate([u, v]), method="DOP853", rtol=1e-9, atol=1e-12
    )
    return np.split(found.y[:, -1], 2)


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


def test_log_coordinates_hold_the_point():
    start = LogCoordinates.of(U, V, math.log(0.1))
    np.testing.assert_allclose(start.products(), 0.01 * U * V, rtol=1e-12)
    np.testing.assert_allclose(np.exp(start.log_c), 0.01 * np.abs(U**2 - V**2), rtol=1e-12)
    found = start.weights(start.y, np.sign(U + V), np.sign(U - V))
    np.testing.assert_allclose(found, (0.1 * U, 0.1 * V), rtol=1e-12)
    step = 1e-6
    slope = (start.products(start.y + step) - start.products(start.y - step)) / (2 * step)
    np.testing.assert_allclose(start.speed(start.products()), slope, rtol=1e-8)


@pytest.mark.parametrize("log10_scale", [0, -4, -32, -160, -1000])
def test_the_level_is_where_the_product_is_reached(log10_scale):
    start = LogCoordinates.of(U, V, log10_scale * math.log(10))
    for sign in (1, -1):
        np.testing.assert_allclose(
            start.products(sign * start.level(1e-2)), sign * 1e-2, rtol=1e-10
        )


def test_a_start_with_equal_weights_is_refused():
    with pytest.raises(ValueError, match="to differ"):
        LogCoordinates.of(np.array([1.0, 2.0]), np.array([0.5, -2.0]))


def test_the_product_is_capped_and_not_infinite_far_out():
    start = LogCoordinates.of(U, V)
    assert np.isfinite(start.products(np.full(3, 1e5))).all()


@pytest.mark.parametrize("end", [1.0, 8.0])
def test_the_flow_is_that_of_u_and_v_and_conserves_u2_minus_v2(end):
    for loss, u, v in ((quadratic(), U, V), head()):
        start = LogCoordinates.of(u, v, math.log(1e-2))
        *_, last = log_flow(loss, start, end, **FINE)
        wanted = brute_force(loss, 1e-2 * u, 1e-2 * v, end)
        np.testing.assert_allclose(
            np.abs(wanted[0] ** 2 - wanted[1] ** 2), np.exp(start.log_c), rtol=1e-4
        )
        found = start.weights(last.state, np.sign(u + v), np.sign(u - v))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-7)
        assert last.time == end


def test_a_cheaper_matrix_changes_the_steps_and_not_the_flow():
    loss, u, v = head()
    start = LogCoordinates.of(u, v, math.log(1e-2))
    *_, exact = log_flow(loss, start, 10.0, **FINE)
    few = DiagonalHead(loss.X[:8], loss.Y[:8])
    *_, cheap = log_flow(loss, start, 10.0, curvature=few, **FINE)
    np.testing.assert_allclose(cheap.state, exact.state, rtol=1e-5)


def test_products_that_are_not_active_are_held_at_zero():
    active = np.array([True, False, False])
    start = LogCoordinates.of(U, V)
    *_, last = log_flow(quadratic(), start, 50.0, active=active, begin=10.0, **FINE)
    assert last.time == 50
    p = np.where(active, start.products(last.state), 0)
    np.testing.assert_allclose(p, [0.87, 0, 0], rtol=1e-6)  # g_0 = 0 there


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


@pytest.mark.parametrize(("log10_scale", "bar"), [(-4, 6e-3), (-8, 3e-3), (-32, 1e-3)])
def test_the_finite_scale_prediction_is_that_of_the_flow(log10_scale, bar):
    log_scale = log10_scale * math.log(10)
    start = LogCoordinates.of(U, V, log_scale)
    measured = [found for found in crossings(quadratic(), start, -70 * log_scale) if found[2]]
    events = list(staged_flow(quadratic(), start, -70 * log_scale, **STAGED))
    predicted = [event for event in events if event.rises]
    assert [event.coordinate for event in predicted] == [i for _, i, _ in measured] == [2, 0, 1, 2]
    assert [event.sign for event in predicted] == [1, 1, 1, -1]
    np.testing.assert_allclose(
        [event.time for event in predicted], [time for time, _, _ in measured], rtol=bar
    )
    assert [(event.coordinate, event.sign) for event in events if not event.rises] == [(2, 1)]


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


def test_a_coordinate_beyond_the_threshold_at_the_start_is_on_the_support_at_time_0():
    start = LogCoordinates.of(np.array([1.0, 0.01, 0.01]), np.array([0.5, 0.02, 0.005]))
    for events in (staged_flow(quadratic(), start, 200.0, **STAGED), measured_events(start, 200.0)):
        first, *later = events
        assert (first.time, first.coordinate, first.sign, first.rises) == (0.0, 0, 1, True)
        assert 1 in [event.coordinate for event in later if event.rises and event.time > 0]


def measured_events(start, end):
    flow = log_flow(quadratic(), start, end, **USUAL)
    return [
        event for _, events in with_events(flow, start, STAGED["threshold"]) for event in events
    ]


def test_what_is_predicted_and_what_is_measured_rises_and_falls_at_the_same_levels():
    log_scale = -32 * math.log(10)
    start = LogCoordinates.of(U, V, log_scale)
    measured = measured_events(start, -70 * log_scale)
    predicted = list(staged_flow(quadratic(), start, -70 * log_scale, **STAGED))
    assert [(e.coordinate, e.sign, e.rises) for e in measured] == [
        (2, 1, True),
        (0, 1, True),
        (1, 1, True),
        (2, 1, False),
        (2, -1, True),
    ]
    assert [(e.coordinate, e.sign, e.rises) for e in predicted] == [
        (e.coordinate, e.sign, e.rises) for e in measured
    ]
    np.testing.assert_allclose([e.time for e in predicted], [e.time for e in measured], rtol=1e-3)


def test_what_lingers_at_the_threshold_is_counted_once_and_what_turns_within_a_step_twice():
    start = LogCoordinates(np.zeros(2), np.zeros(2))
    high, low = 1.01 * start.level(0.1), 0.99 * start.level(0.1)
    places = [0 * high, high, low, high, -high]
    path = [
        Step(float(k), k + 1.0, a, b, lambda t, k=k, a=a, b=b: a + (t - k) * (b - a))
        for k, (a, b) in enumerate(itertools.pairwise(places))
    ]
    events = [
        event
        for _, events in with_events(path, start, 0.1)
        for event in events
        if event.coordinate == 0
    ]
    assert [(event.sign, event.rises) for event in events] == [(1, True), (1, False), (-1, True)]
    assert [int(event.time) for event in events] == [0, 3, 3]
    assert events[1].time < events[2].time


@pytest.mark.parametrize(
    ("H", "minimum", "wanted"),
    [
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1, 0.003, -0.008], [(0, True)]),
        (
            [[1, 0.5, 0], [0.5, 0.3, 0], [0, 0, 1]],
            [0.004, 1, 0],
            [(0, True), (1, True), (0, False)],
        ),
    ],
    ids=["never above the threshold", "above it until another joins"],
)
def test_what_rests_below_the_threshold_is_predicted_to_rise_as_often_as_in_the_flow(
    H, minimum, wanted
):
    loss = Quadratic(
        torch.tensor(H, dtype=torch.float64), torch.tensor(minimum, dtype=torch.float64)
    )
    start = LogCoordinates.of(U, V, -8 * math.log(10))
    flow = with_events(log_flow(loss, start, 2e4, **USUAL), start, 1e-2)
    measured = [event for _, events in flow for event in events]
    predicted = list(staged_flow(loss, start, 2e4, **STAGED))
    for events in (measured, predicted):
        assert [(event.coordinate, event.rises) for event in events] == wanted
    np.testing.assert_allclose([e.time for e in predicted], [e.time for e in measured], rtol=1e-2)


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


def test_where_nothing_moves_nothing_is_predicted():
    still = Quadratic(H, torch.zeros(3, dtype=torch.float64))
    start = LogCoordinates.of(U, V, -32 * math.log(10))
    assert list(staged_flow(still, start, 1e9, **STAGED)) == []


def test_predictions_end_at_the_end_and_at_the_most_events():
    log_scale = -32 * math.log(10)
    start = LogCoordinates.of(U, V, log_scale)
    assert len(list(staged_flow(quadratic(), start, -2 * log_scale, **STAGED))) == 2
    with pytest.raises(StalledError, match="at most 2 events"):
        list(staged_flow(quadratic(), start, -70 * log_scale, **{**STAGED, "max_events": 2}))


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


def test_samples_are_the_states_at_the_times_and_the_start_at_zero():
    def step(before, time):
        return Step(
            before, time, np.array([before]), np.array([time]), lambda t: np.array([10 * t])
        )

    start, times = np.array([7.0]), [0.0, 0.5, 0.5, 2.0, 3.5]
    flow = [step(0.0, 1.0), step(1.0, 1.5), step(1.5, 3.0)]
    found = [
        [(k, float(y[0])) for k, y in states] for _, states in with_samples(flow, start, times)
    ]
    assert found == [[(0, 7.0), (1, 5.0), (2, 5.0)], [], [(3, 20.0)]]
    assert [one for one, _ in with_samples(flow, start, [])] == flow


def test_a_table_of_events_has_its_types_without_rows_too():
    cell = {"seed": int, "source": str}
    rows = [{"seed": 3, "source": "flow", **vars(Event(0.5, 2, -1, True))}]
    found, none = (event_table(of, **cell) for of in (rows, []))
    assert found.to_dict("records") == [
        {"seed": 3, "source": "flow", "time": 0.5, "coordinate": 2, "sign": -1, "rises": True}
    ]
    assert none.dtypes.to_dict() == found.dtypes.to_dict()
    assert len(none) == 0
