"""When coordinates join, on cases that can be worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from lib.gradual_rank.activation_times import (
    activations,
    constants,
    control_shares,
    halvings,
    order_agreement,
    relative_errors,
    rise_durations,
    time_errors,
)

INF, LN10 = math.inf, math.log(10)


def array(*values):
    return np.array(values, dtype=float)


def test_an_activation_that_never_came_has_an_error_of_1():
    found = relative_errors(array(1.1, INF, 1.5), array(1, 2, 3), array(1, 2, 3))
    np.testing.assert_allclose(found, [0.1, 1, 0.5], rtol=1e-12)


@pytest.mark.parametrize(
    ("measured", "wanted"),
    [
        ((1, 2, 3, 4), 1),
        ((4, 3, 2, 1), -1),
        ((2, 1, 3, 4), 2 / 3),
        ((1, 2, 3, INF), 1),
        ((INF, 2, 3, 4), 0),
        ((INF, INF, INF, INF), 0),
    ],
)
def test_the_agreement_of_orders_is_the_share_of_pairs_in_order_less_that_out_of_it(
    measured, wanted
):
    assert order_agreement(array(*measured), array(1, 2, 3, 4)) == pytest.approx(wanted)


def test_a_single_activation_is_in_order():
    assert order_agreement(array(INF), array(1)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_the_agreement_of_orders_is_that_of_scipy_with_ties_too(seed):
    draw = np.random.default_rng(seed)
    measured, predicted = draw.integers(0, 6, 12).astype(float), draw.permutation(12).astype(float)
    wanted = kendalltau(measured, predicted).statistic
    assert order_agreement(measured, predicted) == pytest.approx(wanted, rel=1e-14)


EVENTS = ["seed", "log10_init_scale", "coordinate", "sign", "time", "rises"]
STAGES = pd.DataFrame(
    [
        (4, 0, 0.0, -1, 0, [0, 0, 0]),
        (4, 1, 2.0, 1, 1, [0, 0.5, 0]),
        (4, 2, 3.0, 0, -1, [-0.4, 0.5, 0]),
        (4, 3, 4.0, 2, 1, [-0.4, 0.5, 0.1]),
        (4, 4, 6.0, 1, -1, [-0.4, -0.9, 0.1]),
    ],
    columns=["seed", "stage", "time", "coordinate", "sign", "p"],
)


def events(*rows):
    types = dict(zip(EVENTS, (int, float, int, int, float, bool), strict=True))
    return pd.DataFrame([(4, *row) for row in rows], columns=EVENTS).astype(types)


@pytest.fixture
def activated():
    """Coordinate 2 is not significant, 1 joins twice, 0 never at 1e-2; 1e-4 was not forecast."""
    flow = events(
        (-2.0, 1, 1, 5 * LN10, True),
        (-2.0, 1, 1, 4.4 * LN10, True),
        (-2.0, 1, 1, 1.0, False),
        (-4.0, 0, -1, 13.2 * LN10, True),
        (-4.0, 1, -1, 3.0, True),  # with the other sign: it has not joined
        (-4.0, 1, 1, 16 * LN10, True),
    )
    return activations(STAGES, flow, events((-2.0, 1, 1, 4.8 * LN10, True)), significant=0.25)


def test_each_significant_coordinate_has_its_first_time_by_every_source_at_every_scale(activated):
    columns = ["coordinate", "sign", "stage", "log10_init_scale", "predicted", "measured", "finite"]
    found = activated[columns].sort_values(["log10_init_scale", "coordinate"]).to_numpy(float)
    wanted = [
        (0, -1, 2, -4, 3, 3.3, math.nan),
        (1, 1, 1, -4, 2, 4, math.nan),
        (0, -1, 2, -2, 3, INF, INF),
        (1, 1, 1, -2, 2, 2.2, 2.4),
    ]
    np.testing.assert_allclose(found, np.array(wanted, float), rtol=1e-12)


def test_errors_of_a_cell_are_of_all_coordinates_and_those_of_the_forecast_of_the_measured(
    activated,
):
    small, large = time_errors(activated).sort_values("log10_init_scale").to_dict("records")
    assert (small["time_error_median"], small["time_error_max"]) == (
        pytest.approx(0.55),
        pytest.approx(1),
    )
    assert small["order_agreement"] == -1
    assert math.isnan(small["finite_error_median"])
    assert (large["time_error_median"], large["time_error_max"]) == (pytest.approx(0.55), 1)
    assert large["order_agreement"] == 1
    assert large["finite_error_median"] == large["finite_error_max"] == pytest.approx(0.2 / 2.2)
    assert large["log_scale"] == pytest.approx(2 * LN10)


def test_the_control_makes_an_activation_where_coordinate_and_sign_are_the_same(activated):
    control = events(
        (-8.0, 1, -1, 8 * LN10, True), (-8.0, 0, -1, 16 * LN10, True), (-8.0, 0, -1, 1.0, False)
    )
    assert control_shares(activated, control).to_dict() == {4: 0.5}
    assert control_shares(activated, control.iloc[:0]).to_dict() == {4: 0.0}


def test_the_first_rise_lasts_to_where_it_is_over_and_is_compared_with_the_smallest_scale():
    first = STAGES.iloc[:2]  # coordinate 1 with sign +
    begin = events(
        (-2.0, 1, 1, 5.0, True),
        (-2.0, 1, 1, 9.0, True),
        (-8.0, 1, 1, 6.0, True),
        (-4.0, 1, 1, 2.0, True),
    )
    end = events(
        (-2.0, 1, 1, 8.0, True),
        (-2.0, 0, -1, 1.0, True),
        (-8.0, 1, 1, 10.0, True),
        (-4.0, 1, -1, 3.0, True),
    )
    found = rise_durations(begin, end, first)
    assert found.to_dict("list") == {
        "seed": [4, 4],
        "log10_init_scale": [-8.0, -2.0],
        "duration": [4.0, 3.0],
        "ratio": [1.0, 0.75],
    }


def test_without_activations_there_are_the_columns_of_errors():
    none = time_errors(activations(STAGES.iloc[:1], events(), events(), significant=0.25))
    assert none.empty
    assert {"seed", "log10_init_scale", "time_error_median", "finite_error_max"} <= set(none)


def test_the_constant_of_the_rate_and_the_halving_of_its_error():
    scales = [-1.0, -2.0, -4.0, -8.0]
    rows = [
        (seed, s, -s * LN10, c / (-s * LN10)) for seed, c in ((0, 0.5), (1, 0.7)) for s in scales
    ]
    errors = pd.DataFrame(
        rows, columns=["seed", "log10_init_scale", "log_scale", "time_error_median"]
    )
    assert constants(errors, -2).to_dict() == {0: pytest.approx(0.5), 1: pytest.approx(0.7)}
    assert halvings(errors, -2).to_dict() == {
        "1e-2": pytest.approx(0.5),
        "1e-4": pytest.approx(0.5),
    }
    assert halvings(errors, -8).empty
