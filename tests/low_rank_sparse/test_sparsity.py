"""Otsu's threshold is the exhaustive one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.low_rank_sparse.sparsity import entry_removals, otsu_threshold


@given(st.lists(st.floats(0, 10, width=32), min_size=2, max_size=12))
def test_otsu_parts_as_an_exhaustive_search_does(values):
    """Least variance within the groups is the same as most between them."""
    ordered = torch.tensor(sorted(values), dtype=torch.float64)
    within = [
        sum(float((part - part.mean()).square().sum()) for part in ordered.tensor_split([k]))
        for k in range(1, len(ordered))
    ]
    threshold = otsu_threshold(torch.tensor(values))
    k = int((ordered <= threshold).sum())
    if ordered[0] == ordered[-1]:
        assert threshold == ordered[0]
    else:
        assert 0 < k < len(ordered)
        assert within[k - 1] == pytest.approx(min(within), rel=1e-9, abs=1e-9)


def test_one_value_cannot_be_parted():
    with pytest.raises(ValueError, match="wanted two values or more to part, got 1"):
        otsu_threshold(torch.ones(1))


def test_columns_that_fall_into_no_whole_groups_are_not_pruned_by_groups():
    W = torch.eye(4)
    found = [what for what, *_ in entry_removals(W, W, [0.0], 1, 3, 0.5)]
    assert found == ["weights", "rows of W_V"]
