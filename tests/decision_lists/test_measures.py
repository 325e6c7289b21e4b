"""Measures of runs on decision lists, on tables made by hand; the test of the evaluate stage has
every measure.
"""

import math

import pandas as pd

from lib.decision_lists.measures import law_measures, thinned


def test_a_law_of_one_scale_has_no_exponent_and_one_of_tasks_right_at_once_none():
    columns = {"task": "c", "at_once": False, "scale": [math.inf, 10.0, 100.0], "path_error": 0.1}
    law = pd.DataFrame(columns | {"rescaled_time": [50.0, 52.0, 50.2]})
    assert law_measures(law, 11) == []
    assert law_measures(law.assign(at_once=True), 10) == []


def test_a_thinned_course_keeps_both_ends():
    path = pd.DataFrame({"step": range(100), "task": "a"})
    assert thinned(path, ["task"], 4)["step"].tolist() == [0, 33, 66, 99]
    assert thinned(path, ["task"], 3, logarithmic=True)["step"].tolist() == [0, 9, 99]
    assert thinned(path.head(2), ["task"], 9)["step"].tolist() == [0, 1]
