"""What git keeps of weight decay: tables, and measures, against ones made by hand."""

import pandas as pd
import pytest

from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import files, read_measures, table, worked_out

MADE = {
    "heads": """
seed share log10_init_scale first_rise expected rank rest_error ridge_error product_error
4    0     -2               2          2.5      8    -          -           .9
4    .5    -2               4          5        6    .1         .3          .5
4    .8    -2               5          4        5    .2         .4          .6
4    0     -6               3          3.5      8    -          -           .9
4    .5    -6               8          6        4    .15        .35         .55
4    .8    -6               10         9        2    .25        .45         .65
4    1.3   -6               inf        inf      0    .9         .9          .9
7    0     -6               5          4        9    -          -           .9
7    .8    -6               20         25       3    .125       .375        .75
7    1.3   -6               30         inf      0    .9         .9          .9
""",
    "full": """
seed share log10_init_scale to_rest first_rise expected rank_KQ rank_VO on_KQ off_KQ on_VO off_VO
4    0     -2               False   4.0        3.0      1       1       .9    .9     .9    .9
4    .5    -2               False   5          6        1       1       .9    .9     .9    .9
4    1.3   -2               False   9          9        1       1       .9    .9     .9    .9
4    0     -.5              True    1          1        4       5       .9    .9     .9    .9
4    .5    -.5              True    1          1        3       4       .1    .2     .3    .25
4    .8    -.5              True    1          1        1       2       .4    .3     .2    .1
7    0     -.5              True    1          1        8       10      .9    .9     .9    .9
7    .8    -.5              True    1          1        2       5       .2    .5     .3    .4
""",
    "stages": "seed share stage time p\n4 .5 0 0 1,2",
    # Seed 4 has from 1e-6: a join as without decay, one that would not, one that is not measured;
    # what is too low, never predicted, or of another share or sign is not counted.
    "rises": """
seed share log10_init_scale coordinate sign measured predicted height
4    0     -6               0          1    1        2         .5
4    0     -6               1          1    1        inf       .5
4    0     -6               2          -1   1        9         .5
4    0     -6               2          1    1        3         .5
4    0     -6               3          1    1        4         .5
4    .5    -6               0          1    4        5         .5
4    .5    -6               1          1    5        8         .5
4    .5    -6               2          1    8        6         .5
4    .5    -6               3          1    10       9         .1
4    .8    -6               0          1    10       inf       .5
4    .8    -6               3          1    inf      7         .2
4    1.3   -6               0          1    2        3         .5
7    0     -2               5          1    1        6         .5
7    .5    -2               5          1    8        10        .5
""",
    "courses": """
seed share log10_init_scale rescaled_time p
4    .8    -6               1             1,2
4    .8    -2               1             3,4
4    .5    -6               1             5,6
7    .8    -6               1             7,8
""",
}
MEASURES = """
rise_error.diagonal @ 1e-2 | seed 4, share 0.5: .25 | seed 4, share 0.8: .2
rise_error.diagonal @ 1e-6 | seed 4, share 0.5: .25 | seed 4, share 0.8: .1 | seed 7, share 0.8: .25
rise_undecayed.diagonal @ 1e-2 | seed 4, share 0.5: .375 | seed 4, share 0.8: .5
rise_undecayed.diagonal @ 1e-6 | seed 4, share 0.5: .5625 | seed 4, share 0.8: .65 \
| seed 7, share 0.8: .8
rise_error.full @ 1e-2 | seed 4, share 0.5: .2
rise_undecayed.full @ 1e-2 | seed 4, share 0.5: .4
rest_error.diagonal @ 1e-2 | seed 4, share 0.5: .1 | seed 4, share 0.8: .2
rest_error.diagonal @ 1e-6 | seed 4, share 0.5: .15 | seed 4, share 0.8: .25 \
| seed 7, share 0.8: .125
ridge_error.diagonal @ 1e-2 | seed 4, share 0.5: .3 | seed 4, share 0.8: .4
ridge_error.diagonal @ 1e-6 | seed 4, share 0.5: .35 | seed 4, share 0.8: .45 \
| seed 7, share 0.8: .375
rest_error.full | seed 4, share 0.5: .3 | seed 4, share 0.8: .4 | seed 7, share 0.8: .5
time_constant @ 1e-2 | seed 7, share 0.5: 1.151293
time_constant @ 1e-6 | seed 4, share 0.5: 3.453878 | seed 4, share 0.8: 13.81551
order @ 1e-2 | seed 7, share 0.5: 1
order @ 1e-6 | seed 4, share 0.5: .3333333 | seed 4, share 0.8: 1
time_constant_without @ 1e-2 | seed 7, share 0.5: 1.151293
time_constant_without @ 1e-6 | seed 4, share 0.5: 8.634694 | seed 4, share 0.8: 13.81551
order_without @ 1e-2 | seed 7, share 0.5: 1
order_without @ 1e-6 | seed 4, share 0.5: .3333333 | seed 4, share 0.8: 1
rank_kept.diagonal | 4: .25 | 7: .3333333
rank_kept.W_KQ | 4: .25 | 7: .25
rank_kept.W_VO | 4: .4 | 7: .5
risen_above | 4: 1 | 7: 1
"""


@pytest.fixture
def judged(stage, tmp_path):
    """The setup, the measures and the tables."""
    (tmp_path / "d").mkdir()
    for name, text in MADE.items():
        whole_of(f"decayed/{name}", table(text)).to_parquet(tmp_path / f"d/{name}.parquet")
    sections = {"any.significant": 0.1}
    stage("gradual_rank.judge_decay", sections, *sections, tmp_path / "d", tmp_path / "m")
    kept = tmp_path / "m" / "tables"
    return *read_measures(tmp_path / "m"), {
        name.removesuffix(".parquet"): pd.read_parquet(kept / name) for name in files(kept)
    }


def test_every_measure_is_the_one_worked_out_by_hand(judged):
    setup, measures, _ = judged
    assert setup == {"n_seeds": "2", "most": "0.8"}
    assert measures == worked_out(MEASURES)


def test_joins_are_those_that_are_predicted_and_high_beside_their_time_without_decay(judged):
    joins = judged[-1]["joins"]
    wanted = table("""
seed share coordinate measured without
4    .5    0          4        2
4    .5    1          5        inf
4    .5    2          8        3
4    .8    3          inf      4
7    .5    5          8        6
""")
    found = joins[list(wanted)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)


def test_the_course_is_that_of_the_least_seed_the_middle_share_and_the_smallest_scale(judged):
    kept = judged[-1]
    assert [p.tolist() for p in kept["course"]["p"]] == [[1, 2]]
    assert [p.tolist() for p in kept["plateaus"]["p"]] == [[1, 2]]


def test_full_matrices_are_told_apart_by_whether_they_come_to_rest(judged):
    kept = judged[-1]
    assert kept["full_rises"][["share", "first_rise", "undecayed"]].values.tolist() == (
        [[0, 4, 3], [0.5, 5, 3], [pytest.approx(1.3), 9, 3]]
    )
    assert kept["full_rests"]["rank_VO"].tolist() == [5, 4, 2, 10, 5]
    assert kept["heads"]["undecayed"].tolist() == [2.5] * 3 + [3.5] * 4 + [4] * 3
