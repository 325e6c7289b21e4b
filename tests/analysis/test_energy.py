"""Shares of the singular values agree with what defines them, of arrays and of tensors."""

import numpy as np
import pytest
import torch

from lib.analysis.energy import leading_energy, nuclear_tail


def test_energy_and_tail_of_known_values():
    sigma = torch.tensor([[4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(leading_energy(sigma, 2), torch.tensor([25 / 30, 1.0]))
    torch.testing.assert_close(nuclear_tail(sigma, 2), torch.tensor([0.3, 0.0]))


def test_many_equal_small_values_weigh_little_in_energy_and_much_in_the_nuclear_tail():
    """The trap of the paper's sum of trailing singular values: 12 values of a tenth."""
    sigma = torch.tensor([1.0, 0.4, *[0.045] * 12])
    assert leading_energy(sigma, 2) > 0.97
    assert nuclear_tail(sigma, 2) > 0.27


@pytest.mark.parametrize("sigma", [[4.0, 3.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
def test_arrays_and_tensors_have_the_same_shares(sigma):
    for function in (leading_energy, nuclear_tail):
        found = function(np.array([sigma, sigma]), 2)
        assert isinstance(found, np.ndarray)
        assert found.tolist() == function(torch.tensor([sigma, sigma]).double(), 2).tolist()


def test_leading_energy_is_what_the_best_approximation_keeps():
    W = torch.randn(9, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left = torch.linalg.svd(W).U[:, :2]
    kept = (left.T @ W).square().sum() / W.square().sum()
    torch.testing.assert_close(leading_energy(torch.linalg.svdvals(W), 2), kept)
