"""Cutting an update to a rank: the best approximation of what was added, never of the weight
itself.
"""

import numpy as np
import pytest
import torch

from lib.matrices.low_rank import (
    doubling_ranks,
    in_random_directions,
    truncated_models,
    truncated_updates,
    update_spectra,
)


@pytest.fixture
def weights():
    source = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, 7, 5, generator=source), 3 * torch.randn(2, 3, 7, 5, generator=source)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rank_zero_gives_the_initial_matrix_and_a_full_rank_the_trained_one_to_the_bit(
    weights, dtype
):
    W, W_0 = (matrices.to(dtype) for matrices in weights)
    cut = dict(truncated_updates(W, W_0, [0, 5, 6, 1000]))
    assert torch.equal(cut.pop(0), W_0)
    assert all(torch.equal(whole, W) for whole in cut.values())


def test_the_update_is_cut_to_its_best_approximation_and_not_the_weight(weights):
    """The cuts of Eckart & Young (1936) in one layer after another, by numpy."""
    W, W_0 = weights
    for rank, cut in truncated_updates(W, W_0, [1, 2, 3]):
        for place in np.ndindex(2, 3):
            update = (W[place].double() - W_0[place].double()).numpy()
            U, sigma, Vh = np.linalg.svd(update, full_matrices=False)
            wanted = W_0[place].double().numpy() + U[:, :rank] * sigma[:rank] @ Vh[:rank]
            np.testing.assert_allclose(cut[place], wanted, rtol=0, atol=1e-6)


def test_a_negative_rank_is_refused(weights):
    with pytest.raises(ValueError, match="rank must not be negative, got"):
        list(truncated_updates(*weights, [1, -1]))


@pytest.mark.parametrize(
    ("largest", "ranks"),
    [(1, [0, 1]), (2, [0, 1, 2]), (10, [0, 1, 2, 4, 8, 10]), (64, [0, 1, 2, 4, 8, 16, 32, 64])],
)
def test_ranks_double_up_to_the_largest(largest, ranks):
    assert doubling_ranks(largest) == ranks


def test_random_directions_keep_their_share_of_an_update():
    update = torch.randn(6, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = [
        in_random_directions(update, 2, torch.Generator().manual_seed(seed)) for seed in range(300)
    ]
    assert {int(torch.linalg.matrix_rank(one)) for one in found} == {2}
    kept = torch.stack([one.square().sum() for one in found]).mean() / update.square().sum()
    assert float(kept) == pytest.approx(2 / 20, rel=0.1)
    torch.testing.assert_close(in_random_directions(found[0], 20, torch.Generator()), found[0])


def test_models_are_cut_to_a_rank_matrix_by_matrix(weights):
    W, W_0 = (dict(zip("ab", w, strict=True)) for w in weights)
    found = truncated_models(W, W_0, {1, 3})
    assert sorted(found) == [1, 3]
    for name in "ab":
        for rank, cut in truncated_updates(W[name], W_0[name], [1, 3]):
            assert torch.equal(found[rank][name], cut)


def test_the_spectra_of_updates_are_numpys(weights):
    W, W_0 = weights
    found = update_spectra({"W": W[0, 0], "other": W[1, 0]}, {"W": W_0[0, 0]})
    assert list(found) == ["W"]
    wanted = np.linalg.svd(W[0, 0].double().numpy() - W_0[0, 0].double().numpy())[1]
    np.testing.assert_allclose(found["W"], wanted, rtol=1e-12)
