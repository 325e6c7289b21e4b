"""A claim's numbers stand on one line in their order, with the bar, the null and unseen seeds."""

import math

import pytest

from lib.pages.number_lines import WIDTH, number_lines, scale

BETWEEN = {"better": "near"}


def made(values, bar="every in [0, 1]", **more):
    case = {"case": "a", "scale": "2", "values": values, "value": values[0], "holds": True}
    return {"bar": bar, "case": "a", "scale": "2", "cases": [case | more]}


def test_places_grow_with_the_numbers_and_the_bar_is_between_its_ends():
    drawn = number_lines(made([0.25, 0.5, None], null={"value": 2.0}))
    [line] = drawn.lines
    assert (line.name, line.decides, line.middle.text, line.null.text) == (
        "a, 2",
        True,
        "0.25",
        "2",
    )
    low, high = drawn.bar
    assert 0 <= low < line.values[0] < line.values[1] < high < line.null.place <= WIDTH
    assert line.middle.place == line.values[0]
    assert line.values[1] - line.values[0] == pytest.approx((high - low) / 4, abs=1)
    assert not drawn.logarithmic


def test_positive_numbers_far_apart_stand_on_a_logarithmic_scale_with_zero_at_its_left_end():
    drawn = number_lines(made([1e-11, 1e-9], "every in [0, 1e-8]", null={"value": 900.0}))
    [line] = drawn.lines
    low, high = drawn.bar
    assert drawn.logarithmic
    assert low == 0
    assert line.values[1] - line.values[0] == pytest.approx(2 * (high - line.values[1]), abs=2)
    assert drawn.ticks[0].text == "0"


def test_a_far_end_of_a_bar_does_not_squeeze_the_numbers():
    drawn = number_lines(made([-0.3, -0.2], "every in (-10, 0)"))
    [line] = drawn.lines
    assert drawn.bar[0] == 0
    assert line.values[1] - line.values[0] > WIDTH / 5
    assert number_lines(made([2.0, 3.0], "every in [1, inf)")).bar[1] == WIDTH


def test_a_null_far_from_a_bar_with_two_ends_does_not_squeeze_the_values():
    """It stands at the end of the line, and the line says so; one that is near has its place."""
    values = [0.986, 1.0, 1.01]
    drawn = number_lines(made(values, "every in [0.95, 1.05]", null={"value": 0.01}) | BETWEEN)
    [line] = drawn.lines
    assert not drawn.logarithmic
    assert (drawn.beyond, line.null.place, line.null.text) == (True, 0, "0.01")
    assert drawn.bar[1] - drawn.bar[0] > WIDTH / 2
    drawn = number_lines(made(values, "every in [0.95, 1.05]", null={"value": 0.9}) | BETWEEN)
    assert not drawn.beyond
    assert 0 < drawn.lines[0].null.place < drawn.bar[0]


def test_a_line_has_few_ticks_at_their_numbers():
    place, ticks, _ = scale([0.0, 0.3, 0.95])
    assert 3 <= len(ticks) <= 6
    assert [place(float(tick.text)) for tick in ticks] == [tick.place for tick in ticks]
    _, ticks, logarithmic = scale([1e-300, 1.0])
    assert logarithmic
    assert len(ticks) <= 6


def test_unseen_seeds_are_marked_and_what_was_not_run_or_is_no_number_has_no_line():
    found = {"70": {"value": 1.5, "worst": 7.0}, "90": {"holds": None}}
    claim = made([1.0, 2.0]) | {"unseen": found}
    drawn = number_lines(claim)
    assert {seeds: [mark.text for mark in marks] for seeds, marks in drawn.unseen.items()} == {
        "70": ["1.5", "7"]
    }
    assert number_lines({"bar": "every in [0, 1]"}) is None
    assert number_lines(made([None, math.inf])) is None
