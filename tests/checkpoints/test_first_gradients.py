"""Gradients of linear modules, and what an adapter has of them, on tiny models."""

import pytest
import torch

from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.first_gradients import factors_of, first_gradients, first_shares, learned
from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.models import small_model
from lib.checkpoints.texts import loss
from tests.checkpoints.checkpoints_made import SIZES, TEXT, windows

SCALING = 2.0


def model_of(kind):
    return small_model(kind, **SIZES, seed=1).double().train(False)


def adapter_of(kind):
    """A model, its batch, its gradients and the factors of an adapter that is not at its start."""
    live = model_of(kind)
    batch = {"input_ids": windows(TEXT)[:4]}
    gradients = first_gradients(live, batch, 2)
    names = dict.fromkeys(gradients, 3)
    config = lora_config(names, fan_in_fan_out=kind == "gpt2", scale=int(SCALING))
    adapted = with_adapter(live, config, 0).double()
    factors = factors_of(adapted, gradients)
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, B in factors.values():
            B.copy_(torch.randn(B.shape, generator=source, dtype=torch.double))
    return adapted, batch, gradients, factors


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_gradients_are_those_of_a_backward_pass_through_all_weights(kind):
    live = model_of(kind)
    batch = {"input_ids": windows(TEXT)[:4]}
    found = first_gradients(live, batch, 2)
    again = model_of(kind)
    loss(again, batch).backward()
    assert set(found) == set(linear_modules(again))
    for name, module in linear_modules(again).items():
        slope = module.weight.grad.T if stored_as_columns(module) else module.weight.grad
        torch.testing.assert_close(found[name].G, -slope)
        cut = found[name].U * found[name].sigma @ found[name].V.T
        whole = torch.linalg.svdvals(slope)
        assert (found[name].G - cut).norm().item() == pytest.approx(whole[2:].norm().item())
    assert not any(one.requires_grad for one in live.parameters())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_at_the_start_an_adapter_feels_the_gradient_through_its_a(kind):
    """Where B is zero its slope is -s G Aᵀ: the factors are those that the model has."""
    adapted, batch, gradients, factors = adapter_of(kind)
    with torch.no_grad():
        for _, B in factors.values():
            B.zero_()
    loss(adapted, batch).backward()
    for name, (A, B) in factors.items():
        assert B.grad is not None
        wanted = -SCALING * gradients[name].G @ A.T
        assert (B.grad - wanted).norm() < 1e-4 * wanted.norm()


def test_what_is_learned_and_where_it_lies_are_those_of_the_dense_update():
    _, _, gradients, factors = adapter_of("gpt2")
    for name, (A, B) in factors.items():
        update = (B @ A).detach()
        _, U, _, V = gradients[name]
        wanted = torch.diagonal(U.T @ (SCALING * update) @ V)
        torch.testing.assert_close(learned(factors[name], gradients[name], SCALING), wanted)
        u, _, vh = torch.linalg.svd(update)
        shares = [float(one.square().sum()) for one in (U.T @ u[:, 0], V.T @ vh[0])]
        assert first_shares(factors[name], gradients[name]) == pytest.approx(shares)
