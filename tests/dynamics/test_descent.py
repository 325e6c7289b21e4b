"""Gradient descent takes the steps that it should, on the matrices that are named."""

from itertools import islice

import pytest
import torch

from lib.dynamics.descent import gradient_descent


def quadratic(weights):
    loss = sum(rate * w.square().sum() / 2 for rate, w in zip((1.0, 3.0), weights.values(), strict=True))
    return loss, {name: rate * w for rate, (name, w) in zip((1.0, 3.0), weights.items(), strict=True)}


@pytest.fixture
def start():
    return {"W": torch.ones(2, dtype=torch.float64), "V": torch.full((1,), 2.0, dtype=torch.float64)}


def test_a_quadratic_shrinks_by_its_factor_each_step(start):
    for state in islice(gradient_descent(quadratic, start, {"W": 0.1, "V": 0.2}), 6):
        torch.testing.assert_close(state.weights["W"], 0.9**state.step * start["W"])
        torch.testing.assert_close(state.weights["V"], 0.4**state.step * start["V"])
        torch.testing.assert_close(state.gradients["V"], 3 * state.weights["V"])


def test_what_is_not_named_does_not_move(start):
    *_, state = islice(gradient_descent(quadratic, start, {"V": 0.2}), 4)
    assert torch.equal(state.weights["W"], start["W"])
    assert not torch.equal(state.weights["V"], start["V"])


def test_the_first_state_is_the_start_and_states_keep(start):
    states = list(islice(gradient_descent(quadratic, start, {"W": 0.1, "V": 0.1}), 3))
    assert [state.step for state in states] == [0, 1, 2]
    assert torch.equal(states[0].weights["W"], torch.ones(2, dtype=torch.float64))
    assert torch.equal(start["W"], torch.ones(2, dtype=torch.float64))
    assert float(states[0].loss) == pytest.approx(7)
