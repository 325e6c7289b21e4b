"""What git keeps of second events: measures against ones made by hand.

Scales are 1e-1 and 1e-2, so that a time is a number of log 10 where the table has a whole one.
"""

import math

import pandas as pd
import pytest

from lib.gradual_rank.tables.second_event import FOLDER
from tests.stages.made import read_measures, table, whole, worked_out

LOG10 = math.log(10)
HEADS = """
case seed kappa_pair limit_first limit_keys limit_values before crossing
full 4    2          2           4          5            1      -1.4
full 5    1          2           6          5            2      -
one  4    4          1           2          9            1      -
"""
RISES = """
case seed log10_init_scale first keys values first_said keys_said values_said overlap overlap_pair
full 4    -1               1     4    3      1          4.6       3.3         .8      .1
full 4    -2               3     9    inf    3          8.4       12          .9      .2
full 5    -1               2     6    4      2          5         6           .7      .3
full 5    -2               3     8    5      3          9         6           .6      .4
one  4    -1               1     2    inf    1          2         99          .5      .5
one  4    -2               2     5    inf    2          5         99          .5      .5
"""
COURSES = """
case seed log10_init_scale time sigma_keys sigma_values sigma_values_2
full 4    -1               0    .1         .2           .1
full 4    -2               1    .2         .4           .2
full 5    -1               2    .2         .4           .2
one  4    -1               3    .2         .4           .2
"""
MADE = {"heads": table(HEADS), "rises": table(RISES), "courses": table(COURSES)}
IN_EFOLDS = ("first", "keys", "values", "first_said", "keys_said", "values_said")
MEASURES = """
added_wait.full @ 1e-2 | 4: 1.5 | 5: .25
added_wait_pair.full @ 1e-2 | 4: 6 | 5: 1
direction.full @ 1e-1 | 4: .8 | 5: .7
direction.full @ 1e-2 | 4: .9 | 5: .6
direction_pair.full @ 1e-1 | 4: .1 | 5: .3
direction_pair.full @ 1e-2 | 4: .2 | 5: .4
wait_error.full @ 1e-1 | 4: .2 | 5: .25
wait_error.full @ 1e-2 | 4: .1 | 5: .2
wait_error_limit.full @ 1e-1 | 4: .333333 | 5: 0
wait_error_limit.full @ 1e-2 | 4: .333333 | 5: .6
order_right.full | 4: 1 | 5: .5
order_right_limit.full | 4: .5 | 5: 1
values_error.full @ 1e-1 | 4: .1 | 5: .5
values_error.full @ 1e-2 | 5: .2
values_error_limit.full @ 1e-1 | 4: .666667 | 5: .25
values_error_limit.full @ 1e-2 | 5: 1
added_wait.one @ 1e-2 | 4: 2
added_wait_pair.one @ 1e-2 | 4: 8
order_right.one | 4: 1
order_right_limit.one | 4: 1
"""
SETUP = {
    "n_seeds": "2",
    "n_scales": "2",
    "n_flows": "4",
    "n_right": "3",
    "n_right_limit": "3",
    "values_first_largest": "2",
    "values_first_smallest": "1",
    "risen": "0.04",
}


@pytest.fixture
def judged(stage, tmp_path):
    """The folder of what the stage wrote."""
    (tmp_path / "f").mkdir()
    for name, made in MADE.items():
        numbers = {key: float for key, of in FOLDER[name].columns.items() if of.kind == "number"}
        full = whole(made, FOLDER[name]).astype(numbers)
        if name == "rises":
            full[list(IN_EFOLDS)] *= LOG10
        full.to_parquet(tmp_path / f"f/{name}.parquet")
    sections = {"any.threshold": 0.04}
    stage("gradual_rank.judge_second_event", sections, *sections, tmp_path / "f", tmp_path / "m")
    return tmp_path / "m"


def test_every_measure_is_the_one_worked_out_by_hand(judged):
    setup, measures = read_measures(judged)
    assert setup == SETUP
    wanted = worked_out(MEASURES)
    assert {name: measures[name] for name in wanted} == wanted


def test_the_course_is_that_of_the_head_whose_order_changes(judged):
    courses = pd.read_parquet(judged / "tables/courses.parquet")
    assert courses["time"].tolist() == [0, 1]
    assert set(courses["case"]) == {"full"}


def test_waits_stand_beside_what_both_saddles_say(judged):
    waits = pd.read_parquet(judged / "tables/added_waits.parquet")
    assert waits["added"].tolist() == pytest.approx([3, 1, 2])
    assert waits["added_said"].tolist() == [2, 4, 1]
    assert waits["added_pair"].tolist() == [0.5, 1, 0.25]
    assert waits["log10_init_scale"].tolist() == [-2, -2, -2]
