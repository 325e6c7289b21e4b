"""Update rules against torch.optim in float64 and numpy's SVD; what flows of them do to factors, as
the theory says.
"""

import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.optimizers import (
    TorchMuon,
    descend,
    descend_diagonal,
    polar_factors,
    signs,
    slopes,
    warmed_up,
)


def random_slopes(n_steps, *shape):
    """Gradients of two matrices at each of some steps, of very different lengths."""
    g = torch.Generator().manual_seed(3)
    return [
        {name: size * 10.0 ** (k % 3) * torch.randn(shape, generator=g, dtype=torch.float64)}
        | {"B": torch.randn(shape, generator=g, dtype=torch.float64)}
        for k in range(n_steps)
        for name, size in [("A", 1e-3)]
    ]


def by_torch(make, gradients):
    """The steps that an optimiser of torch takes from zero at rate one, when it is given minus
    these slopes.
    """
    weights = {name: torch.zeros_like(g).requires_grad_() for name, g in gradients[0].items()}
    optimizer, found = make(list(weights.values())), []
    for G in gradients:
        before = {name: w.detach().clone() for name, w in weights.items()}
        for name, w in weights.items():
            w.grad = -G[name]
        optimizer.step()
        found.append({name: w.detach() - before[name] for name, w in weights.items()})
    return found


@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (7, 4)])
def test_the_muon_of_torch_is_ours_to_the_rounding_of_bfloat16(shape):
    """Another order of the sums moves last digits, of which bfloat16 has eight bits."""
    gradients = random_slopes(4, *shape)
    rule = TorchMuon()
    wanted = by_torch(lambda w: torch.optim.Muon(w, lr=1.0, weight_decay=0.0), gradients)
    factor = math.sqrt(max(1, shape[0] / shape[1]))  # torch's for the shape
    for G, theirs in zip(gradients, wanted, strict=True):
        for name, step in rule(G).items():
            assert float((step - theirs[name] / factor).abs().max()) < 0.02
            assert float(step.abs().max()) > 0.3


def factorisation(target):
    """The loss of P Qᵀ against a target, ½ of the squares, and minus its gradients."""

    def loss_and_slopes(W):
        off = target - W["P"] @ W["Q"].mT
        return off.square().sum((-2, -1)) / 2, {"P": off @ W["Q"], "Q": off.mT @ W["P"]}

    return loss_and_slopes


@pytest.fixture
def modes():
    """A target of singular values 1, .5, .25 in random frames, and a random start at 1e-8."""
    g = torch.Generator().manual_seed(5)
    U, V = (
        torch.linalg.qr(torch.randn(3, 3, generator=g, dtype=torch.float64)).Q for _ in range(2)
    )
    target = U @ torch.diag(torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)) @ V.T
    return target, {
        name: 1e-8 * torch.randn(3, 3, generator=g, dtype=torch.float64) for name in "PQ"
    }


def course(rule, modes, rate, n_steps):
    target, start = modes
    steps = list(descend(factorisation(target), start, rule, [rate] * n_steps))
    sigma = torch.stack(
        [torch.linalg.svdvals(s.weights["P"] @ s.weights["Q"].T) for s in steps]
    ).numpy()
    return np.array([s.time for s in steps]), sigma


def test_under_muon_every_singular_value_is_tau_squared_until_it_is_done_the_smallest_first(modes):
    times, sigma = course(polar_factors, modes, 0.002, 550)
    for i, last in enumerate((1.0, 0.5, 0.25)):
        rising = times < 0.95 * math.sqrt(last)
        np.testing.assert_allclose(np.sqrt(sigma[rising, i]), times[rising], rtol=0, atol=0.005)
        assert sigma[-1, i] == pytest.approx(last, abs=0.01)


def test_under_gradient_descent_the_largest_rises_first_and_later_from_a_smaller_start(modes):
    times, sigma = course(slopes, modes, 0.1, 1000)
    begun = [float(times[np.argmax(sigma[:, i] > 0.1)]) for i in range(2)]
    assert begun[1] == pytest.approx(2 * begun[0], rel=0.15)  # the times are log(1/α) / σ
    target, start = modes
    later, sigma = course(slopes, (target, {name: w * 1e-4 for name, w in start.items()}), 0.1, 600)
    delay = later[np.argmax(sigma[:, 0] > 0.1)] - begun[0]
    assert delay == pytest.approx(math.log(1e4) * 0.1 / math.log(1.1), rel=0.02)


def test_under_sign_descent_of_a_diagonal_network_every_product_is_tau_squared():
    g = torch.Generator().manual_seed(1)
    target = torch.tensor([[0.9, -0.5, 0.3]], dtype=torch.float64)
    u, v = 1e-9 * torch.randn(2, 1, 3, generator=g, dtype=torch.float64)
    rates = warmed_up(1e-10, 1.05, 1e-3, 0.5)
    assert max(rates) == 1e-3
    assert 0.5 <= sum(rates) < 0.502
    for step in descend_diagonal(lambda p: target - p, u, v, signs, rates):
        p = (step.u * step.v)[0]
        torch.testing.assert_close(step.g, target - step.u * step.v)
        if step.time > 0.05:
            torch.testing.assert_close(
                p * target[0].sign(), torch.full_like(p, step.time**2), rtol=1e-3, atol=0
            )
