"""Otsu's threshold is the exhaustive one, bimodality has its known values; sums are loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.low_rank_sparse.sparsity import (
    bimodality_coefficient,
    entry_removals,
    norm_groups,
    otsu_threshold,
    sums_of_last,
)


@given(st.lists(st.floats(0, 10, width=32), min_size=2, max_size=12))
def test_otsu_parts_as_an_exhaustive_search_does(values):
    """Least variance within the groups is the same as most between them."""
    ordered = torch.tensor(sorted(values), dtype=torch.float64)
    within = [
        float(
            (ordered[:k] - ordered[:k].mean()).square().sum()
            + (ordered[k:] - ordered[k:].mean()).square().sum()
        )
        for k in range(1, len(ordered))
    ]
    threshold = otsu_threshold(torch.tensor(values))
    k = int((ordered <= threshold).sum())
    if ordered[0] == ordered[-1]:
        assert threshold == ordered[0]
    else:
        assert 0 < k < len(ordered)
        assert within[k - 1] == pytest.approx(min(within), rel=1e-9, abs=1e-9)


def test_otsu_finds_the_gap_of_two_modes():
    g = torch.Generator().manual_seed(0)
    values = torch.cat(
        [0.05 + 0.01 * torch.randn(270, generator=g), 0.14 + 0.01 * torch.randn(730, generator=g)]
    )
    assert 0.07 < otsu_threshold(values) < 0.12
    assert float((values > otsu_threshold(values)).float().mean()) == pytest.approx(0.73)


def test_one_value_cannot_be_parted():
    with pytest.raises(ValueError, match="wanted two values or more to part, got 1"):
        otsu_threshold(torch.ones(1))


def test_bimodality_of_known_laws():
    assert bimodality_coefficient(torch.tensor([0.0, 1.0]).repeat(50)) == pytest.approx(1)
    assert bimodality_coefficient(torch.linspace(0, 1, 100_001).double()) == pytest.approx(
        5 / 9, abs=1e-3
    )
    normal = torch.distributions.Normal(0.0, 1.0).icdf(
        torch.linspace(1e-6, 1 - 1e-6, 100_001).double()
    )
    assert bimodality_coefficient(normal) == pytest.approx(1 / 3, abs=2e-3)


def test_two_groups_of_norms_are_told_apart():
    norms = torch.tensor([3.0, 0.1, 3.4, 0.3])
    wanted = {"threshold": 1.65, "small_share": 0.5, "small_norm": 0.2, "large_norm": 3.2}
    assert norm_groups(norms) == pytest.approx(
        wanted | {"bimodality": bimodality_coefficient(norms)}
    )


def test_the_sums_of_the_last_units_are_those_of_a_loop():
    parts = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).double()
    units = [4, 0, 3]
    found = sums_of_last(parts, torch.tensor(units))
    for kept in range(4):
        wanted = [sum(row[unit] for unit in units[3 - kept :]) for row in parts.tolist()]
        assert found[kept].tolist() == pytest.approx(wanted)


def test_entries_go_smallest_first_by_groups_and_by_whole_columns():
    W_O = torch.tensor([[1.0, -5.0, 3.0, 0.5], [-2.0, 0.1, 4.0, 6.0]])
    W_V = torch.tensor([[1.0, 3.0, -2.0, 0.0], [1.0, 0.0, 2.0, 4.0]])  # norms √2, 3, √8, 4
    ways = [
        (*what, mask.int().tolist())
        for *what, mask in entry_removals(W_O, W_V, [0.0, 0.5], 1, 2, 0.6)
    ]
    assert ways == [
        ("weights", 0.0, "W_O", [[1, 1, 1, 1], [1, 1, 1, 1]]),
        ("weights", 0.5, "W_O", [[0, 1, 1, 0], [0, 0, 1, 1]]),
        ("1:2", 0.5, "W_O", [[0, 1, 1, 0], [1, 0, 0, 1]]),
        ("rows of W_V", 0.6, "W_V", [[0, 1, 0, 1], [0, 1, 0, 1]]),
    ]
    assert [what for what, *_ in entry_removals(W_O, W_V, [0.0], 1, 3, 0.6)] == [
        "weights",
        "rows of W_V",
    ]
