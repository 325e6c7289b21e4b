"""Several trainings as one are those alone: tensors, batches, losses and gradients."""

import pytest
import torch

from lib.training.stacked import Losses, apart, groups, joined, together


def parts(n):
    draw = torch.Generator().manual_seed(0)
    return [{"A": torch.randn(4, 3, generator=draw), "step": torch.tensor(7.0)} for _ in range(n)]


@pytest.mark.parametrize("n", [1, 3])
def test_tensors_are_put_together_and_apart(n):
    made = parts(n)
    whole = together(made)
    assert whole["A"].shape == ((3, 4, 3) if n == 3 else (4, 3))
    assert whole["step"].shape == ()
    for found, wanted in zip(apart(whole, n), made, strict=True):
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("n", [1, 3])
def test_each_loss_and_its_gradient_are_those_alone(n):
    made, draw = parts(n), torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(5, 4, generator=draw), torch.randn(5, 3, generator=draw)) for _ in range(n)
    ]

    def loss(weights, X, y):
        return ((torch.tanh(X @ weights["A"]) - y) ** 2).mean()

    whole = {"A": together(made)["A"].requires_grad_()}
    losses = Losses(loss, n)
    [batch] = joined([[one] for one in batches])
    assert losses.means().isnan().all()
    for _ in range(2):
        whole["A"].grad = None
        losses(whole, *batch).backward()
    means = losses.means().reshape((n,))
    assert not losses.tally.any()
    for i, (part, (X, y)) in enumerate(zip(made, batches, strict=True)):
        A = part["A"].requires_grad_()
        value = loss({"A": A}, X, y)
        value.backward()
        torch.testing.assert_close(means[i], value.detach())
        torch.testing.assert_close(whole["A"].grad.reshape(n, 4, 3)[i], A.grad)


def test_what_compiles_is_the_loss_of_all():
    losses = Losses(
        lambda weights, x: weights["A"].sum() * x,
        2,
        wrap=lambda each: lambda *given: 3 * each(*given),
    )
    whole = {"A": torch.tensor([[1.0], [2.0]])}
    assert losses(whole, torch.tensor([1.0, 10.0])).item() == 63
    assert losses(whole, torch.tensor([2.0, 20.0])).item() == 126
    assert losses.means().tolist() == [4.5, 90]


def test_a_group_has_one_rule_and_a_largest_size():
    assert groups("aAbBcCd", str.isupper, 2) == [["a", "b"], ["c", "d"], ["A", "B"], ["C"]]
