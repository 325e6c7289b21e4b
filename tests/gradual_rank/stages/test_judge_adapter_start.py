"""What git keeps of LoRA's start: tables, and measures, against ones made by hand."""

import math

import pandas as pd
import pytest

from lib.gradual_rank.figures.adapter_start import adapter_start
from lib.pages.bars import Bar, Interval
from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import legend, read_measures, table, worked_out

COLUMNS = (
    "case seed log10_init_scale rank ratio pace direction sigma measured "
    "forecast alone small equal shuffled"
)
LEARNED = """
apart  3 0  4 1   1  0 2  3        2   1  1  1  1
apart  3 0  4 1   1  1 1  4        4   2  1  1  1
apart  3 -2 4 1   1  0 2  10       8   10 5  20 40
apart  3 -2 4 1   1  1 1  20       20  16 16 16 25
apart  3 -4 4 1   1  0 2  20       20  16 10 20 40
apart  3 -4 4 1   1  1 1  16       20  32 8  16 20
close  3 -2 8 1   1  0 1  10       10  12 1  1  1
close  3 -2 8 1   1  1 .9 12       12  11 1  1  1
close  3 -2 8 1   1  2 .8 11       11  10 1  1  1
close  4 -2 8 1   1  0 1  1        1   3  1  1  1
close  4 -2 8 1   1  1 .9 2        3   2  1  1  1
close  4 -2 8 1   1  2 .8 3        2   1  1  1  1
head   3 -2 6 1   1  0 2  10       8   5  1  20 40
plus   3 -2 4 16  4  0 2  2        1.6 1  1  1  1
plus   3 -2 4 16  4  1 1  5        4   1  1  1  1
plus   3 -2 4 .25 .5 0 2  20       20  1  1  1  1
scaled 3 -2 4 1   4  0 2  2.5      1   1  1  1  1
scaled 3 -2 4 1   4  1 1  5        1   1  1  1  1
both   3 -2 4 1   1  0 2  1        1   1  1  1  1
both   3 -4 4 1   1  0 2  3.302585 1   1  1  1  1
output 3 -2 4 1   1  0 2  1        1   1  1  1  1
output 3 -4 4 1   1  0 2  1        1   1  1  1  1
adam   3 -2 4 1   1  0 2  4        1   1  1  1  1
adam   3 -2 4 1   1  1 1  6        1   1  1  1  1
adam   3 -4 4 1   1  0 2  5        1   1  1  1  1
adam   3 -4 4 1   1  1 1  3        1   1  1  1  1
"""
COURSES = """
case  log10_init_scale rank ratio direction target time learned expected
apart -2               4    1     0         2      1    0       0
apart -2               4    1     0         2      3    2       inf
apart -2               8    1     0         2      5    1       6
apart -2               8    1     1         1      5    .5      4
apart -2               16   1     0         2      7    1       7
apart -4               8    1     0         2      9    1       9
head  -2               8    1     0         2      9    1       9
"""
MEASURES = """
time_error.rank 4 @ 1e0 | 3: .5
time_error.rank 4 @ 1e-2 | 3: .25
time_error.rank 4 @ 1e-4 | 3: .2
time_error_alone.rank 4 @ 1e0 | 3: 2
time_error_alone.rank 4 @ 1e-2 | 3: .25
time_error_alone.rank 4 @ 1e-4 | 3: .5
time_error_equal.rank 4 @ 1e0 | 3: 3
time_error_equal.rank 4 @ 1e-2 | 3: .5
time_error_equal.rank 4 @ 1e-4 | 3: 0
time_error_shuffled.rank 4 @ 1e0 | 3: 3
time_error_shuffled.rank 4 @ 1e-2 | 3: .75
time_error_shuffled.rank 4 @ 1e-4 | 3: .5
last.rank 4 @ 1e0 | 3: 1
last.rank 4 @ 1e-2 | 3: 1
last.rank 4 @ 1e-4 | 3: 1
last_alone.rank 4 @ 1e0 | 3: 2
last_alone.rank 4 @ 1e-2 | 3: 1.25
last_alone.rank 4 @ 1e-4 | 3: 1.25
small.rank 4 @ 1e0 | seed 3, direction 0: 3 | seed 3, direction 1: 4
small.rank 4 @ 1e-2 | seed 3, direction 0: 2 | seed 3, direction 1: 1.25
small.rank 4 @ 1e-4 | seed 3, direction 0: 2 | seed 3, direction 1: 2
time_error.head rank 6 @ 1e-2 | 3: .25
time_error_alone.head rank 6 @ 1e-2 | 3: 1
time_error_equal.head rank 6 @ 1e-2 | 3: .5
time_error_shuffled.head rank 6 @ 1e-2 | 3: .75
last.head rank 6 @ 1e-2 | 3: 1.25
last_alone.head rank 6 @ 1e-2 | 3: 2
order.rank 8 | 3: 1 | 4: .3333333
order_alone.rank 8 | 3: -.3333333 | 4: -1
order_sigma.rank 8 | 3: .3333333 | 4: 1
slope.zero | seed 3, direction 0: 4.342945 | seed 3, direction 1: -.8685890
slope.both | seed 3, direction 0: 1
slope.output | seed 3, direction 0: 0
plus.more @ 1e-2 | seed 3, direction 0: 1 | seed 3, direction 1: 1.25
plus_root.more @ 1e-2 | seed 3, direction 0: .8 | seed 3, direction 1: 1
plus.less @ 1e-2 | seed 3, direction 0: .8
plus_root.less @ 1e-2 | seed 3, direction 0: 1
pace_gap | 3: .25
change.adam | 3: .25
change.flow | 3: .6
spread.adam | 3: 1.5
spread.flow | 3: 2
"""


