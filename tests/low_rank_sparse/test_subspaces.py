"""Directions agree with what defines them, and are invariant where they should be."""

import pytest
import torch

from lib.low_rank_sparse.subspaces import alignment, energy_inside, leading_directions, place


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_directions_of_a_known_matrix():
    left, right = torch.linalg.qr(random(8, 2)).Q, torch.linalg.qr(random(5, 2, seed=1)).Q
    U, V = leading_directions(
        left @ torch.diag(torch.tensor([3.0, 2.0]).double()) @ right.T + 1e-3 * random(8, 5), 2
    )
    assert alignment(U, left.T) > 1 - 1e-5
    assert alignment(V, right.T) > 1 - 1e-5


def test_alignment_is_one_inside_and_zero_outside_whatever_the_basis():
    Q = torch.linalg.qr(random(10, 5)).Q
    span = random(3, 3, seed=2) @ Q[:, :3].T
    torch.testing.assert_close(alignment(Q[:, :2], span), torch.tensor(1.0).double())
    torch.testing.assert_close(alignment(Q[:, 3:], span), torch.tensor(0.0).double())
    assert float(alignment(Q[:, 2:4], span)) == pytest.approx(0.5)


def test_random_directions_align_as_the_dimensions_say():
    found = [
        alignment(torch.linalg.qr(random(20, 2, seed=s)).Q, random(3, 20, seed=1000 + s))
        for s in range(400)
    ]
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


def test_the_place_of_an_update_is_its_alignment_and_energy():
    update, span = random(7, 4), random(2, 7, seed=1)
    leading, _ = leading_directions(update, 2)
    wanted = {
        "alignment": float(alignment(leading, span)),
        "energy": float(energy_inside(update, span)),
    }
    first, second = place(update, {"a": span, "b": update.T})
    assert first == wanted | {"span": "a", "dimension": 7}
    assert second == {
        "span": "b",
        "dimension": 7,
        "alignment": pytest.approx(1),
        "energy": pytest.approx(1),
    }
