"""What git keeps of waits under momentum, ε and warm-up: measures against ones made by hand.

Where σ is one, the learning rate is the strength of a step. With a strength of 1 and no momentum a
step doubles; Adam with β₁ = 0.5 and k = 1 has the root of μ² − 2 μ + 1/2 = 0.
"""

import math

import pandas as pd
import pytest

from lib.gradual_rank.tables.momentum import FOLDER
from tests.stages.made import read_measures, table, whole, worked_out

RISES = """
case  rule     beta beta_2 eps   warmup log10_init_scale rise growth growth_2 second
plain sgd      0    0      0     0      -1               5    .6     .3       .1
plain sgd      0    0      0     0      -2               8    .7     .35      .2
half  sgd      .5   0      0     0      -1               3    .8     .6       .1
half  sgd      .5   0      0     0      -3               7    .8     .4       .2
ahead nesterov .5   0      0     0      -1               2    .8     .6       .1
ahead nesterov .5   0      0     0      -3               inf  .8     .4       -
warm  sgd      0    0      0     3      -1               8    .6     .3       .1
mild  adam     .5   .9     1     0      -2               2    .6     .3       .1
mild  adam     .5   .9     1     0      -4               9    .6     .3       .3
none  adam     .5   .9     1e-30 0      -2               5    .6     .3       .4
none  adam     .5   .9     1e-30 0      -4               4    .6     .3       .5
"""
COURSES = """
case  seed log10_init_scale step value
plain 4    -2               0    .1
plain 4    -2               3    .2
warm  4    -1               2    .3
none  4    -2               2    .3
"""
MADE = {
    "rises": table(RISES).assign(seed=4, learning_rate=1, sigma=1, sigma_2=0.5, joint=0.16),
    "courses": table(COURSES),
}
LOG10 = math.log(10)
MU = 1 + math.sqrt(0.5)  # Adam's
HALF = 1.25 + math.sqrt(1.25**2 - 0.5)  # momentum 1/2, strength 1
AHEAD = 1.5 + math.sqrt(1.25)  # Nesterov's
SECOND = 1 + math.sqrt(0.5)  # momentum 1/2, strength 1/2
EXPONENT = math.log(4 * 0.04 / 0.16) / 2 + LOG10  # at 1e-1: log 10, as 4 q is the square of w


def lagged(mu, small, first):
    return math.log((first - small) / (mu - small))


PLAIN = EXPONENT / math.log(2)
LATE = {
    "half": (EXPONENT - lagged(HALF, 0.5 / HALF, 2)) / math.log(HALF),
    "half 3": (3 * EXPONENT - lagged(HALF, 0.5 / HALF, 2)) / math.log(HALF),
    "ahead": (EXPONENT - lagged(AHEAD, 1 / AHEAD, 2.5)) / math.log(AHEAD),
}
WARM = 3 + (EXPONENT - math.log(4 / 3 * 5 / 3 * 2)) / math.log(2)


def off(rise, said):
    """How far a forecast is from a rise, over the rise; a line between the ends of its step."""
    return abs(rise - said) / rise


MEASURES = f"""
wait_ratio.plain | 4: {3 * math.log(2) / LOG10}
wait_ratio_alone.plain | 4: {3 * math.log(2) / LOG10}
steps_a_decade.plain | 4: 3
second_growth.plain | 4: .5
nearness.plain | 4: {0.5 * math.log(2) / math.log(1.5)}
nearness_alone.plain | 4: 1
forecast_error.plain @ 1e-1 | 4: {off(5, PLAIN)}
forecast_error.plain @ 1e-2 | 4: {off(8, 2 * PLAIN)}
wait_ratio.half | 4: {4 * math.log(HALF) / (2 * LOG10)}
wait_ratio_alone.half | 4: {4 * math.log(3) / (2 * LOG10)}
steps_a_decade.half | 4: 2
second_growth.half | 4: .5
nearness.half | 4: {0.5 * math.log(HALF) / math.log(SECOND)}
nearness_alone.half | 4: 1
forecast_error.half @ 1e-1 | 4: {off(3, LATE["half"])}
forecast_error.half @ 1e-3 | 4: {off(7, LATE["half 3"])}
forecast_error_alone.half @ 1e-1 | 4: {off(3, PLAIN)}
forecast_error_alone.half @ 1e-3 | 4: {off(7, 3 * PLAIN)}
forecast_error.ahead @ 1e-1 | 4: {off(2, LATE["ahead"])}
forecast_error_alone.ahead @ 1e-1 | 4: {off(2, PLAIN)}
forecast_error.warm @ 1e-1 | 4: {off(8, WARM)}
forecast_error_constant.warm @ 1e-1 | 4: {off(8, PLAIN)}
warmup_steps.warm @ 1e-1 | 4: {8 - PLAIN}
wait_ratio.mild | 4: {7 * math.log(MU) / (2 * LOG10)}
wait_ratio_alone.mild | 4: {7 * math.log(2) / (2 * LOG10)}
steps_a_decade.mild | 4: 3.5
second_share.mild @ 1e-2 | 4: .1
second_share.mild @ 1e-4 | 4: .3
added_steps.mild | 4: 7
root_error.mild | 4: {abs(7 - 2 * LOG10 / math.log(MU))}
steps_a_decade.none | 4: -.5
second_share.none @ 1e-2 | 4: .4
second_share.none @ 1e-4 | 4: .5
added_steps.none | 4: 1
"""


