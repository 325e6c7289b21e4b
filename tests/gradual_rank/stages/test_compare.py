"""What git keeps of the trainings by optimisers: tables for one seed, and measures, against ones
made by hand.
"""

import math

import pandas as pd
import pytest

from lib.gradual_rank.comparison import flow_distances
from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import files, read_measures, table, worked_out

TRAINED = {
    # Muon's low teacher was trained from one scale alone.
    "runs": """
optimizer teacher_rank log10_init_scale seed first_rise growth order separate slope_least slope_most
gd        4            -2               6    1          .1     .1    .2       .3          .4
gd        4            -4               6    4          .25    .5    .6       .7          .8
gd        4            -8               6    10         .5     .9    1        1.1         1.2
gd        4            -2               5    2          .1     .15   .25      .35         .45
gd        4            -4               5    5          .3     .55   .65      .75         .85
gd        4            -8               5    8          .75    .95   1.05     1.15        1.25
gd        2            -4               5    5          .3     .56   .66      .76         .86
gd        2            -8               5    4          .8     .96   1.06     1.16        1.26
muon      4            -4               5    2          .2     -.5   .3       .5          .6
muon      4            -8               5    3          .4     -.9   .7       1.3         -
muon      2            -8               5    3          .4     -.8   .75      1.4         1.5
""",
    "courses": """
optimizer teacher_rank log10_init_scale seed step time W_KQ  W_VO
muon      4            -8               5    5    .5   9,9   2,1
gd        4            -8               5    5    .25  8,8   4,3
gd        2            -8               5    5    .25  7,7   7,7
gd        4            -4               5    5    .25  6,6   6,6
gd        4            -8               6    5    .25  5,5   5,5
""",
    "few": """
optimizer n_samples noise seed effective_rank_KQ best_test_loss
gd        1         0     6    1.25              9
muon      1         0     6    2.25              9
muon      3         0     5    2.5               9
gd        20        .5    6    8                 .2
gd        20        .5    5    8                 .4
muon      20        .5    6    8                 .7
muon      20        .5    5    8                 .6
""",
    "paths": """
optimizer n_samples noise seed step test_loss
gd        1         0     5    0    .5
gd        20        .5    5    1    .25
""",
    "conserved": "optimizer seed square_change_VO\ngd 5 .5",
}
FOLLOWED = {
    "changes": "seed log10_init_scale predicted measured\n5 -4 .5 .25",
    "events": """
seed time coordinate kind
5    .5   0          passes
5    .25  0          slides
5    .75  1          passes
""",
    "paths": """
method  log10_init_scale seed time p
flow    -inf             6    .5   1,-1
flow    -inf             5    0    0,0
flow    -inf             5    .5   2,-2
roots   -inf             6    .5   1.25,-1
roots   -inf             5    0    0,.125
weights -4               5    .5   2.5,-4
weights -6               5    0    .25,0
weights -6               5    .5   1,-2
weights -6               6    .5   1,-1.5
""",
    "slopes": "seed beta_2 slope_KQ slope_VO\n5 .9 1 2",
    "diagonal": """
optimizer       log10_init_scale seed order
gd              -4               6    .1
adam            -4               6    .2
adam            -4               5    .3
'gradient flow' -4               6    .4
'gradient flow' -6               6    .5
""",
    "rises": "optimizer log10_init_scale seed first_rise\ngd -4 5 .5",
}
MEASURES = """
delay.gd | 5: .2442908 | 6: .3257209
delay.gd low | 5: -.0868589
delay_change.gd | 5: .6 | 6: 1.5
delay_change.gd low | 5: .2
delay_steps.gd | 5: 60 | 6: 120
delay_steps.gd low | 5: 20
rise_steps.gd | 5: 100 | 6: 80
rise_steps.gd low | 5: 100
order.gd @ 1e-2 | 5: .15 | 6: .1
order.gd @ 1e-4 | 5: .55 | 6: .5
order.gd @ 1e-8 | 5: .95 | 6: .9
order.gd low @ 1e-4 | 5: .56
order.gd low @ 1e-8 | 5: .96
separate.gd @ 1e-2 | 5: .25 | 6: .2
separate.gd @ 1e-4 | 5: .65 | 6: .6
separate.gd @ 1e-8 | 5: 1.05 | 6: 1
separate.gd low @ 1e-4 | 5: .66
separate.gd low @ 1e-8 | 5: 1.06
slope_least.gd @ 1e-2 | 5: .35 | 6: .3
slope_least.gd @ 1e-4 | 5: .75 | 6: .7
slope_least.gd @ 1e-8 | 5: 1.15 | 6: 1.1
slope_least.gd low @ 1e-4 | 5: .76
slope_least.gd low @ 1e-8 | 5: 1.16
slope_most.gd @ 1e-2 | 5: .45 | 6: .4
slope_most.gd @ 1e-4 | 5: .85 | 6: .8
slope_most.gd @ 1e-8 | 5: 1.25 | 6: 1.2
slope_most.gd low @ 1e-4 | 5: .86
slope_most.gd low @ 1e-8 | 5: 1.26
delay.muon | 5: .0434294
delay_change.muon | 5: .5
delay_steps.muon | 5: 10
rise_steps.muon | 5: 20
order.muon @ 1e-4 | 5: -.5
order.muon @ 1e-8 | 5: -.9
order.muon low @ 1e-8 | 5: -.8
separate.muon @ 1e-4 | 5: .3
separate.muon @ 1e-8 | 5: .7
separate.muon low @ 1e-8 | 5: .75
slope_least.muon @ 1e-4 | 5: .5
slope_least.muon @ 1e-8 | 5: 1.3
slope_least.muon low @ 1e-8 | 5: 1.4
slope_most.muon @ 1e-4 | 5: .6
slope_most.muon low @ 1e-8 | 5: 1.5
effective_rank_KQ.gd on 1 | 6: 1.25
effective_rank_KQ.muon on 1 | 6: 2.25
effective_rank_KQ.muon on 3 | 5: 2.5
best_over_gd.gd | 6: 1 | 5: 1
best_over_gd.muon | 6: 3.5 | 5: 1.5
order_diagonal.adam | 5: .3 | 6: .2
order_diagonal.gradient flow @ 1e-4 | 6: .4
order_diagonal.gradient flow @ 1e-6 | 6: .5
"""


