"""Update rules: torch's Muon, and what flows of others do to two factors, as the theory says."""

import pytest
import torch

from lib.gradual_rank.growth import changes
from lib.gradual_rank.optimizers import TorchMuon, descend, polar_factors, slopes


@pytest.fixture
def draw():
    g = torch.Generator().manual_seed(4)
    return lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64)


def test_the_muon_of_torch_is_ours_to_the_rounding_of_bfloat16(draw):
    """Another order of the sums moves last digits, of which bfloat16 has eight bits."""
    weights = {name: torch.zeros(6, 6).double().requires_grad_() for name in "AB"}
    theirs, ours = torch.optim.Muon(weights.values(), lr=1.0, weight_decay=0.0), TorchMuon()
    for size in (1e-3, 1e-2, 1e-1, 1e-3):
        G = {"A": size * draw(6, 6), "B": draw(6, 6)}
        before = {name: w.detach().clone() for name, w in weights.items()}
        for name, w in weights.items():
            w.grad = -G[name]
        theirs.step()
        for name, step in ours(G).items():
            off = weights[name].detach() - before[name] - step
            assert off.abs().max() < 0.02
            assert step.abs().max() > 0.3


def after(start, target, rule, rate, n_steps):
    """Two factors of a target, side by side, after some steps."""

    def loss_and_slopes(W):
        P, Q = W["factors"]
        G = target - P @ Q.mT
        return G.square().sum(), {"factors": torch.stack([G @ Q, G.mT @ P])}

    *_, last = descend(loss_and_slopes, {"factors": start}, rule, [rate] * n_steps)
    return last.weights["factors"]


def diagonal(*values):
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def test_gradient_flow_keeps_the_difference_of_squares_and_not_that_of_roots(draw):
    start, target = 0.5 * draw(2, 1, 3, 3), draw(1, 3, 3)
    off = [changes(start, after(start, target, slopes, 1 / n, n), "A") for n in (1000, 2000)]
    squares = [float(one["square_change_A"]) for one in off]
    assert squares[0] < 0.003
    assert squares[0] / squares[1] == pytest.approx(2, rel=0.05)
    assert float(off[0]["root_change_A"]) > 0.02


def test_muon_keeps_the_difference_of_roots_of_aligned_weights_and_not_that_of_others(draw):
    U, V, R = torch.linalg.qr(draw(3, 3, 3)).Q
    aligned = torch.stack([U @ diagonal(0.3, 0.5, 0.7) @ R.T, V @ diagonal(0.1, 0.6, 0.2) @ R.T])
    target = U @ diagonal(3, 2, 1.5) @ V.T
    kept, lost = (
        changes(start, after(start, target, polar_factors, 1e-3, 300), "A")
        for start in (aligned[:, None], 0.3 * draw(2, 1, 3, 3))
    )
    assert float(kept["root_change_A"]) < 1e-10
    assert float(kept["square_change_A"]) > 0.05
    assert float(lost["root_change_A"]) > 0.02
