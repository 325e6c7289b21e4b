"""What git keeps of cross-entropy: tables, and measures, against ones made by hand."""

import pandas as pd
import pytest

from lib.gradual_rank.tables.cross_entropy import FOLDER
from tests.stages.made import files, read_measures, table, whole, worked_out

# With decay three products join in the order 1, 0, 2, by their gradient in the order 2, 1, 0.
MADE = {
    "stages": """
case   seed share stage time next_time strictness_products g        p
linear 4    .1    0     0    1         inf                 .2,-.3,.4 0,0,0
linear 4    .1    2     2    3         .5                  0,0,0    .6,-.5,0
linear 4    .1    1     1    2         .7                  0,0,0    0,-.5,0
linear 4    .1    3     3    inf       .6                  0,0,0    .6,-.5,.7
linear 4    0     0     0    1         inf                 .2,-.3,.4 0,0,0
linear 4    0     1     1    inf       1e-9                0,0,0    0,0,9
head   4    .1    0     0    1         inf                 .3,-.2,.4 0,0,0
head   4    .1    1     1    inf       .25                 0,0,0    0,0,.5
head   4    0     0     0    1         inf                 .3,-.2,.4 0,0,0
head   4    0     1     1    2         2e-9                0,0,0    0,0,4
head   4    0     2     2    inf       1e-9                0,0,0    0,0,5
""",
    "plateaus": """
case   seed share log10_init_scale stage p
linear 4    .1    -2               0     0,0,0
linear 4    .1    -2               1     0,0,.3
linear 4    .1    -2               2     0,-.5,.6
linear 4    .1    -2               3     .5,-.5,.05
linear 4    .1    -8               0     0,0,0
linear 4    .1    -8               1     .05,-.5,0
linear 4    .1    -8               2     0,-.5,.6
linear 4    .1    -8               3     .5,-.5,.6
linear 4    0     -8               0     0,0,0
linear 4    0     -8               1     0,0,8
head   4    .1    -2               0     0,0,0
head   4    .1    -2               1     .4,0,0
head   4    .1    -8               0     0,0,0
head   4    .1    -8               1     0,0,.5
head   4    0     -8               0     0,0,0
head   4    0     -8               1     0,0,3
head   4    0     -8               2     .2,0,6
""",
    "ends": """
case   seed share log10_init_scale error size size_later size_last
linear 4    .1    -2               .3    1.5  1.6        1.7
linear 4    .1    -8               .1    2    2.02       2.03
linear 4    0     -8               7     8    10         11
head   4    .1    -2               .2    .4   .5         .5
head   4    .1    -8               .05   .5   .5         .5
head   4    0     -8               9     4    5          6
""",
    "courses": """
case   seed share log10_init_scale rescaled_time p
linear 4    .1    -8               1             1,2,3
""",
}
MEASURES = """
supports.linear @ 1e-2 | 4: 0
supports.linear @ 1e-8 | 4: .6666667
supports_by_gradient.linear @ 1e-2 | 4: .6666667
supports_by_gradient.linear @ 1e-8 | 4: .6666667
supports_undecayed.linear @ 1e-8 | 4: 1
final_error.linear @ 1e-2 | 4: .3
final_error.linear @ 1e-8 | 4: .1
supports_gain.linear | 4: .6666667
supports_by_gradient_gain.linear | 4: 0
final_error_undecayed.linear | 4: 7
growth.linear | 4: .25
growth_decayed.linear | 4: .01
growth_kept.linear | 4: .5
size_over_decayed.linear | 4: 5.5
strictness.linear | 4: .5
strictness_undecayed.linear | 4: 1e-9
supports.head @ 1e-2 | 4: 0
supports.head @ 1e-8 | 4: 1
supports_by_gradient.head @ 1e-2 | 4: 0
supports_by_gradient.head @ 1e-8 | 4: 1
supports_at_random.head @ 1e-2 | 4: 0
supports_at_random.head @ 1e-8 | 4: 1
supports_undecayed.head @ 1e-8 | 4: .5
final_error.head @ 1e-2 | 4: .2
final_error.head @ 1e-8 | 4: .05
supports_gain.head | 4: 1
supports_by_gradient_gain.head | 4: 1
final_error_undecayed.head | 4: 9
growth.head | 4: .25
growth_decayed.head | 4: 0
growth_kept.head | 4: 1
size_over_decayed.head | 4: 12
strictness.head | 4: .25
strictness_undecayed.head | 4: 1e-9
"""
DRAWN = {"supports_at_random.linear"}  # by a seed's order


@pytest.fixture
def judged(stage, tmp_path):
    """The folder of what the stage wrote."""
    (tmp_path / "f").mkdir()
    for name, text in MADE.items():
        whole(table(text), FOLDER[name]).to_parquet(tmp_path / f"f/{name}.parquet")
    sections = {"any.significant": 0.1, "any.share": 0.1}
    stage("gradual_rank.judge_cross_entropy", sections, *sections, tmp_path / "f", tmp_path / "m")
    return tmp_path / "m"


def test_every_measure_is_the_one_worked_out_by_hand(judged):
    setup, measures = read_measures(judged)
    assert setup == {"n_seeds": "1", "smallest": "1e-8", "largest": "1e-2", "share": "0.1"}
    wanted = worked_out(MEASURES)
    assert {name: measures[name] for name in wanted} == wanted
    assert measures.keys() == wanted.keys() | DRAWN


def test_what_is_drawn_stands_in_git_and_the_looks_at_plateaus_do_not(judged):
    kept = judged / "tables"
    assert files(kept) == ["courses.parquet", "ends.parquet", "stages.parquet", "supports.parquet"]
    ends = pd.read_parquet(kept / "ends.parquet")
    wanted = table(MADE["ends"])
    pd.testing.assert_frame_equal(ends[list(wanted)], wanted, check_dtype=False, rtol=1e-6)
    supports = pd.read_parquet(kept / "supports.parquet")
    assert supports["case"].tolist() == ["linear", "linear", "head", "head"]
    assert supports["supports"].tolist() == pytest.approx([2 / 3, 0, 1, 0])
