"""What git keeps of heads with normalised queries and keys: measures against ones made by hand."""

import math

import pandas as pd
import pytest

from lib.gradual_rank.tables.normalized import FOLDER
from tests.stages.made import read_measures, table, whole, worked_out

MADE = {
    "heads": """
case    seed log10_init_scale turn rise angle drift stable_rank rank_at_rise rank_at_start
plain   4    -1               2    4    0     .5    1.5         2            3
plain   4    -2               4    9    1     .25   1.25        1.5          3
plain   4    -3               7    14   .5    .2    1.125       1.2          3
plain   9    -1               3    5    -     .1    2.5         2            2
plain   9    -2               5    10   2     .2    2.25        2            2
plain   9    -3               15   18   4     .3    2.125       2            2
qk_norm 4    -1               8    3    0     0     1.1         1.2          3
qk_norm 4    -2               5    6    45    .01   1.3         1.4          3
qk_norm 4    -3               4    8    60    .02   1.5         1.6          3
qk_norm 9    -1               9    4    0     0     1.7         1.8          2
qk_norm 9    -2               10   7    30    .03   1.9         2            2
qk_norm 9    -3               11   9    50    .04   2.1         2.2          2
""",
    "limits": """
case    seed turn growth start_growth
plain   4    inf  .5     .5
plain   9    inf  .25    .25
qk_norm 4    4    1.5    .5
qk_norm 9    8    1      .25
""",
    "courses": "case seed log10_init_scale time turned sigma stable_rank\nplain 4 -1 0 0 1 1",
}
LOG10 = math.log(10)
# A wait ratio is the difference of the last two rises times the rate over log 10.
MEASURES = f"""
turn_change.plain | 4: .75 | 9: 2
turn_change.qk_norm | 4: .2 | 9: .1
wait_ratio.plain | 4: {5 * 0.5 / LOG10} | 9: {8 * 0.25 / LOG10}
wait_ratio.qk_norm | 4: {2 * 1.5 / LOG10} | 9: {2 * 1 / LOG10}
wait_ratio_start.plain | 4: {5 * 0.5 / LOG10} | 9: {8 * 0.25 / LOG10}
wait_ratio_start.qk_norm | 4: {2 * 0.5 / LOG10} | 9: {2 * 0.25 / LOG10}
turn_limit_error.qk_norm @ 1e-1 | 4: 1 | 9: .125
turn_limit_error.qk_norm @ 1e-2 | 4: .25 | 9: .25
turn_limit_error.qk_norm @ 1e-3 | 4: 0 | 9: .375
turn_limit_error_other.qk_norm @ 1e-1 | 4: 0 | 9: 1.25
turn_limit_error_other.qk_norm @ 1e-2 | 4: .375 | 9: 1.5
turn_limit_error_other.qk_norm @ 1e-3 | 4: .5 | 9: 1.75
angle.plain @ 1e-1 | 4: 0
angle.plain @ 1e-2 | 4: 1 | 9: 2
angle.plain @ 1e-3 | 4: .5 | 9: 4
angle.qk_norm @ 1e-1 | 4: 0 | 9: 0
angle.qk_norm @ 1e-2 | 4: 45 | 9: 30
angle.qk_norm @ 1e-3 | 4: 60 | 9: 50
norm_drift.plain @ 1e-1 | 4: .5 | 9: .1
norm_drift.plain @ 1e-2 | 4: .25 | 9: .2
norm_drift.plain @ 1e-3 | 4: .2 | 9: .3
norm_drift.qk_norm @ 1e-1 | 4: 0 | 9: 0
norm_drift.qk_norm @ 1e-2 | 4: .01 | 9: .03
norm_drift.qk_norm @ 1e-3 | 4: .02 | 9: .04
turn_rank.plain @ 1e-1 | 4: 1.5 | 9: 2.5
turn_rank.plain @ 1e-2 | 4: 1.25 | 9: 2.25
turn_rank.plain @ 1e-3 | 4: 1.125 | 9: 2.125
turn_rank.qk_norm @ 1e-1 | 4: 1.1 | 9: 1.7
turn_rank.qk_norm @ 1e-2 | 4: 1.3 | 9: 1.9
turn_rank.qk_norm @ 1e-3 | 4: 1.5 | 9: 2.1
start_rank.plain @ 1e-1 | 4: 3 | 9: 2
start_rank.plain @ 1e-2 | 4: 3 | 9: 2
start_rank.plain @ 1e-3 | 4: 3 | 9: 2
start_rank.qk_norm @ 1e-1 | 4: 3 | 9: 2
start_rank.qk_norm @ 1e-2 | 4: 3 | 9: 2
start_rank.qk_norm @ 1e-3 | 4: 3 | 9: 2
rise_rank.plain @ 1e-1 | 4: 2 | 9: 2
rise_rank.plain @ 1e-2 | 4: 1.5 | 9: 2
rise_rank.plain @ 1e-3 | 4: 1.2 | 9: 2
rise_rank.qk_norm @ 1e-1 | 4: 1.2 | 9: 1.8
rise_rank.qk_norm @ 1e-2 | 4: 1.4 | 9: 2
rise_rank.qk_norm @ 1e-3 | 4: 1.6 | 9: 2.2
"""


@pytest.fixture
def judged(stage, tmp_path):
    """The folder of what the stage wrote."""
    (tmp_path / "f").mkdir()
    for name, text in MADE.items():
        whole(table(text), FOLDER[name]).to_parquet(tmp_path / f"f/{name}.parquet")
    sections = {"any.small": 0.01, "any.turned": 0.5}
    stage("gradual_rank.judge_normalized", sections, *sections, tmp_path / "f", tmp_path / "m")
    return tmp_path / "m"


def test_every_measure_is_the_one_worked_out_by_hand(judged):
    setup, measures = read_measures(judged)
    assert setup == {"n_seeds": "2", "smallest": "1e-3", "small": "0.01", "turned": "0.5"}
    wanted = worked_out(MEASURES)
    assert {name: measures[name] for name in wanted} == wanted
    assert measures.keys() == wanted.keys()


def test_what_was_followed_stands_in_git_as_it_is(judged):
    kept = pd.read_parquet(judged / "tables/heads.parquet")
    wanted = table(MADE["heads"])
    pd.testing.assert_frame_equal(kept[list(wanted)], wanted, check_dtype=False)
