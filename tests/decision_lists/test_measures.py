"""Measures of runs on decision lists, on tables made by hand; the test of the evaluate stage has
every measure.
"""

import math

import numpy as np
import pandas as pd

from lib.decision_lists.measures import (
    last_of_runs,
    law_measures,
    lemma_ratios,
    measures,
    thinned,
    with_ties,
)


def theorem(**columns):
    return pd.DataFrame(
        {"task": ["a", "b"], "law": "zipf 1", "scale": 10.0, "bound": 4.0, **columns}
    )


def test_a_run_whose_time_is_rounding_is_right_at_once():
    found = with_ties(theorem(at_once=False, first_time=[9e-9, 1.1e-8]))  # T c² = 9e-7, 1.1e-6
    assert found["at_once"].tolist() == [True, False]


def test_ratios_of_a_lemma_are_counted_in_twentieths_of_decades():
    ratios = np.array([1.0, 1.1, 1.13, 10.0, -1.0])
    table = pd.DataFrame({"derivative": 2 * ratios, "bound": 2.0})
    found = lemma_ratios({2: table}).set_index("bin")
    assert found["size"].to_dict() == {-240: 1, 0: 2, 1: 1, 20: 1}
    assert found["min"].to_dict() == {-240: -1, 0: 1, 1: 1.13, 20: 10}
    assert (found["cases"] == 5).all()


def test_a_run_that_is_never_right_takes_for_ever():
    runs = theorem(
        at_once=False, first_time=[1.0, math.nan], perfect_at_bound=math.nan, lost=[0, 2]
    )
    runs = runs.assign(
        largest_rise=[-1.0, -2.0], largest_attention=[1.0, 1.5], regained_time=math.nan
    )
    many = pd.DataFrame(
        {
            "n_tokens": [9],
            "seq_len": 3,
            "length": 2,
            "bound": 2.0,
            "first_time": 1.0,
            "at_once": False,
        }
    )
    repeats = pd.DataFrame({"task": ["d"], "first_time": [math.nan]})
    found = measures({"theorem": runs, "many": many, "repeats": repeats}, 1)
    assert found["theorem_ratio"].to_dict() == {"a": 0.25, "b": math.inf}
    assert found["theorem_runs_that_lose_it"].to_dict() == {"all": 1}
    assert found["theorem_regained_over_bound"].to_dict() == {"b": math.inf}
    assert found["many_ratio"].to_dict() == {"L = 9, n = 3, M = 2": 0.5}
    assert found["repeats_right"].to_dict() == {"d": False}


def law(scales, times):
    columns = {
        "task": "c",
        "at_once": False,
        "scale": [math.inf, *scales],
        "rescaled_time": [50.0, *times],
    }
    return pd.DataFrame(columns).assign(path_error=[math.nan, *(1 / c for c in scales)])


def test_a_law_of_one_scale_has_no_exponent_and_one_of_tasks_right_at_once_none():
    found = law_measures(law([1.0, 10.0, 100.0], [90.0, 52.0, 50.2]), 10)
    assert {name: round(values["c"], 12) for name, values in found.items()} == {
        "law_time_slope": -1,
        "law_error_slope": -1,
    }
    assert law_measures(law([1.0, 10.0], [90.0, 52.0]), 10) == {}
    at_once = law([10.0, 100.0], [52.0, 50.2]).assign(at_once=True)
    assert law_measures(at_once, 10) == {}


def test_a_thinned_course_keeps_both_ends():
    path = pd.DataFrame({"step": range(100), "task": "a"})
    assert thinned(path, ["task"], 4)["step"].tolist() == [0, 33, 66, 99]
    assert thinned(path, ["task"], 3, logarithmic=True)["step"].tolist() == [0, 9, 99]
    assert thinned(path.head(2), ["task"], 9)["step"].tolist() == [0, 1]
    two = pd.concat([path.assign(task="b"), path.head(3)])
    assert thinned(two, ["task"], 2)["step"].tolist() == [0, 99, 0, 2]


def test_the_last_row_of_a_run_says_when_it_was_right_first():
    rows = [
        ("b", 0, 1, 0.5, False, False),
        ("b", 0, 4, 1.0, True, False),
        ("b", 0, 9, 0.75, True, True),
        ("a", 1, 1, 0.5, False, False),
        ("a", 1, 9, 0.5, False, False),
    ]
    columns = ["task", "seed", "step", "accuracy", "certified_sets", "certified_all"]
    table = pd.DataFrame(rows, columns=columns).assign(start="small")
    found = last_of_runs(table).set_index("task")
    assert found["step"].to_dict() == {"a": 9, "b": 9}
    assert found["accuracy"].to_dict() == {"a": 0.5, "b": 0.75}
    firsts = ["first_right", "first_certified_sets", "first_certified_all"]
    assert found.loc["b", firsts].tolist() == [4, 4, 9]
    assert found.loc["a", firsts].isna().all()