@pytest.fixture
def judged(stage, tmp_path):
    """The folder of what the stage wrote."""
    (tmp_path / "f").mkdir()
    for name, made in MADE.items():
        numbers = {key: float for key, of in FOLDER[name].columns.items() if of.kind == "number"}
        whole(made, FOLDER[name]).astype(numbers).to_parquet(tmp_path / f"f/{name}.parquet")
    sections = {"any.threshold": 0.04, "any.width": 2}
    stage("gradual_rank.judge_momentum", sections, *sections, tmp_path / "f", tmp_path / "m")
    return tmp_path / "m"


def test_every_measure_is_the_one_worked_out_by_hand(judged):
    setup, measures = read_measures(judged)
    assert setup == {"n_seeds": "1", "adam_rate": "1"}
    wanted = worked_out(MEASURES)
    assert {name: measures[name] for name in wanted} == wanted


def test_one_number_under_adam_comes_where_the_least_epsilon_says(judged):
    """Its end is where four steps without ε take it from 1e-4 |w| / 2 d, |w| = 0.4."""
    measured = read_measures(judged)[1]
    assert measured["memory_error.none"][""]["4"] > 0
    path = [1e-4 * 0.4 / 4, 1e-2 * 0.4 / 4]
    end = adam(path[0], 1e-30, 4)[-1]
    took = [steps(adam(start, 1.0, 40), end) for start in path]
    wanted = abs(7 - (took[0] - took[1]))
    assert measured["memory_error.mild"][""]["4"] == pytest.approx(wanted, rel=1e-4)


def adam(x, eps, n):
    """One number with the slope x under Adam at rate 1, with β₁ = 0.5 and β₂ = 0.9."""
    found, m, v = [x], 0.0, 0.0
    for t in range(1, n + 1):
        m, v = (m + x) / 2, 0.9 * v + 0.1 * x * x
        x += m / (1 - 0.5**t) / (math.sqrt(v / (1 - 0.9**t)) + eps)
        found.append(x)
    return found


def steps(course, end):
    k = next(k for k, x in enumerate(course) if x >= end)
    return k - 1 + math.log(end / course[k - 1]) / math.log(course[k] / course[k - 1])


def test_courses_have_what_the_start_says_of_them(judged):
    courses = pd.read_parquet(judged / "tables/courses.parquet")
    assert courses["case"].tolist() == ["plain", "plain", "warm"]
    first = 1e-4 * 0.16 / 4
    wanted = [first, first * 2**6, 1e-2 * 0.04 * (4 / 3 * 5 / 3) ** 2]
    assert courses["expected"].tolist() == pytest.approx(wanted, rel=1e-5)


def test_the_lines_of_the_root_are_those_of_each_head_and_of_adam(judged):
    roots = pd.read_parquet(judged / "tables/roots.parquet")
    heads = roots[roots["seed"] == 4]
    for place, wait in zip(heads["place"], heads["wait"], strict=True):
        half = (2 + place) / 2
        mu = half + math.sqrt(half**2 - place)
        assert wait == pytest.approx(math.log(2) / math.log(mu), rel=1e-5)
    adam = roots[roots["seed"] == -1]
    for place, wait in zip(adam["place"], adam["wait"], strict=True):
        half = (1.5 + place / 2) / 2
        mu = half + math.sqrt(half**2 - 0.5)
        assert wait == pytest.approx(LOG10 / math.log(mu), rel=1e-4)