@pytest.fixture
def compared(stage, tmp_path):
    """The setup, the measures and the tables."""
    for folder, tables in (("trained", TRAINED), ("followed", FOLLOWED)):
        (tmp_path / folder).mkdir()
        for name, text in tables.items():
            whole_of(f"{folder}/{name}", table(text)).to_parquet(
                tmp_path / folder / f"{name}.parquet"
            )
    paths = [tmp_path / name for name in ("trained", "followed", "metrics")]
    stage("gradual_rank.compare", {}, *paths)
    kept = tmp_path / "metrics" / "tables"
    return *read_measures(tmp_path / "metrics"), {
        name.removesuffix(".parquet"): pd.read_parquet(kept / name) for name in files(kept)
    }


def test_every_measure_is_the_one_worked_out_by_hand(compared):
    """A delay is the change of the first rise over 4 log 10, times the growth."""
    setup, measures, _ = compared
    assert setup == {"small": "1e-8", "middle": "1e-4"}
    assert measures == worked_out(MEASURES)


def test_courses_are_those_of_the_least_seed_the_full_teacher_and_the_smallest_scale(compared):
    *_, kept = compared
    assert kept["courses"]["optimizer"].tolist() == ["muon", "gd"]
    assert [values.tolist() for values in kept["courses"]["W_VO"]] == [[2, 1], [4, 3]]
    assert kept["noisy_paths"]["test_loss"].tolist() == [0.25]
    assert [p.tolist() for p in kept["flow"]["p"]] == [[0, 0], [2, -2]]
    assert [p.tolist() for p in kept["descent"]["p"]] == [[0.25, 0], [1, -2]]


def test_distances_are_the_largest_of_a_product_from_sign_flow(compared):
    rows = compared[-1]["distances"]
    columns = ["method", "log10_init_scale", "seed", "time", "distance", "passed"]
    assert rows[columns].values.tolist() == [
        ["roots", -math.inf, 6, 0.5, 0.25, False],
        ["roots", -math.inf, 5, 0.0, 0.125, False],
        ["weights", -4, 5, 0.5, 2, True],
        ["weights", -6, 5, 0.0, 0.25, False],
        ["weights", -6, 5, 0.5, 1, True],
        ["weights", -6, 6, 0.5, 0.5, False],
    ]


HANDED_ON = {
    "optimizers": TRAINED["runs"],
    "few": TRAINED["few"],
    "conserved": TRAINED["conserved"],
    "changes": FOLLOWED["changes"],
    "events": FOLLOWED["events"],
    "slopes": FOLLOWED["slopes"],
    "diagonal": FOLLOWED["diagonal"],
    "first_rises": FOLLOWED["rises"],
}


def test_the_other_tables_are_handed_on(compared):
    *_, kept = compared
    for name, text in HANDED_ON.items():
        wanted = table(text)
        found = kept[name].astype(dict.fromkeys(kept[name].select_dtypes("category"), "str"))
        pd.testing.assert_frame_equal(
            found[list(wanted)], wanted, check_dtype=False, rtol=1e-6, obj=name
        )


def test_a_seed_in_which_nothing_passes_has_no_time_after_it():
    rows = table("method log10_init_scale seed time p\nflow -inf 1 9 1,1\nroots -inf 1 9 1,2")
    events = table("seed time coordinate kind\n2 1 0 passes")
    assert flow_distances(rows, events)["passed"].tolist() == [False]
