"""Ranks are what they are called, of one spectrum and of many, however they are padded."""

import math

import numpy as np
import pytest

from lib.matrices import ranks
from lib.matrices.ranks import summaries


def of(*sigma):
    return np.array(sigma, dtype=float)


def of_each(rank):
    """The rank of one spectrum, by the function that takes a stack of them."""
    return lambda sigma, *arguments: rank(sigma[None], *arguments).item()


stable_rank, effective_rank = of_each(ranks.stable_rank), of_each(ranks.effective_rank)
numerical_rank, energy_rank = of_each(ranks.numerical_rank), of_each(ranks.energy_rank)


def matrix(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize(
    ("sigma", "stable", "effective", "numerical", "energy"),
    [
        (of(1, 1, 1, 1), 4, 4, 4, 4),
        (of(7, 0, 0), 1, 1, 1, 1),
        (of(0, 0, 0), 0, 0, 0, 0),
        (of(2, 1, 1), 1.5, math.exp(0.5 * math.log(2) + 0.5 * math.log(4)), 3, 3),
        (of(10, 1, 0.01), 1.010001, None, 2, 1),
        (of(3e-30, 3e-30, 0), 2, 2, 2, 2),
    ],
)
def test_ranks_are_those_computed_by_hand(sigma, stable, effective, numerical, energy):
    assert stable_rank(sigma) == pytest.approx(stable, rel=1e-12)
    assert effective is None or effective_rank(sigma) == pytest.approx(effective, rel=1e-12)
    assert numerical_rank(sigma, 0.01) == numerical
    assert energy_rank(sigma, 0.99) == energy


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.0])
def test_the_energy_rank_is_the_least_whose_best_approximation_is_that_good(share):
    W = matrix(0, 9, 7)
    U, sigma, V = np.linalg.svd(W, full_matrices=False)
    rank = energy_rank(sigma, share)

    def left(r):
        return (np.linalg.norm(W - U[:, :r] * sigma[:r] @ V[:r]) / np.linalg.norm(W)) ** 2

    assert left(rank) <= 1 - share + 1e-12
    assert left(rank - 1) > 1 - share


COLUMNS = {
    "norm": lambda sigma: math.sqrt(sum(s**2 for s in sigma)),
    "stable_rank": stable_rank,
    "effective_rank": effective_rank,
    "numerical_rank": lambda sigma: numerical_rank(sigma, 0.05),
    "rank_90": lambda sigma: energy_rank(sigma, 0.90),
    "rank_95": lambda sigma: energy_rank(sigma, 0.95),
    "rank_99": lambda sigma: energy_rank(sigma, 0.99),
}


def test_the_summaries_of_spectra_of_many_lengths_are_those_of_each_alone():
    draw = np.random.default_rng(0)
    many = [np.sort(draw.lognormal(0, 2, n))[::-1] for n in (1, 20, 4, 7)] + [of(0, 0), of()]
    found = summaries(many, 0.05)
    assert list(found) == list(COLUMNS)
    for name, column in found.items():
        wanted = [COLUMNS[name](sigma) if len(sigma) else 0 for sigma in many]
        np.testing.assert_allclose(column, wanted, rtol=1e-13)


def test_summaries_are_computed_in_double_precision_also_of_single():
    sigma = of(3, 2, 1e-5).astype(np.float32)
    found, wanted = summaries([sigma], 1e-3), summaries([sigma.astype(float)], 1e-3)
    assert {name: column.tolist() for name, column in found.items()} == {
        k: v.tolist() for k, v in wanted.items()
    }


def test_the_summaries_of_no_spectra_are_empty_columns():
    assert {name: column.tolist() for name, column in summaries([], 0.1).items()} == {
        name: [] for name in COLUMNS
    }
