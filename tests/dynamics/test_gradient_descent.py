"""Descent is the textbook's, moves what is named alone, and leaves what it is given as it was."""

from itertools import islice

import pytest
import torch

from lib.dynamics.gradient_descent import compliant_descent, descent_failures, gradient_descent


def parabola(weights, x):
    return (weights["w"] - x).square().sum() / 2, {"w": weights["w"] - x}


def quadratic(weights):
    rates = {"W": 1.0, "V": 3.0}
    loss = torch.stack([rate * weights[name].square().sum() / 2 for name, rate in rates.items()]).sum()
    return loss, {name: rate * weights[name] for name, rate in rates.items()}


@pytest.fixture
def start():
    return {"W": torch.ones(2, dtype=torch.float64), "V": torch.full((1,), 2.0, dtype=torch.float64)}


def test_descent_on_a_parabola_is_geometric():
    start = {"w": torch.tensor([1.0, 2.0], dtype=torch.float64), "fixed": torch.ones(1)}
    steps = list(gradient_descent(parabola, start, 0.1, [(torch.zeros(2, dtype=torch.float64),)] * 5))
    assert [step.number for step in steps] == [0, 1, 2, 3, 4]
    for step in steps:
        torch.testing.assert_close(step.weights["w"], start["w"] * 0.9**step.number)
        torch.testing.assert_close(step.after["w"], start["w"] * 0.9 ** (step.number + 1))
        torch.testing.assert_close(step.loss, start["w"].square().sum() / 2 * 0.81**step.number)
        assert step.after["fixed"] is start["fixed"]
    assert start["w"].tolist() == [1, 2]


def test_it_is_torchs_sgd():
    g = torch.Generator().manual_seed(0)
    batches = [(torch.randn(3, generator=g),) for _ in range(6)]
    w = torch.zeros(3, requires_grad=True)
    rule = torch.optim.SGD([w], lr=0.3)
    for step, batch in zip(gradient_descent(parabola, {"w": torch.zeros(3)}, 0.3, batches), batches, strict=True):
        rule.zero_grad()
        parabola({"w": w}, *batch)[0].backward()
        rule.step()
        torch.testing.assert_close(step.after["w"], w.detach())


def test_every_matrix_moves_at_its_own_rate_without_end(start):
    for step in islice(gradient_descent(quadratic, start, {"W": 0.1, "V": 0.2}), 6):
        torch.testing.assert_close(step.weights["W"], 0.9**step.number * start["W"])
        torch.testing.assert_close(step.weights["V"], 0.4**step.number * start["V"])
        torch.testing.assert_close(step.gradients["V"], 3 * step.weights["V"])


def test_what_is_not_named_does_not_move(start):
    *_, step = islice(gradient_descent(quadratic, start, {"V": 0.2}), 4)
    assert torch.equal(step.after["W"], start["W"])
    assert not torch.equal(step.after["V"], start["V"])


def test_the_first_step_begins_at_the_start_and_steps_keep(start):
    steps = list(islice(gradient_descent(quadratic, start, 0.1), 3))
    assert torch.equal(steps[0].weights["W"], torch.ones(2, dtype=torch.float64))
    assert torch.equal(start["W"], torch.ones(2, dtype=torch.float64))
    assert float(steps[0].loss) == pytest.approx(7)


def test_no_batch_is_no_step():
    assert list(gradient_descent(parabola, {"w": torch.zeros(1)}, 0.1, [])) == []


def quartic(weights):
    """x^4 / 4, whose curvature 3 x^2 is largest where |x| is."""
    x = weights["x"]
    return (x**4).sum() / 4, {"x": x**3}


def descend_quartic(curvature, **changed):
    settings = {"spare": 0.01, "n_samples": 4, "max_steps": 1000, "max_repeats": 20} | changed
    start = {"x": torch.tensor([2.0], dtype=torch.float64)}
    return compliant_descent(quartic, start, ("x",), lambda weights: float(weights["x"]) < 0.5, curvature, **settings)


def test_a_descent_whose_curvature_falls_takes_steps_of_the_inverse_of_the_first():
    found = descend_quartic(lambda weights: 3 * float(weights["x"]) ** 2)
    assert found.initial == found.largest == 12
    assert found.step_size == pytest.approx(1 / (1.01 * 12))
    assert found.n_failures == 0
    assert float(found.steps[-1].weights["x"]) < 0.5 <= float(found.steps[-2].weights["x"])


def test_a_descent_is_repeated_until_its_step_fits_the_curvature_along_all_of_it():
    def rising(weights):
        return 12 + 20 * (2 - float(weights["x"]))

    found = descend_quartic(rising, spare=0.3)
    assert found.initial == 12
    assert found.largest >= max(rising(step.weights) for step in found.steps)
    assert found.step_size <= 1 / found.largest
    with pytest.raises(ArithmeticError, match="wanted a step size that fits the curvature, got none in 1 descents"):
        descend_quartic(rising, spare=0.3, max_repeats=1)


def test_a_descent_ends_after_as_many_steps_as_it_may_take():
    assert descend_quartic(lambda _: 1000.0, max_steps=7).steps[-1].number == 7


def test_steps_that_descend_less_than_the_lemma_says_are_failures():
    start = {"w": torch.ones(1, dtype=torch.float64)}
    batches = [(torch.zeros(1, dtype=torch.float64),)] * 4
    for rate, failures in ((0.5, 0), (1.0, 0), (1.5, 3)):  # the curvature is 1
        steps = list(gradient_descent(parabola, start, rate, batches))
        assert descent_failures(steps, ("w",), rate) == failures
