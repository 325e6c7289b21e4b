"""What cannot be parted into two groups, or pruned by groups."""

import pytest
import torch

from lib.low_rank_sparse.sparsity import entry_removals, otsu_threshold


def test_equal_values_have_that_value_as_their_threshold():
    assert otsu_threshold(torch.full((3,), 0.7)) == pytest.approx(0.7)


def test_columns_that_fall_into_no_whole_groups_are_not_pruned_by_groups():
    W = torch.eye(4)
    found = [what for what, *_ in entry_removals(W, W, [0.0], 1, 3, 0.5)]
    assert found == ["weights", "rows of W_V"]
