"""A verdict on unseen seeds stands beside the one here, with the bar, the case and the worst value."""

import pytest

from lib.pages.unseen import bar_in_words, comparison, numbers, of_claim, of_item_with_numbers


def made(interval, better="near", over="every", **more):
    one = {"interval": interval, "better": better, "over": over, "repeated": True, "holds": True}
    return one | more


def case(name, value, low, high, *, holds=True):
    return {"case": name, "value": value, "min": low, "max": high, "n": 8, "holds": holds}


@pytest.mark.parametrize(
    ("interval", "better", "over", "words"),
    [
        ("[0, 1.5]", "less", "every", "every value at most 1.5"),
        ("(-10, 0)", "less", "every", "every value less than 0"),
        ("[1.1, inf)", "more", "every", "every value at least 1.1"),
        ("(0, inf)", "more", "mean", "mean more than 0"),
        ("[0.95, 1.05]", "near", "median", "median 0.95 to 1.05"),
        ("[0, 0]", "less", "every", "every value 0"),
    ],
)
def test_a_bar_is_said_by_the_end_that_may_be_missed(interval, better, over, words):
    assert bar_in_words(made(interval, better, over)) == words


@pytest.mark.parametrize(
    ("interval", "better", "worst"),
    [("[0, 3]", "less", "2.5"), ("[0, 3]", "more", "0.5"), ("[0, 2.4]", "near", "2.5")],
)
def test_the_worst_value_is_the_nearest_to_the_bar_or_the_farthest_beyond(interval, better, worst):
    one = case("a", 1.0, 0.5, 2.5)
    assert numbers(made(interval, better), one) == f"median 1, worst {worst}"
    assert numbers(made(interval, better, "mean"), one) == "mean 1"


def test_a_number_has_the_digits_that_tell_it_from_its_bar():
    assert numbers(made("[0, 2]", "less"), case("a", 2.00283, 2.00283, 2.00283)) == "2.003"
    assert numbers(made("[0, 2]", "less"), case("a", 2.0, 2.0, 2.0)) == "2"


def test_here_and_unseen_show_the_case_that_turned():
    cases = [case("a", 1.0, 0.96, 1.0), case("b", 1.0, 0.99, 1.02)]
    claim = made("[0.95, 1.05]", cases=cases, fragile=True, **cases[0])
    failed = case("b", 1.0, 0.99, 1.24, holds=False)
    claim["unseen"] = {"7": {"holds": False, "value": 1.0}}
    runs = {"7": {"c": failed | {"cases": [case("a", 1.0, 0.97, 1.0), failed]}}}
    said = "bar: every value 0.95 to 1.05; here: median 1, worst 1.02 (b); "
    said += "on seeds +7: median 1, worst 1.24"
    assert str(comparison(claim, "c", runs)) == said
    assert of_claim(claim, "c", runs) == f"fragile: does not hold on seeds +7 ({said})"
    item = {"answer": "reproduced", "repeated": True, "fragile": True, "claims": ["c"]}
    item["unseen"] = {"7": {"answer": "not reproduced"}}
    words = f"fragile: the answer is not reproduced on seeds +7 ({said})"
    assert of_item_with_numbers(item, {"c": claim}, runs) == words


def test_a_run_that_kept_one_case_says_so_unless_the_claim_has_one_alone():
    cases = [case("a", 1.0, 0.9, 1.1), case("b", 2.0, 1.9, 2.1)]
    claim = made("[0, 3]", "less", cases=cases, **cases[1])
    runs = {"7": {"c": {"holds": True, "value": 1.5, "min": 1.4, "max": 1.6}}}
    said = str(comparison(claim, "c", runs))
    assert said.endswith(
        "here: median 2, worst 2.1 (b); on seeds +7: median 1.5, worst 1.6 (nearest case)"
    )
    claim["cases"] = cases[1:]
    assert str(comparison(claim, "c", runs)).endswith("on seeds +7: median 1.5, worst 1.6")
