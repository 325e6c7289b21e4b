"""When directions of full matrices rise, on spectra made by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.measures import first_after, rise_errors, rise_ratios, rise_times

SPECTRA = pd.DataFrame(
    [
        (1, 20, 10.0, [0.6, 0.1], 1.5),
        (1, 10, 5.0, [0.2, 0.1], 1.1),
        (1, 30, 15.0, [0.9, 0.7], 1.9),
        (2, 10, 5.0, [0.8, 0.5], 1.2),
        (2, 20, 10.0, [0.9, 0.5], 1.3),
    ],
    columns=["seed", "step", "time", "singular_values", "stable_rank"],
).assign(singular_values=lambda table: table["singular_values"].map(np.array))


def test_a_direction_rises_in_the_first_snapshot_that_has_it_above_the_threshold():
    first, second = (rise_times(SPECTRA, k, 0.5) for k in (1, 2))
    assert first.to_dict() == {1: 10.0, 2: 5.0}
    assert second.to_dict() == {1: 15.0}  # the threshold itself is not above
    ratios = rise_ratios(second, first, np.array([1, 2]))
    assert ratios.to_dict() == {1: 1.5, 2: math.inf}


def test_a_column_is_taken_from_the_first_snapshot_from_a_time_on():
    found = first_after(SPECTRA, pd.Series({1: 10.0, 2: 5.1, 3: 1.0}), "stable_rank")
    assert found.to_dict() == {1: 1.5, 2: 1.3}
    assert first_after(SPECTRA, pd.Series({1: 16.0}), "stable_rank").empty


def test_the_error_of_a_rise_is_the_worst_over_the_scales_and_infinite_where_nothing_rose():
    rises = pd.DataFrame({"seed": [1, 1, 2], "log10_init_scale": [-4.0, -8.0, -4.0]})
    rises = rises.assign(time=[10.0, 20.0, 10.0], finite=[11.0, 24.0, 10.5])
    runs = pd.DataFrame({"seed": [1, 1, 2, 2], "log10_init_scale": [-4.0, -8.0] * 2})
    found = rise_errors(rises, pd.concat([runs, runs]), "finite")
    assert found.to_dict() == {1: pytest.approx(0.2), 2: math.inf}
