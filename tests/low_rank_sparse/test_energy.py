"""Shares of singular values where a matrix has few of them, or none."""

import math

import numpy as np
import pytest
import torch

from lib.low_rank_sparse.energy import around, gap, leading_energy


def test_leading_energy_is_what_the_best_approximation_keeps():
    W = torch.randn(9, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    left = torch.linalg.svd(W).U[:, :2]
    kept = (left.T @ W).square().sum() / W.square().sum()
    torch.testing.assert_close(leading_energy(torch.linalg.svdvals(W), 2), kept)


def test_an_update_of_nothing_has_all_its_energy_and_neither_gap_nor_tail():
    found = around(np.zeros(4), 2)
    assert (found["energy"], found["nuclear_tail"]) == (1, 0)
    assert {key for key, value in found.items() if math.isnan(value)} == {"gap", "gap_2", "tail"}


def test_values_that_a_small_matrix_does_not_have_are_zero():
    found = gap(np.array([[2.0, 1.0], [0.0, 0.0]]), 2)
    assert found == pytest.approx([0, math.nan], nan_ok=True)
