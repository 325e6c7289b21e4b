"""What git keeps of normalised heads after their turn: measures against ones made by hand."""

import math

import pandas as pd
import pytest

from lib.gradual_rank.tables.turns import FOLDER
from tests.stages.made import read_measures, table, whole, worked_out

CASES = (
    *("plain", "qk_norm", "pre_norm", "plain_turn", "learned_gain", "small_gain", "decayed"),
    *("decayed_keys", "decayed_plain", "strong", "strong_plain"),
)
# turn, rise and gain_moved from 1e-1, and from 1e-2; where nothing else is said, as here
PLAIN = ("2 3 inf", "4 6 inf")
TIMES = {
    "pre_norm": ("2 inf inf", "5 inf inf"),
    "learned_gain": ("1 2 3", "1 5 9"),
    "small_gain": ("2 inf inf", "3.5 inf inf"),
    "decayed": ("1 4 inf", "1.5 8 inf"),
    "decayed_keys": ("1 inf inf", "1.25 inf inf"),
    "decayed_plain": ("4 inf inf", "10 inf inf"),
    "strong_plain": ("3 inf inf", "9 inf inf"),
}
LIMITS = {  # sigma, growth, decay, turn, turn_undecayed
    "learned_gain": ".5 .75 0 1 1",
    "pre_norm": ".25 .25 0 inf inf",
    "decayed": ".5 .5 .25 1 2",
    "decayed_keys": ".5 .5 0 1 2.5",
}
DIRECTIONS = """
case seed log10_init_scale matrix direction last begun ended
plain   4 -1 W_KQ 1 1   1 2
plain   4 -1 W_KQ 2 .5  3 4
plain   4 -2 W_KQ 1 1   1 2
plain   4 -2 W_KQ 2 .5  6 7
plain   4 -1 W_VO 1 2   1 2
plain   4 -1 W_VO 2 1   1 3
plain   4 -2 W_VO 1 2   1 2
plain   4 -2 W_VO 2 1   5 6
plain   4 -2 W_VO 3 .1  3 9.5
qk_norm 4 -1 W_KQ 1 1   1 2
qk_norm 4 -1 W_KQ 2 .5  2 4
qk_norm 4 -2 W_KQ 1 1   1 2
qk_norm 4 -2 W_KQ 2 .5  1.5 7
qk_norm 4 -1 W_VO 1 2   1 2
qk_norm 4 -1 W_VO 2 1   1 3
qk_norm 4 -2 W_VO 1 2   1 2
qk_norm 4 -2 W_VO 2 1   4 5
qk_norm 4 -2 W_VO 3 1   4.5 8
"""
LOG10 = math.log(10)
# A wait is the difference of two times, times a rate over log 10.
MEASURES = f"""
values_step.plain | 4: {4 * 0.5 / LOG10}
keys_step.plain | 4: {3 * 0.5 / LOG10}
values_step.qk_norm | 4: {3 * 0.5 / LOG10}
keys_step.qk_norm | 4: {0.5 * 0.5 / LOG10}
separate_values.qk_norm @ 1e-1 | 4: 0
separate_values.qk_norm @ 1e-2 | 4: .5
rank_at_turn.qk_norm | 4: 1.25
rank_at_end.qk_norm | 4: 1.5
left.qk_norm | 4: .75
turn_wait.plain_turn | 4: {2 * 0.5 / LOG10}
turn_wait.pre_norm | 4: {3 * 0.25 / LOG10}
turn_wait_plain_rate.pre_norm | 4: {3 * 0.5 / LOG10}
turn_wait.small_gain | 4: {1.5 * 0.5 / LOG10}
turn_wait_doubled.small_gain | 4: {2 * 1.5 * 0.5 / LOG10}
gain_wait.learned_gain | 4: {6 * 0.75 / LOG10}
gain_wait_uniform.learned_gain | 4: {6 * 0.5 / LOG10}
turn_error.decayed | 4: .5
turn_error.decayed_keys | 4: .25
turn_error_undecayed.decayed_keys | 4: .5
turn_error_undecayed.decayed_plain | 4: 1.5
rise_wait.decayed | 4: {4 * 0.5 / LOG10}
rise_wait_undecayed.decayed | 4: {4 * 0.75 / LOG10}
risen.strong | 4: 1
risen.strong_plain | 4: 0
"""


@pytest.fixture
def judged(stage, tmp_path):
    """The folder of what the stage wrote."""
    heads = ["case seed log10_init_scale turn rise gain_moved rank_at_turn rank_at_end left"]
    limits = ["case seed sigma growth decay turn turn_undecayed sigma_2"]
    for case in CASES:
        for scale, times in zip((-1, -2), TIMES.get(case, PLAIN), strict=True):
            ranks = "1.25 1.5 .75" if scale == -2 else "1.2 1.3 .5"
            heads.append(f"{case} 4 {scale} {times} {ranks}")
        limits.append(f"{case} 4 {LIMITS.get(case, '.5 .5 0 inf inf')} .4")
    made = {
        "heads": "\n".join(heads),
        "limits": "\n".join(limits),
        "directions": DIRECTIONS,
        "courses": "case seed log10_init_scale time W_KQ_1\nplain 4 -1 0 1",
    }
    (tmp_path / "f").mkdir()
    for name, text in made.items():
        whole(table(text), FOLDER[name]).to_parquet(tmp_path / f"f/{name}.parquet")
    sections = {"any.turned": 0.5}
    stage("gradual_rank.judge_turns", sections, *sections, tmp_path / "f", tmp_path / "m")
    return tmp_path / "m"


def test_every_measure_is_the_one_worked_out_by_hand(judged):
    setup, measures = read_measures(judged)
    assert setup == {"n_seeds": "1", "smallest": "1e-2", "turned": "0.5"}
    wanted = worked_out(MEASURES)
    assert {name: measures[name] for name in wanted} == wanted
    assert measures.keys() == wanted.keys()


def test_laws_have_a_number_of_every_head_beside_that_of_their_null(judged):
    laws = pd.read_parquet(judged / "tables/laws.parquet").set_index("law")
    assert list(laws["seed"]) == [4] * 4
    own = laws.loc["rise_wait.decayed"]
    assert own["own"] == pytest.approx(4 * 0.5 / LOG10)
    assert own["other"] == pytest.approx(4 * 0.75 / LOG10)


def test_lags_are_those_of_the_second_direction_behind_the_first(judged):
    lags = pd.read_parquet(judged / "tables/lags.parquet")
    cell = ["case", "matrix", "log10_init_scale"]
    assert lags.set_index(cell)["lag"].to_dict() == {
        ("plain", "W_KQ", -1): 2,
        ("plain", "W_KQ", -2): 5,
        ("plain", "W_VO", -1): 0,
        ("plain", "W_VO", -2): 4,
        ("qk_norm", "W_KQ", -1): 1,
        ("qk_norm", "W_KQ", -2): 0.5,
        ("qk_norm", "W_VO", -1): 0,
        ("qk_norm", "W_VO", -2): 3,
    }
    assert set(lags["seed"]) == {4}