@pytest.fixture
def judged(stage, tmp_path):
    """The setup, the measures and the tables."""
    (tmp_path / "d").mkdir()
    for name, text in {"learned": COLUMNS + LEARNED, "courses": COURSES}.items():
        whole_of(f"adapters/{name}", table(text)).to_parquet(tmp_path / f"d/{name}.parquet")
    stage("gradual_rank.judge_adapter_start", {}, tmp_path / "d", tmp_path / "m")
    kept = tmp_path / "m" / "tables"
    return *read_measures(tmp_path / "m"), {
        name: pd.read_parquet(kept / f"{name}.parquet") for name in ("learned", "course", "orders")
    }


def test_every_measure_is_the_one_worked_out_by_hand(judged):
    setup, measures, _ = judged
    assert setup == {"n_seeds": "1", "n_close": "2", "n_decreasing": "1"}
    assert measures == worked_out(MEASURES)


def test_the_course_is_that_of_the_middle_rank_from_a_hundredth(judged):
    course = judged[-1]["course"]
    assert course[["direction", "time", "expected"]].values.tolist() == [[0, 5, 6], [1, 5, 4]]


def test_the_figure_has_the_course_the_errors_the_last_direction_and_the_orders(judged):
    bar = Bar(Interval("[0, 0.05]"), "less")
    kept = judged[-1]
    figure = adapter_start(kept["learned"], kept["course"], kept["orders"], {"adapter_times": bar})
    course, errors, last, orders = figure.axes
    assert len(course.lines) == 4  # a line and a dashed one for each direction
    of_flow, of_start = course.lines[:2]
    assert (of_flow.get_xdata()[0], of_start.get_xdata()[0]) == (5, 6)
    assert of_start.get_linestyle() == "--"
    drawn = {line.get_label(): line for line in errors.lines}
    by_scale = drawn["matrices"]
    assert sorted(by_scale.get_ydata()) == pytest.approx([0.2, 0.25, 0.5])
    assert sorted(by_scale.get_xdata()) == pytest.approx([1e-4, 1e-2, 1])
    assert drawn["σ of another direction"].get_ydata().max() == pytest.approx(3)
    assert drawn["asked: at most 0.05"].get_ydata()[0] == pytest.approx(0.05)
    alone, ours = last.lines
    assert (alone.get_ydata()[0], ours.get_ydata()[0]) == pytest.approx((1.25, 1))
    by_name = {line.get_label(): line for line in orders.lines}
    assert sorted(by_name["by the forecast"].get_ydata()) == pytest.approx([1 / 3, 1])
    assert "by σ alone" in legend(orders)
    assert math.isclose(orders.lines[3].get_ydata()[0], 2 / 3, rel_tol=1e-6)
