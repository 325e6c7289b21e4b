"""The figures of low rank and sparsity where a configuration has no training on permuted labels."""

import pytest

from lib.low_rank_sparse.figures.neurons import norms_and_pruning
from lib.low_rank_sparse.figures.updates import beyond_two, spectra_and_nulls

ALONE = {"untied": "absent"}  # the second was not trained


@pytest.mark.parametrize("draw", [spectra_and_nulls, beyond_two])
def test_updates_without_a_trained_null_stand_beside_gaussian_ones_alone(kept, draw):
    for axes in draw(kept["spectra"], ALONE).axes:
        labels = [line.get_label() for line in axes.lines]
        assert labels[:2] == ["trained", "Gaussian of equal norm"]


def test_norms_without_a_trained_null_are_shown_alone(kept):
    first, *_ = norms_and_pruning(kept["neurons"], kept["prune"], ALONE).axes
    assert len(first.patches) == 60  # of the histogram
