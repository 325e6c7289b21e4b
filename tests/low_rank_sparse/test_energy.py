"""Shares of the singular values agree with what defines them, of arrays and of tensors."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from lib.low_rank_sparse.energy import (
    around,
    around_each,
    gap,
    leading_energy,
    nuclear_tail,
    of_matrices,
    padded,
)


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


def test_what_is_behind_the_third_singular_value_by_hand():
    found = around(np.array([4.0, 3.0, 2.0, 1.0]), 3)
    wanted = {
        "energy": 29 / 30,
        "energy_2": 25 / 30,
        "nuclear_tail": 0.1,
        "gap": 0.5,
        "gap_2": 2 / 3,
        "next": 1,
    }
    assert found == pytest.approx(wanted | {"tail": (1 / 30) ** 0.5})


def test_values_that_a_small_matrix_does_not_have_are_zero():
    assert padded(np.array([[2.0, 1.0]]), 4).tolist() == [[2, 1, 0, 0]]
    assert padded(np.array([2.0, 1.0]), 1).tolist() == [2, 1]
    assert gap(np.array([[2.0, 1.0], [0.0, 0.0]]), 2) == pytest.approx([0, math.nan], nan_ok=True)
    assert around(np.array([2.0]), 1)["next"] == 0


def test_an_update_of_nothing_has_no_shares():
    found = around(np.zeros(4), 2)
    assert {key for key, value in found.items() if math.isnan(value)} == {"gap", "gap_2", "tail"}


def test_summaries_of_matrices_stand_by_letter_and_seed():
    rows = [("W_K", 3, [2.0, 1.0, 0.5]), ("W_Q", 3, [1.0, 1.0, 1.0]), ("W_K", 1, [4.0, 4.0, 1.0])]
    rows += [("W_V", 3, [1.0, 2.0, 4.0]), ("W_O", 3, [3.0, 2.0, 6.0])]
    spectra = pd.DataFrame(
        [(m, s, np.array(v)) for m, s, v in rows], columns=["matrix", "seed", "singular_values"]
    )
    found = of_matrices(spectra, gap)
    assert list(found) == ["Q", "K", "V", "O"]
    assert found["K"].to_dict() == {1: 0.25, 3: 0.5}
    assert found["Q"].dropna().to_dict() == {3: 1.0}
    assert (found["V"].loc[3], found["O"].loc[3]) == (2.0, 3.0)


def test_what_is_around_stands_by_matrix_with_its_singular_values():
    sigmas = {"W_K": np.array([4.0, 3.0, 2.0]), "W_O": np.array([1.0, 0.0])}
    found = around_each(sigmas, 2)
    assert found["W_K_singular_values"] is sigmas["W_K"]
    assert found["W_K_gap"] == 2 / 3
    assert found["W_O_energy"] == 1
    own = [*around(sigmas["W_K"], 2), "singular_values"]
    assert list(found) == [f"{name}_{key}" for name in ("W_K", "W_O") for key in own]
