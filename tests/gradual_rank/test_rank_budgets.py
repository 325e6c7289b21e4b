"""Ranks at a budget, on events that can be counted by hand."""

import math

import numpy as np
import pandas as pd

from lib.gradual_rank.measures import (
    rank_at,
    rank_errors,
    rank_of,
    ranks_of_adapter,
    ranks_of_head,
)

LN10 = math.log(10)


def array(*values):
    return np.array(values, dtype=float)


def events(*rows, **columns):
    names = ["seed", "log10_init_scale", "time", "rises"]
    return pd.DataFrame(rows, columns=names).assign(**columns)


def test_the_rank_counts_those_that_joined_and_did_not_leave():
    found = rank_at(array(0, 1, 2.5, 3, 9), joins=array(3, 1, 2), leaves=array(4))
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 2])


def test_the_rank_of_events_counts_rises_and_falls():
    table = events((0, -1.0, 2.0, True), (0, -1.0, 1.0, True), (0, -1.0, 3.0, False))
    np.testing.assert_array_equal(rank_of(table, array(0, 1, 2.5, 3)), [0, 1, 2, 1])


def test_the_head_has_a_rank_by_every_source_where_it_was_followed_and_predicted():
    stages = pd.DataFrame(
        {"seed": 5, "stage": [0, 1, 2], "time": [0.0, 1.0, 2.0], "dropped": [[], [], [0]]}
    )
    flow = events((5, -2.0, 2.2 * LN10, True), (5, -4.0, 1.0, True))
    predicted = events(
        (5, -2.0, 1.9 * LN10, True), (5, -2.0, 3.9 * LN10, True), (5, -3.0, 1.0, True)
    )
    found = ranks_of_head(flow, predicted, stages, n_budgets=3)
    assert found.to_dict("list") == {
        "seed": [5] * 3,
        "log10_init_scale": [-2.0] * 3,
        "rescaled_time": [0.0, 1.0, 2.0],
        "measured": [0.0, 0.0, 1.0],
        "finite": [0.0, 1.0, 2.0],
        "limit": [0.0, 1.0, 1.0],  # one joins as one leaves
    }
    nothing = ranks_of_head(
        flow, predicted[predicted["log10_init_scale"] == -3], stages, n_budgets=3
    )
    assert nothing.empty
    assert list(nothing) == list(found)


def test_the_adapter_has_a_rank_up_to_the_end_of_its_run_forecast_and_measured():
    made = [
        (7, -1.0, 2.0, True, "forecast"),
        (7, -1.0, 3.0, True, "measured"),
        (7, -1.0, 1.0, True, "measured"),
    ]
    table = pd.DataFrame(
        made, columns=["seed", "log10_init_scale", "time", "rises", "source"]
    ).assign(end=4.0)
    found = ranks_of_adapter(table, n_budgets=5)
    assert found["time"].tolist() == [0, 1, 2, 3, 4]
    assert (found["forecast"].tolist(), found["measured"].tolist()) == (
        [0, 0, 1, 1, 1],
        [0, 1, 1, 2, 2],
    )
    assert rank_errors(found, "forecast").to_dict("list") == {
        "seed": [7],
        "log10_init_scale": [-1.0],
        "error": [0.6],
    }
