"""Norms that cannot be divided into two groups."""

import pytest
import torch

from lib.low_rank_sparse.sparsity import otsu_threshold


def test_equal_values_have_that_value_as_their_threshold():
    assert otsu_threshold(torch.full((3,), 0.7)) == pytest.approx(0.7)
