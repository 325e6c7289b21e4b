"""Figures of low rank and sparsity: without a training on permuted labels, and of power laws."""

import numpy as np
import pytest

from lib.low_rank_sparse.figures.neurons import norms_and_pruning
from lib.low_rank_sparse.figures.scaling import power_laws
from lib.low_rank_sparse.figures.updates import beyond_two, spectra_and_nulls
from lib.pages.measures import read_measures

ALONE = {"untied": "absent"}  # the second was not trained


@pytest.mark.parametrize("draw", [spectra_and_nulls, beyond_two])
def test_updates_without_a_trained_null_stand_beside_gaussian_ones_alone(kept, draw):
    for axes in draw(kept["spectra"], ALONE).axes:
        labels = [line.get_label() for line in axes.lines]
        assert labels[:2] == ["trained", "Gaussian of equal norm"]


def test_norms_without_a_trained_null_are_shown_alone(kept):
    first, *_ = norms_and_pruning(kept["neurons"], kept["prune"], ALONE).axes
    assert len(first.patches) == 60  # of the histogram


def test_each_decade_of_step_sizes_has_its_line_and_shares_outside_the_condition_are_hollow(
    evaluated, kept
):
    measures = read_measures(evaluated[1] / "measures.csv")
    shares, sizes, *_ = power_laws(kept["sweep"], kept["samples"], measures, 0.3, 0.2).axes
    labels = [text.get_text().partition(":")[0] for text in sizes.get_legend().get_texts()]
    assert labels == [r"$\eta$ from 0.03 to 0.3", r"$\eta$ from 0.3 to 3"]
    lines = [line for line in sizes.lines if line.get_label().startswith(r"$\eta$")]
    assert [list(line.get_xdata()) for line in lines] == [[0.03, 0.1, 0.3], [0.3, 1, 3]]
    for line, slopes in zip(lines, measures["slope_of_steps.step_size"].values(), strict=True):
        known = [slope for slope in slopes["values"] if slope is not None]
        drawn = np.polyfit(np.log(line.get_xdata()), np.log(line.get_ydata()), 1)[0]
        assert drawn == pytest.approx(np.mean(known), rel=1e-5)
    points = [bars.lines[0] for bars in shares.containers]
    hollow = [line.get_xdata() * 9 for line in points if line.get_mfc() == "white"]
    assert [x.tolist() for x in hollow] == [pytest.approx([3, 4])]
