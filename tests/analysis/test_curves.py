"""Exponents of power laws come back, and curves are summed up as their definitions say."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.analysis.curves import (
    beyond_scale_law,
    exponents,
    harmless_rate,
    harmless_rates,
    log_log_slope,
    nearest,
    worst,
)


def test_the_exponent_of_a_power_law_comes_back():
    x = [0.3, 1.0, 2.0, 7.0]
    assert log_log_slope(x, [5 * value**-1.5 for value in x]) == pytest.approx(-1.5)


def test_it_is_numpys_least_squares_fit():
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.normal(size=(2, 20)))
    assert log_log_slope(x.tolist(), y.tolist()) == pytest.approx(np.polyfit(np.log(x), np.log(y), 1)[0])


@pytest.mark.parametrize(("x", "y"), [([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 2.0]), ([-1.0, 2.0], [1.0, 2.0])])
def test_what_has_no_slope_is_refused(x, y):
    with pytest.raises(ValueError, match="wanted positive values at two different x or more, got"):
        log_log_slope(x, y)


def test_of_values_as_near_the_lower_is_nearest():
    assert nearest([0.75, 0.25, 0.5], 0.3) == 0.25
    assert nearest([0.75, 0.25, 0.5], 0.625) == 0.5


def test_each_seed_has_its_exponent_or_none():
    rows = [{"seed": seed, "x": x, "y": 3 * x**power} for seed, power in ((4, 2), (1, -1)) for x in (1.0, 2.0, 5.0)]
    rows += [{"seed": 2, "x": 1.0, "y": 1.0}, {"seed": 3, "x": 1.0, "y": 1.0}, {"seed": 3, "x": 2.0, "y": -1.0}]
    found = exponents(pd.DataFrame(rows), "x", "y").to_dict()
    assert found == pytest.approx({1: -1, 2: math.nan, 3: math.nan, 4: 2}, nan_ok=True)


@pytest.mark.parametrize(
    ("losses", "rate"),
    [
        ([0.0, 0.005, 0.01, 0.02], 0.2),
        ([0.5, 0.4, 0.52, 0.1], 0.1),
        ([0.0, 0.0, 0.0, 0.0], 0.3),
        ([0.0, 1.0, 0.0, 0.0], 0.0),
    ],
)
def test_a_rate_is_harmless_when_every_rate_up_to_it_is(losses, rate):
    assert harmless_rate([0.0, 0.1, 0.2, 0.3], losses, 0.01) == rate


def test_each_seed_has_its_harmless_rate_whatever_the_order_of_rows():
    rows = [(1, 0.2, 0.3), (1, 0.0, 0.0), (0, 0.1, 0.0), (1, 0.1, 0.05), (0, 0.0, 0.0), (0, 0.2, 0.0)]
    table = pd.DataFrame(rows, columns=["seed", "rate", "loss"])
    assert harmless_rates(table, "loss", 0.1).to_dict() == {0: 0.2, 1: 0.1}


def test_the_worst_column_is_judged_by_the_size_of_its_mean():
    table = pd.DataFrame({"a": [1.0, 2.0], "b": [-4.0, -1.0], "c": [0.1, np.nan]}, index=[5, 3])
    assert worst(table).to_dict() == {5: -4, 3: -1}
    assert worst(table, largest=False).to_dict() == {5: 0.1}


def test_a_model_that_loses_scale_alone_follows_the_scale_law():
    """All samples have the same margin F_0: without a share R of the output, the hinge loss is that of (1 - R) F_0."""
    margin = pd.Series({0: 1.5, 1: 0.8})
    law = {rate: [max(0, 1 - (1 - rate) * 1.5), max(0, 1 - (1 - rate) * 0.8)] for rate in (0.0, 0.3, 0.7)}
    hinge = pd.DataFrame(law)
    found = beyond_scale_law(hinge, margin, 0.3)
    assert list(found) == [0.3, 0.7]
    assert found.to_numpy() == pytest.approx(0)
    assert beyond_scale_law(hinge + 0.25, margin, 0)[0.0].tolist() == pytest.approx([0.25, 0.25])
