"""Gradient descent on diagonal weights: three arithmetics of one flow, and the one that loses its
way.
"""

import itertools

import pytest
import torch

from lib.files.files import InputError
from lib.gradual_rank.descent import descend, while_finite

H = torch.tensor([[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], dtype=torch.float64)
MINIMUM = torch.tensor([1, 0.8, -0.2], dtype=torch.float64)
U = torch.tensor([0.13, 0.64, 0.9], dtype=torch.float64)
V = torch.tensor([0.6, -0.3, -1.3], dtype=torch.float64)


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
