"""How directions and updates lie to a span, whatever its basis."""

import pytest
import torch

from lib.low_rank_sparse.subspaces import alignment, energy_inside


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_alignment_is_one_inside_and_zero_outside_whatever_the_basis():
    Q = torch.linalg.qr(random(10, 5)).Q
    span = random(3, 3, seed=2) @ Q[:, :3].T
    places = {1.0: Q[:, :2], 0.0: Q[:, 3:], 0.5: Q[:, 2:4]}
    for wanted, directions in places.items():
        assert float(alignment(directions, span)) == pytest.approx(wanted)


def test_the_energy_of_nothing_is_inside_every_span():
    assert energy_inside(torch.zeros(10, 6), random(2, 10)) == 1
