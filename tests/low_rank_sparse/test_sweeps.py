"""A grid has every combination once, in order, and its whole numbers are whole."""

from lib.low_rank_sparse.sweeps import grid


def test_two_parameters_are_crossed_and_the_second_varies_fastest():
    found = list(grid({"n": [6.0, 9.0], "rate": [0.5, 3.0]}))
    assert found == [
        {"n": 6, "rate": 0.5},
        {"n": 6, "rate": 3},
        {"n": 9, "rate": 0.5},
        {"n": 9, "rate": 3},
    ]


def test_whole_numbers_are_ints_and_texts_stay():
    found = list(grid({"x": [2.0, -0.5, 1e9, 4], "labels": ["1|1"]}))
    assert [one["x"] for one in found] == [2, -0.5, 10**9, 4]
    assert [type(one["x"]) for one in found] == [int, float, int, int]
    assert {one["labels"] for one in found} == {"1|1"}


def test_without_parameters_there_is_one_combination_and_without_values_none():
    assert list(grid({})) == [{}]
    assert list(grid({"x": [1.0], "y": []})) == []
