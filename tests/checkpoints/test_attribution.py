import math

import pytest
import torch

from lib.checkpoints.attribution import path_attribution


def quadratic(A, b):
    return lambda batch, W: (
        0.5 * (A * W["u"].square()).sum() + (b * W["v"]).sum() + batch * W["u"].sum() * W["v"].sum()
    )


@pytest.fixture
def case():
    random = torch.Generator().manual_seed(0)
    end = {name: torch.randn(3, 2, generator=random, dtype=torch.float64) for name in "uv"}
    updates = {name: torch.randn(3, 2, generator=random, dtype=torch.float64) for name in "uv"}
    A, b = torch.randn(2, 3, 2, generator=random, dtype=torch.float64)
    return end, updates, quadratic(A, b), A, b


def test_attributions_sum_to_the_drop_where_the_loss_is_quadratic(case):
    """The gradient is then linear along the path, and the midpoint rule is exact."""
    end, updates, loss, *_ = case
    W = {name: value.clone().requires_grad_() for name, value in end.items()}
    batches = [0.5, -1.5]
    earned = path_attribution(W, updates, batches, lambda batch: loss(batch, W), 1)
    begin = {name: end[name] - updates[name] for name in end}
    drop = sum(loss(batch, begin) - loss(batch, end) for batch in batches) / 2
    assert sum(earned.values()) == pytest.approx(float(drop), rel=1e-12)


def test_a_module_that_enters_linearly_earns_its_own_part(case):
    end, updates, loss, A, b = case
    W = {name: value.clone().requires_grad_() for name, value in end.items()}
    earned = path_attribution(W, updates, [0.0], lambda batch: loss(batch, W), 3)
    assert earned["v"] == pytest.approx(-float((b * updates["v"]).sum()))
    begin = end["u"] - updates["u"]
    assert earned["u"] == pytest.approx(
        float(0.5 * (A * (begin.square() - end["u"].square())).sum())
    )


def test_the_midpoint_rule_gains_two_orders_with_ten_times_the_points():
    W = {"w": torch.tensor([[1.5]], dtype=torch.float64, requires_grad=True)}
    updates = {"w": torch.tensor([[1.0]], dtype=torch.float64)}
    drop = math.exp(0.5) - math.exp(1.5)
    errors = []
    for n_points in (2, 20):
        earned = path_attribution(W, updates, [None], lambda _: W["w"].exp().sum(), n_points)["w"]
        errors.append(abs(earned - drop))
    assert errors[1] == pytest.approx(errors[0] / 100, rel=0.05)


def test_slopes_that_are_there_already_are_no_part_of_it(case):
    end, updates, loss, *_ = case
    found = []
    for before in (0.0, 3.0):
        W = {name: value.clone().requires_grad_() for name, value in end.items()}
        for parameter in W.values():
            parameter.grad = torch.full_like(parameter, before)
        found.append(path_attribution(W, updates, [1.0], lambda batch, W=W: loss(batch, W), 2))
        assert all(parameter.grad is None for parameter in W.values()), "none is held"
    assert found[0] == found[1]


def test_the_parameters_are_left_as_they_were_to_the_bit(case):
    end, updates, loss, *_ = case
    W = {name: value.clone().requires_grad_() for name, value in end.items()}
    path_attribution(W, updates, [1.0], lambda batch: loss(batch, W), 3)
    assert all(torch.equal(W[name], end[name]) for name in end)

    def fails(_):
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        path_attribution(W, updates, [1.0], fails, 3)
    assert all(torch.equal(W[name], end[name]) for name in end)
