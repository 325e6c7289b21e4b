"""Descent is the textbook's, leaves what it is given alone, and yields what came before each update."""

import torch

from lib.dynamics.gradient_descent import gradient_descent


def loss_gradient(weights, x):
    return (weights["w"] - x).square().sum() / 2, {"w": weights["w"] - x}


def test_descent_on_a_parabola_is_geometric():
    start = {"w": torch.tensor([1.0, 2.0], dtype=torch.float64), "fixed": torch.ones(1)}
    zero = torch.zeros(2, dtype=torch.float64)
    states = list(gradient_descent(loss_gradient, start, [(zero,)] * 5, 0.1))
    assert [step for step, _, _ in states] == [1, 2, 3, 4, 5]
    for step, loss, weights in states:
        torch.testing.assert_close(weights["w"], start["w"] * 0.9**step)
        torch.testing.assert_close(loss, start["w"].square().sum() / 2 * 0.81 ** (step - 1))
        assert weights["fixed"] is start["fixed"]
    assert start["w"].tolist() == [1, 2]


def test_it_is_torchs_sgd():
    g = torch.Generator().manual_seed(0)
    batches = [(torch.randn(3, generator=g),) for _ in range(6)]
    w = torch.zeros(3, requires_grad=True)
    rule = torch.optim.SGD([w], lr=0.3)
    for (_, _, weights), batch in zip(
        gradient_descent(loss_gradient, {"w": torch.zeros(3)}, batches, 0.3), batches, strict=True
    ):
        rule.zero_grad()
        loss_gradient({"w": w}, *batch)[0].backward()
        rule.step()
        torch.testing.assert_close(weights["w"], w.detach())


def test_no_batch_is_no_step():
    assert list(gradient_descent(loss_gradient, {"w": torch.zeros(1)}, [], 0.1)) == []
