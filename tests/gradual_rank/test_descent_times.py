"""Descent against the flow, on events that can be worked out by hand."""

import pandas as pd
import pytest

from lib.gradual_rank.measures import descent_errors, return_errors


def test_a_descent_is_as_far_off_as_half_of_what_the_flow_activates():
    flow = pd.DataFrame(
        [
            (1, -8.0, 0, 10.0, True),
            (1, -8.0, 0, 5.0, False),
            (1, -8.0, 1, 20.0, True),
            (1, -8.0, 2, 40.0, True),
            (1, -4.0, 2, 1.0, True),
        ],
        columns=["seed", "log10_init_scale", "coordinate", "time", "rises"],
    )
    key = {"form": "plain", "share_of_limit": 0.5, "seed": 1}
    events = pd.DataFrame(
        [
            {**key, "coordinate": 0, "time": 11.0, "rises": True},
            {**key, "coordinate": 0, "time": 12.0, "rises": True},
            {**key, "coordinate": 1, "time": 26.0, "rises": True},
            {**key, "coordinate": 2, "time": 4.0, "rises": False},
        ]
    )
    ends = pd.DataFrame([{**key, "log10_init_scale": -8.0, "steps": 9}])
    [found] = descent_errors(events, ends, flow).to_dict("records")
    assert found == {
        **ends.iloc[0],
        "time_error": pytest.approx(0.3),
    }  # of 0.1, 0.3 and, where it never comes, 1


def test_what_returned_is_judged_at_each_methods_smallest_scale():
    rows = [
        ("truth", -1e9, 40.0),
        ("flow", -8.0, 50.0),
        ("flow", -32.0, 41.0),
        ("steps", -8.0, 36.0),
    ]
    returns = pd.DataFrame(rows, columns=["method", "log10_init_scale", "rescaled_time"])
    wanted = {"flow": pytest.approx(1 / 40), "steps": pytest.approx(0.1), "truth": 0}
    assert return_errors(returns, "truth").to_dict() == wanted
