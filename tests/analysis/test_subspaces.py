"""Energies and directions agree with what defines them, and are invariant where they should be."""

import pytest
import torch

from lib.analysis.subspaces import (
    alignment,
    energy_inside,
    leading_directions,
    leading_energy,
    nuclear_tail,
)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_energy_and_tail_of_known_values():
    sigma = torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(leading_energy(sigma, 2), torch.tensor([25 / 30, 1.0]))
    torch.testing.assert_close(nuclear_tail(sigma, 2), torch.tensor([0.3, 0.0]))


def test_many_equal_small_values_weigh_little_in_energy_and_much_in_the_nuclear_tail():
    """The trap of the paper's sum of trailing singular values: 12 values of a tenth."""
    sigma = torch.tensor([1.0, 0.4, *[0.045] * 12])
    assert leading_energy(sigma, 2) > 0.97
    assert nuclear_tail(sigma, 2) > 0.27


def test_leading_energy_is_what_the_best_approximation_keeps():
    W = random(9, 6)
    left, _ = leading_directions(W, 2)
    kept = (left.T @ W).square().sum() / W.square().sum()
    torch.testing.assert_close(leading_energy(torch.linalg.svdvals(W), 2), kept)


def test_directions_of_a_known_matrix():
    left, right = torch.linalg.qr(random(8, 2)).Q, torch.linalg.qr(random(5, 2, seed=1)).Q
    U, V = leading_directions(left @ torch.diag(torch.tensor([3.0, 2.0]).double()) @ right.T + 1e-3 * random(8, 5), 2)
    assert alignment(U, left.T) > 1 - 1e-5
    assert alignment(V, right.T) > 1 - 1e-5


def test_alignment_is_one_inside_and_zero_outside_whatever_the_basis():
    Q = torch.linalg.qr(random(10, 5)).Q
    span = random(3, 3, seed=2) @ Q[:, :3].T
    torch.testing.assert_close(alignment(Q[:, :2], span), torch.tensor(1.0).double())
    torch.testing.assert_close(alignment(Q[:, 3:], span), torch.tensor(0.0).double())
    assert float(alignment(Q[:, 2:4], span)) == pytest.approx(0.5)


def test_random_directions_align_as_the_dimensions_say():
    found = [alignment(torch.linalg.qr(random(20, 2, seed=s)).Q, random(3, 20, seed=1000 + s)) for s in range(400)]
    assert float(torch.stack(found).mean()) == pytest.approx(3 / 20, rel=0.05)


def test_energy_inside_a_span_is_one_inside_and_for_nothing():
    Q = torch.linalg.qr(random(10, 4)).Q
    span = Q[:, :2].T
    inside, outside = Q[:, :2] @ random(2, 6), Q[:, 2:] @ random(2, 6)
    torch.testing.assert_close(energy_inside(inside, span), torch.tensor(1.0).double())
    torch.testing.assert_close(energy_inside(outside, span), torch.tensor(0.0).double())
    share = inside.square().sum() / (inside + outside).square().sum()
    torch.testing.assert_close(energy_inside(inside + outside, span), share)
    assert energy_inside(torch.zeros(10, 6), span) == 1
