"""A verdict holds the claim, its numbers and whether they meet the bar; an answer follows from
verdicts.
"""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lib.files.files import InputError
from lib.pages.measures import rows_of, setup_rows, write_measures
from tests.stages.made import read_digested

BY_SEED = {
    "error": pd.Series([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
    "null_error": pd.Series([7.0, 6.5, 6.0, 5.5, 5.0, 4.5], index=list("543210")),
    "few": pd.Series([1.0, 2.0]),
    "null_few": pd.Series([1.5, 1.5, 9.0]),
    "one": pd.Series([0.125], index=["all"]),
    "grouped": pd.Series([1.0, 3.0, 4.0], index=["a 1", "a 2", "b 1"]),
    "few_of_a": pd.Series([1.0, 2.0], index=["a 7", "a 8"]),
    "gap": pd.Series([1.5, math.nan]),
    "ratio.small": pd.Series([0.5]),
    "ratio.large": pd.Series([0.25]),
    "scaled": {"1e-4": pd.Series([0.5, 0.25]), "1e-8": pd.Series([-2.0, 0.5])},
}
MEASURES = [*setup_rows({"d": 8, "scale": 0.01, "law": "zipf"}), *rows_of(BY_SEED)]
FAR = rows_of({"share": pd.Series([0.75])})
FIGURES = {"figures": "plots/near", "command": "dvc repro near"}
RUNS = {"near": "near/measures.csv"}


@pytest.fixture
def judged(stage, tmp_path):
    """Judges the items of one family; gives the verdicts and the answers."""

    def judge(**items):
        folder = tmp_path / "stages" / "toy"
        folder.mkdir(parents=True, exist_ok=True)
        said = {**FIGURES, "runs": RUNS, "published": ["far"], "items": items}
        (folder / "claims.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
        write_measures(MEASURES, tmp_path / "near", {})
        far = tmp_path / "published" / "far"
        far.mkdir(parents=True, exist_ok=True)
        write_measures(FAR, far, {})
        (far / "provenance.json").write_text('{"command": "make far"}')
        files = [Path("stages/toy/claims.yaml"), Path(RUNS["near"])]
        stage(
            "claims",
            {},
            families=files,
            published=Path("published"),
            verdicts=Path("out/claims.json"),
            answers=Path("out/items.json"),
        )
        out = tmp_path / "out"
        return tuple(read_digested(out / f"{name}.json") for name in ("claims", "items"))

    return judge


def item(**claims):
    """An item of a paper with these claims."""
    shown = {"title": "A theorem", "says": "It is so.", "figure": "a"}
    found = {"found": "It was so.", "size": "the paper's"} if claims else {}
    return shown | found | {"claims": claims}


def claim(bar, measure="", **others):
    """A claim on a measure, or on cases that have one each."""
    own = {"statement": "It is so.", "bar": bar, "better": "less"}
    return own | ({"measure": measure} if measure else {}) | others


def test_a_verdict_has_the_numbers_of_its_measure(judged):
    verdicts, _ = judged(t=item(errors=claim("every in [0, 5]", "error", kind="paper")))
    found = verdicts["errors"]
    [case] = found.pop("cases")
    assert found == {
        "family": "toy",
        "item": "toy.t",
        "bar": "every in [0, 5]",
        "better": "less",
        "repeated": True,
        "interval": "[0, 5]",
        "statement": "It is so.",
        "kind": "paper",
        "stood": "after",
        "over": "every",
        "figure": "plots/near/a.svg",
        "command": "dvc repro near",
        "value": 3.5,
        "interval_95": [1.0, 6.0],
        "min": 1.0,
        "max": 6.0,
        "n": 6,
        "holds": False,
        "outcome": "bar missed",
        "why": "No reason is known: it held when it was written.",
    }
    assert (case["names"], case["values"]) == (list("012345"), [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize(
    ("bar", "measure", "value", "holds"),
    [
        ("every in [1, 6]", "error", 3.5, True),
        ("every in (1, 6]", "error", 3.5, False),
        ("mean in [1, 2)", "few", 1.5, True),
        ("mean in (1.5, 2)", "few", 1.5, False),
        ("median in [3, 3]", "grouped", 3.0, True),
        ("mean in [2.6, 2.7]", "grouped", 8 / 3, True),
        ("every in (-inf, inf)", "gap", None, False),
        ("every in (0, 1)", "scaled@1e-4", 0.375, True),
        ("every in (0, 1)", "scaled@<=1e-4", -0.75, False),
        ("every in (0, 1)", "scaled@>=1e-5", 0.375, True),
        ("every in [0, 1]", "far/share", 0.75, True),
    ],
)
def test_every_value_their_mean_or_their_median_meets_the_bar(judged, bar, measure, value, holds):
    verdicts, _ = judged(t=item(a=claim(bar, measure)))
    assert verdicts["a"]["value"] == (value and pytest.approx(value, rel=1e-5))
    assert verdicts["a"]["holds"] is holds


def test_a_case_of_a_table_is_judged_as_a_measure_of_its_own(judged, tmp_path, monkeypatch):
    """Its values are those of a null in pairs, and its size stands in the sentence."""
    gains = {"1e-4": pd.Series([1.0, 2.0], [0, 1]), "1e-8": pd.Series([5.0], [1])}
    rows = [
        *setup_rows({"d_model": 8}, "small"),
        *rows_of({"gain": gains}, "small"),
        *rows_of({"gain": {"1e-4": pd.Series([0.5, 1.0], [0, 1])}}, "wide"),
    ]
    write_measures(rows, tmp_path / "table", {})
    null = {"null_is": "the wide", "null_measure": "gain.wide"}
    one = claim("every in [0, 3]", "gain.small@1e-4", statement="At {d_model.small}.", **null)
    monkeypatch.setitem(RUNS, "near", "table/measures.csv")
    found = judged(t=item(a=one))[0]["a"]
    assert (found["value"], found["holds"], found["statement"]) == (1.5, True, "At 8.")
    assert found["cases"][0]["null"]["difference"] == 0.75


def test_what_depends_on_one_base_counts_once(judged):
    """Two of three values are of base a, whose mean is 2."""
    verdicts, _ = judged(t=item(a=claim("mean in [0, 9]", "grouped", units=r"\w+")))
    assert (verdicts["a"]["n"], verdicts["a"]["value"]) == (2, pytest.approx(8 / 3, rel=1e-5))


def test_of_several_cases_that_nearest_to_failing_is_shown(judged):
    cases = {"small": "few", "large": "error", "by scale": "scaled"}
    verdicts, _ = judged(t=item(a=claim("every in [-3, 6]", better="less", cases=cases)))
    found = verdicts["a"]
    assert [(one["case"], one.get("scale")) for one in found["cases"]] == [
        ("small", None),
        ("large", None),
        ("by scale", "1e-4"),
        ("by scale", "1e-8"),
    ]
    assert (found["case"], found["value"], found["holds"]) == ("large", 3.5, True)


def test_a_null_is_compared_in_pairs_of_one_seed(judged):
    """The differences of seeds 0 to 5 are -3.5, -3, -2.5, -2, -1.5, -1: the order is the names'."""
    null = {"null_is": "another", "null_measure": "null_error"}
    verdicts, _ = judged(t=item(a=claim("every in [0, 6]", "error", **null)))
    assert verdicts["a"]["null"] == {
        "what": "another",
        "value": 5.75,
        "difference": -2.25,
        "interval_95": [-3.5, -1.0],
        "n": 6,
        "beats": True,
    }


@pytest.mark.parametrize(
    ("better", "own", "other", "beats"),
    [
        ("less", "few", "null_few", False),  # 1 < 1.5, and 2 is not
        ("less", "null_error", "error", False),
        ("more", "null_error", "error", True),
        ("near", "few", "null_few", False),  # to 2.5: 1.5 for 1, 0.5 for 1
        ("less", "few", "one", False),  # a null of one value stands beside each
        ("less", "one", "few", None),  # no pairs
        ("less", "few of a", "grouped", True),  # 1.5 of a, and the null's 2
    ],
)
def test_a_claim_beats_its_null_where_the_whole_interval_or_every_pair_is_better(
    judged, better, own, other, beats
):
    bar = "every in [2, 3]"
    null = {"null_is": "another", "null_measure": other, "better": better}
    units = {"units": r"\w+"} if own == "few of a" else {}
    verdicts, _ = judged(t=item(a=claim(bar, own.replace(" ", "_"), **null, **units)))
    assert verdicts["a"]["null"]["beats"] is beats


def test_an_answer_follows_from_the_first_claim_and_from_those_that_fail(judged):
    good = claim("every in [0, 9]", "error")
    bad = claim("every in [0, 1]", "few", outcome="finding", why="{few} is too large")
    absent = claim("every in [0, 1]", "nothing")
    question = {"title": "Ours", "asks": "Is it so?", "figure": "a", "found": "It was so."}
    _, answers = judged(
        all=item(a=good),
        scoped=item(m=good) | {"scope": "at d = {d}"},
        limited=item(b=good) | {"limits": "at d = {d}, {law}"},
        in_part=item(c=good, d=bad),
        not_so=item(e=bad, f=good),
        opposite=item(g=bad) | {"otherwise": "contradicted"},
        untested=item(),
        not_run=item(h=absent),
        first_not_run=item(i=absent, j=good),
        yes=question | {"claims": {"k": good}},
        partly=question | {"claims": {"n": good, "o": bad}},
        no=question | {"claims": {"l": bad}},
    )
    assert {name.removeprefix("toy."): one["answer"] for name, one in answers.items()} == {
        "all": "reproduced",
        "scoped": "reproduced",
        "limited": "reproduced in part",
        "in_part": "reproduced in part",
        "not_so": "not reproduced",
        "opposite": "contradicted",
        "untested": "not tested",
        "not_run": "not tested",
        "first_not_run": "reproduced",
        "yes": "yes",
        "partly": "in part",
        "no": "no",
    }
    assert answers["toy.limited"]["limits"] == "At d = 8, zipf."
    assert answers["toy.in_part"]["limits"] == "1.5 (1 to 2) is too large."
    assert answers["toy.all"]["number"] == "3.5 (95 %: 1 to 6; n = 6)"
    assert answers["toy.no"]["number"] == "1.5 (1 to 2; n = 2)"
    assert answers["toy.all"]["claims"] == ["a"]
    assert "number" not in answers["toy.untested"]


def test_a_claim_that_was_not_run_says_which_measure_is_missing(judged, capsys):
    missing = claim("every in [0, 1]", "errors")
    verdicts, _ = judged(t=item(a=missing, b=claim("every in [0, 1]", "few")))
    assert verdicts["a"]["holds"] is None
    assert verdicts["a"]["n"] == 0
    assert verdicts["a"]["missing"] == "near/measures.csv has no errors; nearly so called: error"
    said = "1 do not, 1 were not run\nnot run: a: near/measures.csv has no errors;"
    assert said in capsys.readouterr().out


def test_a_measure_without_its_case_is_told_the_cases(judged):
    missing = claim("every in [0, 1]", "ratio")
    verdicts, _ = judged(t=item(a=missing, b=claim("every in [0, 1]", "few")))
    like = "nearly so called: ratio.small, ratio.large"
    assert verdicts["a"]["missing"] == f"near/measures.csv has no ratio; {like}"


def test_a_sentence_has_the_numbers_of_the_run(judged):
    sentence = "{low} to {high}; {d} of {scale} and {scale:.1f}; {one}, {one:.1%}; {few}; "
    sentence += "{scaled@1e-8:.1f}; {far/share:.0%}; at {width}"
    why = {"outcome": "limit", "why": "{far/share:.0%} of {n_failing} in {n_cases}"}
    verdicts, _ = judged(
        t=item(
            a=claim("every in [0, 9]", "few", statement=sentence),
            b=claim("every in [9, 10]", "few", **why),
        )
    )
    said = "0 to 9; 8 of 0.01 and 0.0; 0.125, 12.5%; 1.5 (1 to 2); -0.8 (-2.0 to 0.5); 75%; "
    assert verdicts["a"]["statement"] == said + "at (not run)"
    assert verdicts["b"]["why"] == "75% of 1 in 1"


def test_measures_of_another_family_are_refused(judged, monkeypatch):
    others = rows_of({"else": BY_SEED["few"]})
    monkeypatch.setattr("tests.stages.test_claims.MEASURES", others)
    with pytest.raises(InputError, match=r"measures.csv: wanted measures such as .few., got else"):
        judged(t=item(a=claim("every in [0, 1]", "few")))


def test_a_run_whose_measures_no_stage_makes_is_refused_by_its_line(judged, monkeypatch):
    monkeypatch.setitem(RUNS, "gpu", "gpu.json")
    wanted = r"claims\.yaml, line 5: wanted a file that a stage makes, one of .*; got gpu"
    with pytest.raises(InputError, match=wanted):
        judged(t=item(a=claim("every in [0, 1]", "few")))


def test_a_null_outside_the_bar_never_beats_a_value_inside(judged):
    """The bar begins far below both: nothing but `better` says that 1 is better than 4.5."""
    null = {"null_is": "another", "null_measure": "null_error", "better": "less"}
    verdicts, _ = judged(t=item(a=claim("every in (-1000, 1]", "one", **null)))
    assert verdicts["a"]["null"]["beats"] is None
    verdicts, _ = judged(t=item(a=claim("every in (-1000, 6]", "error", **null)))
    assert verdicts["a"]["null"]["beats"] is True


def test_a_claim_says_in_how_many_cases_its_null_is_beaten(judged):
    cases = {"beaten": "error", "not": "null_error", "no pairs": "one"}
    nulls = {"beaten": "null_error", "not": "error", "no pairs": "few"}
    both = {"cases": cases, "null_is": "another", "null_measure": nulls}
    verdicts, _ = judged(t=item(a=claim("every in [0, 9]", **both)))
    assert verdicts["a"]["nulls"] == {"beaten": 1, "cases": 2}


def test_an_item_says_what_was_found_its_size_and_when_its_bar_was_set(judged):
    found = {"found": "It is {few:.1f}, where at most {high} was asked.", "size": "d = 8 (1000)"}
    good = claim("every in [0, 9]", "few")
    _, answers = judged(
        after=item(a=good) | found,
        theorem=item(b=good | {"stood": "paper"}),
        identity=item(c=good | {"stood": "paper", "check": True}),
    )
    after = answers["toy.after"]
    assert after["found"] == "It is 1.5 (1.0 to 2.0), where at most 9 was asked."
    assert after["size"] == "d = 8 (1000)"
    assert [one["stood"] for one in answers.values()] == [
        "set after the first run",
        "from the paper or a theorem",
        "a check: it could not fail",
    ]


def test_what_turned_on_unseen_seeds_is_fragile(judged, tmp_path):
    """Published runs are not repeated on other seeds, so that nothing is said of them."""
    for seeds, answer, holds in (("9000", "reproduced", True), ("70000", "not reproduced", False)):
        folder = tmp_path / "published" / "unseen" / seeds
        folder.mkdir(parents=True)
        items = {"toy.t": {"answer": answer, "number": "3", "limits": "some"}}
        claims = {"a": {"holds": holds, "value": 3.0, "n": 2}, "b": {"holds": True, "value": 1}}
        (folder / "items.json").write_text(json.dumps(items))
        (folder / "claims.json").write_text(json.dumps(claims))
    good = claim("every in [0, 9]", "few")
    far = claim("every in [0, 1]", "far/share")
    verdicts, answers = judged(t=item(a=good, b=good, c=good), published=item(d=far))
    assert answers["toy.t"]["fragile"] is True
    assert answers["toy.t"]["unseen"] == {
        "9000": {"answer": "reproduced", "number": "3"},
        "70000": {"answer": "not reproduced", "number": "3"},
    }
    assert [verdicts[name].get("fragile") for name in "abcd"] == [True, False, None, None]
    assert [verdicts[name]["repeated"] for name in "abcd"] == [True, True, True, False]
    assert answers["toy.published"]["repeated"] is False
    assert verdicts["a"]["unseen"]["70000"] == {"holds": False, "value": 3.0}


def test_a_case_of_a_published_run_is_marked_and_the_nearest_repeated_one_is_named(judged):
    """The published share, 0.75, is nearer to the bar than the few, whose worst is 2."""
    cases = {"kept": "far/share", "few": "few", "one": "one"}
    verdicts, items = judged(t=item(a=claim("every in [0.7, 9]", cases=cases) | {"better": "more"}))
    found = verdicts["a"]
    assert [case.get("published") for case in found["cases"]] == [True, None, None]
    assert found["case"] == "one"
    assert "tried" not in found
    without = {"kept": "far/share", "few": "few"}
    verdicts, items = judged(
        t=item(a=claim("every in [0.7, 9]", cases=without) | {"better": "more"})
    )
    assert (verdicts["a"]["case"], verdicts["a"]["tried"]) == ("kept", {"case": "few"})
    assert items["toy.t"]["repeated"]
    both = item(a=claim("every in [0, 1]", "far/share"), b=claim("every in [0, 9]", "few"))
    assert not judged(t=both)[1]["toy.t"]["repeated"], "the first claim decides"
