"""A verdict on unseen seeds stands beside the one here, with the bar, the case and the worst value."""

import pytest

from lib.pages.unseen import (
    bar_in_words,
    comparison,
    failures,
    in_brief,
    numbers,
    of_claim,
    of_item,
    of_item_with_numbers,
    set_when,
)


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


def test_a_run_that_has_not_the_case_shows_its_own_by_its_name():
    cases = [case("a", 1.0, 0.9, 1.1), case("b", 2.0, 1.9, 2.1)]
    claim = made("[0, 3]", "less", cases=cases, **cases[1])
    runs = {"7": {"c": case("old", 1.5, 1.4, 1.6)}}
    said = str(comparison(claim, "c", runs))
    assert said.endswith("worst 2.1 (b); on seeds +7: median 1.5, worst 1.6 (old)")


def test_an_item_names_the_claims_that_fail_here_or_on_unseen_seeds():
    """Of the one that decides, a row says the statement already."""
    at = {"statement": "All are below 3 (a ratio). More.", "cases": [case("a", 1.0, 0.9, 1.1)]}
    failed = [case("a", 4.0, 3.5, 5.0, holds=False), case("b", 4.0, 3.0, 4.1, holds=False)]
    claims = {
        "turned": made("[0, 3]", "less", **at, **at["cases"][0])
        | {"unseen": {"7": {"holds": True}, "8": {"holds": False}}},
        "failing": made("[0, 3]", "less", **at | {"cases": failed}) | failed[0],
        "better": made("[0, 3]", "less", **at | {"cases": failed[:1]})
        | failed[0]
        | {"unseen": {"7": {"holds": True}, "8": {"holds": False}}},
        "holding": made("[0, 3]", "less", **at, unseen={"7": {"holds": True}}),
        "not run": {"holds": None},
    }
    runs = {"8": {"turned": case("a", 4.0, 3.0, 6.0, holds=False)}}
    found = failures({"claims": list(claims)}, claims, runs)
    assert [(one.claim, one.where, one.by, one.brief) for one in found] == [
        ("turned", "fails on seeds +8", "median 4, worst 6 (a)", ""),
        (
            "failing",
            "fails",
            "median 4, worst 5 (a), and in 1 more of 2 cases",
            "All are below 3",
        ),
        ("better", "fails here, but holds on seeds +7", "median 4, worst 5 (a)", "All are below 3"),
    ]


@pytest.mark.parametrize(
    ("statement", "brief"),
    [
        ("As late as g(0) says (g(0) − λ (full) there), to 0.01.", "As late as g(0) says, to 0.01"),
        ("It is at most 0.5; the order is 1.", "It is at most 0.5"),
        ("Both do. Others too.", "Both do"),
    ],
)
def test_a_statement_in_brief_is_its_first_sentence_without_asides(statement, brief):
    assert in_brief(statement) == brief


def test_the_bar_of_an_item_is_that_of_its_main_claim_and_says_where_others_differ():
    item = {"stood": "set before the first run", "claims": ["main", "other"]}
    main = {"stood": "before"}
    alike = set_when(item, {"main": main, "other": main})
    assert alike == "ours, set before the first run"
    apart = set_when(item, {"main": main, "other": {"stood": "after"}})
    assert apart == "ours, set before the first run (the main claim's; others differ)"
    guarded = set_when(item, {"main": main, "other": {"stood": "after", "check": True}})
    assert guarded == alike
    assert set_when({"claims": []}, {}) == ""


def test_an_item_of_a_published_run_says_that_another_of_its_claims_turned():
    item = {"answer": "no", "repeated": False, "claims": ["main", "other"]}
    still = {"main": {}, "other": {"fragile": False}}
    assert of_item(item, still) == "not repeated: a published run"
    turned = of_item(item, still | {"other": {"fragile": True}})
    assert turned == "not repeated: a published run; but another of its claims turned"


def test_unseen_seeds_are_compared_in_a_case_that_they_repeat():
    cases = [case("long", 1.5, 1.4, 1.6), case("short", 1.2, 1.1, 1.3)]
    claim = made("[0, 2]", "less", cases=cases, tried={"case": "short"}, **cases[0])
    again = made("[0, 2]", "less", cases=[cases[0], case("short", 1.3, 1.2, 1.9)], **cases[0])
    compared = comparison(claim, "c", {"7": {"c": again}})
    assert compared.here == "median 1.2, worst 1.3 (short)"
    assert compared.there == {"7": "median 1.3, worst 1.9"}
