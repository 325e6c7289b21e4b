"""Descent is the textbook's, moves what is named alone, and leaves what it is given as it was."""

from itertools import islice

import torch

from lib.training.gradient_descent import gradient_descent, last_and_fitted, until_rest


def parabola(weights, x):
    return (weights["w"] - x).square().sum() / 2, {"w": weights["w"] - x}


def test_descent_on_a_parabola_is_geometric():
    start = {"w": torch.tensor([1.0, 2.0], dtype=torch.float64), "fixed": torch.ones(1)}
    steps = list(
        gradient_descent(parabola, start, 0.1, [(torch.zeros(2, dtype=torch.float64),)] * 5)
    )
    assert [step.number for step in steps] == [0, 1, 2, 3, 4]
    for step in steps:
        torch.testing.assert_close(step.weights["w"], start["w"] * 0.9**step.number)
        torch.testing.assert_close(step.after["w"], start["w"] * 0.9 ** (step.number + 1))
        torch.testing.assert_close(step.loss, start["w"].square().sum() / 2 * 0.81**step.number)
        assert step.after["fixed"] is start["fixed"]
    assert start["w"].tolist() == [1, 2]


def test_every_matrix_that_is_named_moves_at_its_own_rate_without_end():
    start = {name: torch.tensor([2.0, 1.0], dtype=torch.float64) for name in "UVW"}

    def quadratic(weights):
        slopes = {"U": weights["U"], "V": 3 * weights["V"], "W": weights["W"]}
        return sum((slopes[name] * W).sum() / 2 for name, W in weights.items()), slopes

    for step in islice(gradient_descent(quadratic, start, {"W": 0.1, "V": 0.2}), 6):
        torch.testing.assert_close(step.weights["W"], 0.9**step.number * start["W"])
        torch.testing.assert_close(step.weights["V"], 0.4**step.number * start["V"])
        torch.testing.assert_close(step.gradients["V"], 3 * step.weights["V"])
        assert step.after["U"] is start["U"]


def test_steps_end_at_the_first_without_loss_after_which_all_is_at_rest():
    """The weights fall by one in each step; a batch has a loss above its own bar, all have none at
    3 and below.
    """

    def slope(weights, bar):
        return (weights["w"] - bar).clamp_min(0).sum(), {"w": torch.ones(1)}

    asked = []

    def at_rest(weights):
        asked.append(float(weights["w"]))
        return asked[-1] <= 3

    bars = [(torch.tensor([float(bar)]),) for bar in (0, 9, 0, 9, 9, 9, 9, 9, 9, 0)]
    steps = gradient_descent(slope, {"w": torch.tensor([9.0])}, 1.0, bars)
    assert [step.number for step in until_rest(steps, at_rest, 3)] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert asked == [7, 4, 1]  # after steps 1, 4 and 7: no oftener than every three
    again = gradient_descent(slope, {"w": torch.tensor([9.0])}, 1.0, bars)
    assert len(list(until_rest(again, lambda _: False, 1))) == len(bars)


def test_the_last_weights_and_the_first_step_below_a_level():
    start = {"w": torch.tensor([1.0], dtype=torch.float64)}

    def descent():  # of losses 1/2, 1/8, 1/32, 1/128
        return gradient_descent(parabola, start, 0.5, [(torch.zeros(1, dtype=torch.float64),)] * 4)

    for level, number in ((1.0, 0), (0.5, 1), (0.1, 2), (1 / 128, -1)):
        last, fitted = last_and_fitted(descent(), start, level)
        assert fitted == number
        assert last["w"].item() == 1 / 16
    assert last_and_fitted([], start, 1.0) == (start, -1)
