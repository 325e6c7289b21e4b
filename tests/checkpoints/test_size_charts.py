"""Where the page of `make lora` draws each adapter, and what it says beside the axes."""

import math

import pytest

from lib.checkpoints.figures.fine_tunes import RULES
from lib.checkpoints.figures.size_charts import ROOM, WIDE, short, size_chart, ticks

LOSSES = {"run": "tuned", "loss_base": 3.0, "loss_tuned": 1.0, "loss_ceiling": 1.5}
NO = math.nan
COLORS = {rule: color for rule, (color, _) in RULES.items()}


def row(rule, budget, parameters, loss, noise=NO, *, chosen=False):
    return {
        "rule": rule,
        "budget": budget,
        "parameters": parameters,
        "loss_on_base": loss,
        "noise": noise,
        "chosen": chosen,
    }


ROWS = [
    row("uniform", 4, 400, 2.0),
    row("uniform", 1, 100, 2.5, chosen=True),
    row("attributed", 1, 100, 2.25, 0.25),
    row("attributed", 4, 400, 1.75, 0.125, chosen=True),
    row("uniform", 2, 200, 2.25),
]


def test_sizes_are_drawn_by_their_logarithm_and_losses_upwards():
    chart = size_chart(ROWS, LOSSES, COLORS)
    of = {curve.rule: curve.points for curve in chart.curves}
    assert list(of) == ["attributed", "uniform"]
    middle = WIDE // 2  # 200 lies midway between 100 and 400, and the loss 2 between 1 and 3
    assert [point.x for point in of["uniform"]] == [ROOM, middle, WIDE - ROOM]
    assert of["uniform"][-1].y == middle
    assert [point.written for point in of["uniform"]] == [True, False, False]
    heights = [point.y for point in of["uniform"]]
    assert heights == sorted(heights)  # a lower loss is lower on the page


def test_levels_are_the_base_above_and_the_fine_tune_below():
    chart = size_chart(ROWS, LOSSES, COLORS)
    assert (chart.levels["base"].place, chart.levels["base"].text) == (ROOM, "3")
    assert (chart.levels["tuned"].place, chart.levels["tuned"].text) == (WIDE - ROOM, "1")
    assert chart.levels["ceiling"].place == WIDE - ROOM - (WIDE - 2 * ROOM) // 4
    without = {name: value for name, value in LOSSES.items() if name != "loss_ceiling"}
    assert list(size_chart(ROWS, without, COLORS).levels) == ["base", "tuned"]


def test_noise_is_drawn_to_both_sides_and_not_where_there_is_none():
    curves = {curve.rule: curve.points for curve in size_chart(ROWS, LOSSES, COLORS).curves}
    per_nat = (WIDE - 2 * ROOM) / 2
    first = curves["attributed"][0]
    assert first.y - first.top == pytest.approx(0.25 * per_nat, abs=1)
    assert first.bottom - first.y == pytest.approx(0.25 * per_nat, abs=1)
    assert all(point.top == point.y == point.bottom for point in curves["uniform"])


def test_the_axes_name_ranks_sizes_and_round_losses():
    chart = size_chart(ROWS, LOSSES, COLORS)
    assert [size.text for size in chart.sizes] == ["rank 1\n100", "rank 2\n200", "rank 4\n400"]
    assert [loss.text for loss in chart.losses] == ["1", "1.5", "2", "2.5", "3"]
    assert short(12_345) == "12.3 k"
    assert short(71_680_000) == "71.7 M"


def test_without_a_measured_loss_there_is_no_chart():
    assert size_chart([row("uniform", 1, 100, NO)], LOSSES, COLORS) is None
    assert size_chart([row("uniform", 1, 100, None)], LOSSES, COLORS) is None


def test_one_size_and_one_loss_stand_in_the_middle():
    alone = {"run": "tuned", "loss_base": 2.0, "loss_tuned": 2.0}
    [curve] = size_chart([row("uniform", 1, 100, 2.0)], alone, COLORS).curves
    assert (curve.points[0].x, curve.points[0].y) == (WIDE // 2, WIDE // 2)


@pytest.mark.parametrize(("least", "most"), [(0.0, 1.0), (1.254, 2.515), (5.001, 5.002), (0, 9e6)])
def test_ticks_are_few_and_lie_within(least, most):
    found = ticks(least, most)
    assert 1 <= len(found) <= 5
    assert least <= found[0] + 1e-12
    assert found[-1] <= most + 1e-9
