"""What flows conserve: the difference of squares under gradient flow, of roots under Muon's of
aligned weights.
"""

import pytest
import torch

from lib.gradual_rank.growth import changes
from lib.gradual_rank.optimizers import descend, polar_factors, slopes


@pytest.fixture
def draw():
    g = torch.Generator().manual_seed(4)
    return lambda *shape: torch.randn(shape, generator=g, dtype=torch.float64)


def after(start, target, rule, rate, n_steps):
    """Of the factorisation of a target, two of them side by side as the products."""

    def loss_and_slopes(W):
        P, Q = W["factors"]
        G = target - P @ Q.mT
        return G.square().sum(), {"factors": torch.stack([G @ Q, G.mT @ P])}

    *_, last = descend(loss_and_slopes, {"factors": start}, rule, [rate] * n_steps)
    return last.weights["factors"]


def test_gradient_flow_keeps_the_difference_of_squares_and_not_that_of_roots(draw):
    start, target = torch.tensor([0.5, 0.2])[:, None, None, None] * draw(2, 2, 3, 3), draw(2, 3, 3)
    off = [changes(start, after(start, target, slopes, 1 / n, n), ("A", "B")) for n in (1000, 2000)]
    for name in "AB":
        assert float(off[0][f"square_change_{name}"]) < 0.003
        assert float(
            off[0][f"square_change_{name}"] / off[1][f"square_change_{name}"]
        ) == pytest.approx(2, rel=0.05)
        assert float(off[0][f"root_change_{name}"]) > 0.02


def test_muon_keeps_the_difference_of_roots_of_aligned_weights_and_not_that_of_others(draw):
    U, V, R = (torch.linalg.qr(draw(3, 3)).Q for _ in range(3))
    scales = torch.tensor([[0.3, 0.5, 0.7], [0.1, 0.6, 0.2]], dtype=torch.float64)
    aligned = torch.stack([U @ torch.diag(scales[0]) @ R.T, V @ torch.diag(scales[1]) @ R.T])[
        :, None
    ]
    target = (U @ torch.diag(torch.tensor([3.0, 2.0, 1.5], dtype=torch.float64)) @ V.T)[None]
    found = changes(aligned, after(aligned, target, polar_factors, 1e-3, 300), ("A",))
    assert float(found["root_change_A"]) < 1e-10
    assert float(found["square_change_A"]) > 0.05
    other = 0.3 * draw(2, 1, 3, 3)
    found = changes(other, after(other, target, polar_factors, 1e-3, 300), ("A",))
    assert float(found["root_change_A"]) > 0.02
