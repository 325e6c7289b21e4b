"""Gradient descent on diagonal weights: three arithmetics of one flow, and the one that loses its
way.
"""

import itertools
import math

import pytest
import torch

from lib.files.files import InputError
from lib.gradual_rank.descent import State, descend, drift, lost, while_finite, with_crossings

H = torch.tensor([[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], dtype=torch.float64)
MINIMUM = torch.tensor([1, 0.8, -0.2], dtype=torch.float64)
U = torch.tensor([0.13, 0.64, 0.9], dtype=torch.float64)
V = torch.tensor([0.6, -0.3, -1.3], dtype=torch.float64)
LOG_1E32 = 32 * math.log(10)


def gradient(p):
    return (MINIMUM.to(p.dtype) - p) @ H.to(p.dtype)


def after(n_steps, scale, learning_rate, form, u=U, v=V):
    return next(
        itertools.islice(
            descend(gradient, scale * u, scale * v, learning_rate, form), n_steps, None
        )
    )


def weights(state, form):
    """u and v in any form."""
    if form == "plain":
        return state.first, state.second
    return (state.first + state.second) / 2, (state.first - state.second) / 2


def test_a_plain_step_is_a_step_of_gradient_descent():
    u, v = U.clone().requires_grad_(), V.clone().requires_grad_()
    off = u * v - MINIMUM
    (off @ H @ off / 2).backward()
    state = after(1, 1.0, 0.1, "plain")
    torch.testing.assert_close(state.first, (u - 0.1 * u.grad).detach(), rtol=1e-14, atol=0)
    torch.testing.assert_close(state.second, (v - 0.1 * v.grad).detach(), rtol=1e-14, atol=0)


def test_plain_and_factors_are_the_same_where_nothing_is_rounded_away():
    plain, factors = (after(300, 1e-4, 0.1, form) for form in ("plain", "factors"))
    assert plain.p.abs().max() > 0.1
    torch.testing.assert_close(plain.p, factors.p, rtol=1e-6, atol=1e-12)
    assert not lost(plain).any()


@pytest.mark.parametrize("form", ["plain", "factors", "exponential"])
def test_every_form_tends_to_the_same_flow(form):
    def at_time_6(learning_rate):
        return after(round(6 / learning_rate), 0.1, learning_rate, form).p

    finest = after(6000, 0.1, 1e-3, "exponential").p
    errors = [float((at_time_6(rate) - finest).abs().max()) for rate in (0.1, 0.05)]
    assert errors[1] < 0.05
    assert 0.4 < errors[1] / errors[0] < 0.6


def test_a_descent_that_overflows_ends_in_a_clear_error():
    states = while_finite(descend(gradient, U, V, 9.0, "plain"), "learning_rate")
    with pytest.raises(
        InputError, match=r"learning_rate: wanted a learning rate .*, got overflow at step \d+"
    ):
        list(itertools.islice(states, 100))


def test_the_exponential_form_alone_conserves_u2_minus_v2():
    drift, n_steps, rate = {}, 200, 0.1
    for form in ("plain", "factors", "exponential"):
        u, v = weights(after(n_steps, 0.1, rate, form), form)
        drift[form] = ((u**2 - v**2).abs().log() - (0.01 * (U**2 - V**2)).abs().log()).abs().max()
    assert drift["exponential"] < 1e-8
    states = itertools.islice(descend(gradient, 0.1 * U, 0.1 * V, rate, "factors"), n_steps)
    wanted = sum((1 - (rate * gradient(state.p)) ** 2).log() for state in states).abs().max()
    assert drift["factors"] == pytest.approx(float(wanted), rel=1e-8)
    assert drift["plain"] == pytest.approx(float(wanted), rel=1e-4)
    assert wanted > 0.05


def test_descents_side_by_side_are_descents_alone():
    rates = torch.tensor([[0.1], [0.2]], dtype=torch.float64)
    both = after(50, 0.1, rates, "plain", torch.stack([U, V]), torch.stack([V, U - 1]))
    for k, (u, v, rate) in enumerate([(U, V, 0.1), (V, U - 1, 0.2)]):
        torch.testing.assert_close(
            both.p[k], after(50, 0.1, rate, "plain", u, v).p, rtol=1e-12, atol=1e-15
        )


def first_negative(form, dtype, rate=0.3, until=72):
    """When the third product falls below -0.01, and when the detector first speaks, over log(1 /
    init_scale).
    """
    detected = None
    for state in descend(gradient, (1e-32 * U).to(dtype), (1e-32 * V).to(dtype), rate, form):
        time = state.step * rate / LOG_1E32
        if state.p[2] < -1e-2:
            return time, detected, state
        if time > until:
            break
        if detected is None and state.step % 100 == 0 and lost(state).any():
            detected = time
    return None, detected, state


@pytest.mark.slow
def test_from_1e_32_plain_descent_misses_a_coordinate_that_comes_back_and_the_detector_says_so():
    time, detected, state = first_negative("plain", torch.float64)
    assert time is None
    assert lost(state).tolist() == [False, False, True]
    assert detected < 40  # long before the activation at 67.3 that does not come
    torch.testing.assert_close(
        state.p, torch.tensor([0.87, 0.67, 0], dtype=torch.float64), rtol=1e-6, atol=1e-6
    )


@pytest.mark.slow
def test_from_1e_32_the_exponential_form_finds_it_in_time():
    time, _, _ = first_negative("exponential", torch.float64)
    assert time == pytest.approx(67.3387, rel=0.02)  # 1 / log(1 / init_scale) away from the limit


def test_what_lingers_at_the_threshold_rises_and_falls_once():
    path = [[0.0, 2.0], [1.0, 1.0], [0.6, -0.6], [-1.2, 0.4], [0.5, 0.49]]
    states = [State(k, U[:2], V[:2], torch.tensor(p), U[:2]) for k, p in enumerate(path)]
    found = [
        (s.step, above.tolist(), changed.tolist())
        for s, above, changed in with_crossings(states, 1.0)
    ]
    assert found == [
        (0, [False, True], [False, True]),
        (1, [True, True], [True, False]),
        (2, [True, True], [False, False]),
        (3, [True, False], [False, True]),
        (4, [True, False], [False, False]),
    ]


@pytest.mark.parametrize("form", ["plain", "factors", "exponential"])
def test_the_drift_is_the_largest_change_of_the_logarithm_of_c(form):
    assert drift(after(0, 1.0, 0.1, form), form, U, V).item() == pytest.approx(0, abs=1e-15)
    state = after(7, 1.0, 0.1, form)
    u, v = weights(state, form)
    wanted = ((u**2 - v**2).abs().log() - (U**2 - V**2).abs().log()).abs().max().item()
    assert drift(state, form, U, V).item() == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    stuck = State(0, torch.ones(3), torch.ones(3), torch.ones(3), torch.ones(3))
    assert drift(stuck, "plain", U, V).item() == math.inf
