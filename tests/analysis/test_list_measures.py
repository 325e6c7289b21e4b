"""Measures of runs on decision lists, on tables made by hand; the test of the evaluate stage has every measure."""

import math

import numpy as np
import pandas as pd

from lib.analysis.list_measures import flow_measures, lemma_ratios, with_ties


def theorem(**columns):
    return pd.DataFrame({"task": ["a", "b"], "law": "zipf 1", "scale": 10.0, "bound": 4.0, **columns})


def test_a_run_whose_time_is_rounding_is_right_at_once():
    found = with_ties(theorem(at_once=False, first_time=[9e-9, 1.1e-8]))  # T c² = 9e-7, 1.1e-6
    assert found["at_once"].tolist() == [True, False]


def test_ratios_of_a_lemma_are_counted_in_twentieths_of_decades():
    ratios = np.array([1.0, 1.1, 1.13, 10.0, -1.0])
    found = lemma_ratios(pd.DataFrame({"derivative": 2 * ratios, "bound": 2.0}), 2).set_index("bin")
    assert found["size"].to_dict() == {-240: 1, 0: 2, 1: 1, 20: 1}
    assert found["min"].to_dict() == {-240: -1, 0: 1, 1: 1.13, 20: 10}
    assert (found["violations"] == 1).all()
    assert (found["cases"] == 5).all()


def test_a_run_that_is_never_right_takes_for_ever():
    runs = theorem(at_once=False, first_time=[1.0, math.nan], perfect_at_bound=math.nan, lost=[0, 2])
    runs = runs.assign(largest_rise=[-1.0, -2.0], largest_attention=[1.0, 1.5])
    law = pd.DataFrame({"task": "c", "scale": [math.inf, 10.0, 100.0], "rescaled_time": [50.0, math.nan, 51.0]})
    law["path_error"] = [math.nan, 0.1, 0.01]
    many = pd.DataFrame({"n_tokens": [9], "seq_len": 3, "length": 2, "bound": 2.0, "first_time": 1.0, "at_once": False})
    repeats = pd.DataFrame({"task": ["d"], "first_time": [math.nan]})
    found = flow_measures({"theorem": runs, "law": law, "many": many, "repeats": repeats}, 10)
    assert found["theorem_ratio"].to_dict() == {"a": 0.25, "b": math.inf}
    assert found["theorem_lost"].to_dict() == {"all": 1}
    assert found["law_time_over_limit"].to_dict() == {"c, c = 10": math.inf, "c, c = 100": 1.02}
    assert round(found["law_error_slope"]["c"], 12) == -1
    assert found["many_ratio"].to_dict() == {"L = 9, n = 3, M = 2": 0.5}
    assert found["repeats_right"].to_dict() == {"d": False}
