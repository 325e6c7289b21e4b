"""How claims are judged, and that the committed verdicts are those that claims.yaml expects."""

import copy
import json
import math
import re

import pytest
import yaml

from lib.files.files import InputError
from lib.pages.claims import read_claims
from stages.claims import main
from tests.pipeline.project import ROOT, claim_files

PLACE = r"any\.claims\[0\]\.claims\.one"
GROUP = {"family": "vision", "figures": "plots/any", "command": "dvc repro a"}
ENTRY = {
    "statement": "It is so",
    "source": "theorem [P], theorem 1",
    "test": "every rank in [1, 2]",
    "figure": "a",
}


def part(claims, **shared):
    """The claims of a group, in one part."""
    return {"claims": [{**shared, "claims": claims}]}


@pytest.fixture
def verdicts(tmp_path):
    """Judges claims of one group, each given as what differs from `ENTRY`, by the values of the
    measure `rank`.
    """

    def judge(values: list[float | None], **claims: dict[str, object]) -> dict[str, dict]:
        judged = of_groups(
            values, any=GROUP | part({name: ENTRY | changes for name, changes in claims.items()})
        )
        return {name.removeprefix("vision_"): claim for name, claim in judged.items()}

    def of_groups(values: list[float | None], **groups: object) -> dict[str, dict]:
        measures = tmp_path / "measures.json"
        one = {"cases": list(map(str, range(len(values)))), "values": values}
        measures.write_text(json.dumps({"rank": one, "error": {"1e-4": one}}))
        for group in groups.values():
            if isinstance(group, dict):
                group.setdefault("measures", str(measures))
        (tmp_path / "claims.yaml").write_text(yaml.safe_dump(groups, sort_keys=False))
        main(
            [tmp_path / "claims.yaml", measures],
            tmp_path / "out" / "claims.json",
        )
        return json.loads((tmp_path / "out" / "claims.json").read_text())

    judge.of_groups = of_groups
    return judge


def test_every_seed_must_meet_the_bar_or_their_mean_or_their_median(verdicts):
    judged = verdicts(
        [1, 1.5, 4],
        every={},
        mean={"test": "mean rank in [1, 2]"},
        median={"test": "median rank in [1, 2]"},
    )
    assert {name: claim["state"] for name, claim in judged.items()} == {
        "every": "fails",
        "mean": "fails",
        "median": "holds",
    }
    assert judged["mean"]["value"] == pytest.approx(6.5 / 3, rel=1e-5)
    assert judged["median"]["value"] == 1.5
    assert (judged["every"]["min"], judged["every"]["max"], judged["every"]["n"]) == (1, 4, 3)


def test_a_spread_and_an_interval_are_those_of_the_seeds(verdicts):
    claim = verdicts([1, 2, 3, 4, 5], mean={"test": "mean rank in [1, 2]"})["mean"]
    assert claim["spread"] == pytest.approx(math.sqrt(2.5), rel=1e-5)
    low, high = claim["interval_95"]
    assert 1 <= low < 3 < high <= 5


def test_the_interval_of_a_median_is_made_of_values(verdicts):
    """A binomial law says how many of eight are below the median: two or more, and six or fewer, in
    93 % alone.
    """
    claim = verdicts([1, 2, 3, 4, 5, 6, 7, 1000], median={"test": "median rank in [1, 2]"})[
        "median"
    ]
    assert (claim["value"], claim["interval_95"]) == (4.5, [1, 1000])
    twelve = verdicts([*range(1, 12), 1000], median={"test": "median rank in [1, 2]"})["median"]
    assert twelve["interval_95"] == [3, 10]


def test_a_measure_without_values_was_not_run(verdicts):
    assert verdicts([], none={})["none"]["state"] == "not run"


def test_one_seed_has_no_spread(verdicts):
    claim = verdicts([1.5], one={})["one"]
    assert (claim["state"], claim["spread"], claim["interval_95"]) == ("holds", None, [None, None])


def test_a_value_that_is_not_a_number_meets_no_bar(verdicts):
    judged = verdicts(
        [1, None],
        every={"test": "every rank in (-inf, inf)"},
        mean={"test": "mean rank in (-inf, inf)"},
    )
    assert [claim["state"] for claim in judged.values()] == ["fails", "fails"]


def test_a_group_whose_measures_no_stage_makes_is_refused_by_its_line(verdicts, tmp_path):
    elsewhere = GROUP | {"measures": "published/gpu/measures.json", **part({"elsewhere": ENTRY})}
    with pytest.raises(
        InputError,
        match=r"claims\.yaml, line 5: wanted a file that a stage makes, one of .*; got "
        r"published/gpu/meas",
    ):
        verdicts.of_groups([1], gpu=elsewhere)
    assert (tmp_path / "claims.yaml").read_text().splitlines()[
        4
    ] == "  measures: published/gpu/measures.json"


@pytest.mark.parametrize(
    ("measure", "state"),
    [
        ("error@1e-4", "holds"),
        ("error@1e-8", "not run"),
        ("error", "holds"),
        ("error@<=1e-8", "not run"),
    ],
)
def test_a_measure_by_init_scale_is_judged_at_the_scale_that_a_claim_names(
    verdicts, measure, state
):
    claim = verdicts([1, 2], one={"test": f"every {measure} in [1, 2]"})["one"]
    assert claim["state"] == state
    assert claim["measure"].endswith(f"measures.json#{measure}")


def test_a_verdict_names_its_cases_its_file_of_measures_and_its_figure(verdicts, tmp_path):
    claim = verdicts([1, 1.5], one={})["one"]
    assert claim["cases"] == ["0", "1"]
    assert claim["measure"] == f"{tmp_path / 'measures.json'}#rank"
    assert (claim["figure"], claim["family"], claim["command"]) == (
        "plots/any/a.svg",
        "vision",
        "dvc repro a",
    )


def test_claims_of_several_groups_stand_in_their_order_and_may_be_nulls_of_each_other(verdicts):
    groups = {
        "b": GROUP | part({"two": ENTRY | {"nulls": ["one"]}}),
        "a": GROUP | part({"one": ENTRY, "three": ENTRY}),
    }
    judged = verdicts.of_groups([1], **groups)
    assert list(judged) == ["vision_two", "vision_one", "vision_three"]
    assert judged["vision_two"]["nulls"] == {"vision_one": "does not beat"}


def test_a_claim_of_the_name_of_another_in_another_group_is_refused(verdicts):
    groups = {name: GROUP | part({"one": ENTRY}) for name in ("a", "b")}
    with pytest.raises(
        InputError,
        match=r"claims\.yaml, line 19: wanted claims of different names, got 'vision_one' again, as in .*claims",
    ):
        verdicts.of_groups([1], **groups)


def test_a_claim_of_the_name_of_one_in_another_file_is_refused(tmp_path):
    files = [tmp_path / name for name in ("a.yaml", "b.yaml")]
    group = GROUP | part({"one": ENTRY}) | {"measures": "any.json"}
    for file in files:
        file.write_text(yaml.safe_dump({file.stem: group}, sort_keys=False))
    with pytest.raises(
        InputError, match=r"b\.yaml, line 7: .* got 'vision_one' again, as in .*a\.yaml$"
    ):
        read_claims(files)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"test": "every rank in about 3"},
            rf"line 7: {PLACE}: test: wanted an interval such as .*, got 'about 3'",
        ),
        (
            {"test": "every rank in {1, 2}"},
            rf"line 7: {PLACE}: test: wanted an interval such as .*, got '{{1, 2}}'",
        ),
        (
            {"test": "every rank in [2, 1]"},
            rf"line 7: {PLACE}: test: wanted an interval such as .*, got '\[2, 1\]'",
        ),
        (
            {"test": "every rank in [nan, 1]"},
            rf"line 7: {PLACE}: test: wanted an interval such as .*, got '\[nan, 1\]'",
        ),
        (
            {"test": "all rank in [0, 1]"},
            rf"{PLACE}: test: wanted every, mean or median, .*, got 'all rank in \[0, 1\]'",
        ),
        (
            {"test": "every rank"},
            rf"{PLACE}: test: wanted every, .* and in INTERVAL, got 'every rank'",
        ),
        (
            {"test": "every a@x in [0, 1]"},
            rf"{PLACE}: test: wanted every, .*, MEASURE@SCALE, .*, got 'every a@x in",
        ),
        ({"test": 3}, rf"{PLACE}\.test: wanted a text, got 3"),
        (
            {"source": "hope [P], theorem 1"},
            rf"{PLACE}: source: wanted theorem, .* got 'hope \[P\], theorem 1'",
        ),
        (
            {"source": "theorem, 1"},
            rf"{PLACE}: source: wanted theorem, .* a tag, and where, .* got 'theorem, 1'",
        ),
        (
            {"figure": "a from b"},
            rf"{PLACE}: figure: wanted NAME, or NAME, from TABLE.COLUMN, got 'a from b'",
        ),
        (
            {"test": "every a in [0, 1], one [0, 2]"},
            r"line 7: one: test: wanted bars of \[''\], got \['one'\]",
        ),
        (
            {"test": "every a in [0, 1], b (2, 1]"},
            rf"{PLACE}: test: wanted an interval such as .*, got '\(2, 1\]'",
        ),
        (
            {"test": "every a in [0, 1], b 2"},
            rf"{PLACE}: test: wanted an interval such as .*, got '\[0, 1\], b 2'",
        ),
        (
            {"nulls": ["nobody"]},
            r"line 7: one: nulls: wanted names of claims, got \['vision_nobody'\]",
        ),
        (
            {"colour": "red"},
            rf"{PLACE}: unknown key 'colour', wanted \['figure', 'nulls', 'source', ",
        ),
        ({"family": "vision"}, rf"{PLACE}: unknown key 'family', wanted "),
    ],
)
def test_a_claim_that_is_not_one_is_refused_by_its_place(verdicts, changes, message):
    with pytest.raises(InputError, match=message):
        verdicts([1], one=changes)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (
            {"any": GROUP | {"claims": [], "colour": "red"}},
            r"claims\.yaml, line 1: any: unknown key 'colour', wanted \['claims', ",
        ),
        (
            {"any": GROUP},
            r"claims\.yaml, line 1: any: missing key 'claims', got \['command', 'family', "
            r"'figures', 'measures'\]",
        ),
        (
            {"any": GROUP | {"claims": ENTRY}},
            r"claims\.yaml, line 1: any\.claims: wanted a list, got \{",
        ),
        (
            {"any": GROUP | {"claims": [{"claims": {7: ENTRY}}]}},
            r"claims\.yaml, line 1: any\.claims\[0\]\.claims: wanted keys that are texts, got the "
            r"key 7",
        ),
        (
            {"any": GROUP | part({"one": {k: v for k, v in ENTRY.items() if k != "source"}})},
            r"claims\.yaml, line 7: one: missing key 'source', of the claim or of its part",
        ),
        (
            {"any": GROUP | part({"<case>_one": ENTRY})},
            r"<case>_one: each: wanted the cases of <case>, got none",
        ),
        (
            {"any": GROUP | part({"one": ENTRY | {"statement": "It is <case>"}}, each="a b")},
            r"line 8: one: wanted <case> in the name, or nowhere, got it in the claim",
        ),
        (
            {"any": GROUP | {"headlines": ["two"]} | part({"one": ENTRY})},
            r"any: wanted a claim of the group, got 'two'",
        ),
        (
            {"any": GROUP | {"fails": {"two": "so"}} | part({"one": ENTRY})},
            r"any: wanted a claim of the group, got 'two'",
        ),
        ({"any": 3}, r"claims\.yaml, line 1: any: wanted a section of keys, got 3"),
    ],
)
def test_a_group_that_is_not_one_is_refused_by_its_place(verdicts, groups, message):
    with pytest.raises(InputError, match=message):
        verdicts.of_groups([1], **copy.deepcopy(groups))


@pytest.mark.parametrize("text", ["", "- one\n", "3\n"])
def test_a_file_without_groups_is_refused(tmp_path, text):
    (tmp_path / "claims.yaml").write_text(text)
    with pytest.raises(InputError, match=r"claims\.yaml: wanted groups of claims by name, got "):
        main([tmp_path / "claims.yaml"], tmp_path / "claims.json")


def test_a_claim_whose_measure_was_not_taken_was_not_run(verdicts):
    """As in a sweep without a control; in git none was not taken."""
    assert verdicts([1], claim={"test": "every control in [0, 1]"})["claim"]["state"] == "not run"
    missing = [claim for claim in committed().values() if claim["state"] == "not run"]
    assert [
        claim["measure"] for claim in missing if (ROOT / claim["measure"].split("#")[0]).exists()
    ] == []


def test_a_claim_of_several_cases_is_a_claim_for_each_with_its_own_bar(verdicts):
    claim = {
        "statement": "The <case> one is from {low} to {high}",
        "test": "every <case> in [1, 2], error [0.5, 3)",
        "nulls": ["<case>_null"],
    }
    alone = ENTRY | {"test": "every rank in [5, 6]"}
    shared = {
        "source": "our bar [C], <case>",
        "figure": "of-<case>, from table.<case>",
        "each": "rank error",
    }
    claims = {"<case>_one": claim, "<case>_null": claim | {"nulls": []}, "alone": alone}
    group = (
        GROUP
        | {"headlines": ["error_one"], "fails": {"alone": "it is so"}}
        | part(claims, **shared)
    )
    judged = verdicts.of_groups([1, 2], any=group)
    assert list(judged) == [
        f"vision_{name}" for name in ("rank_one", "error_one", "rank_null", "error_null", "alone")
    ]
    error = judged["vision_error_one"]
    assert (error["statement"], error["bar"], error["where"]) == (
        "The error one is from 0.5 to 3",
        "[0.5, 3)",
        "error",
    )
    assert (error["figure"], error["drawn"], error["headline"]) == (
        "plots/any/of-error.svg",
        "table.error",
        1,
    )
    assert error["nulls"] == {"vision_error_null": "does not beat"}
    assert judged["vision_rank_one"]["bar"] == "[1, 2]"
    assert "headline" not in judged["vision_rank_one"]
    assert judged["vision_alone"]["expected"] == "fails, because it is so"


def test_a_claim_of_one_init_scale_is_judged_at_it():
    """What a statement says of init scale 1 alone is judged there, and not at the scale nearest to
    failing.
    """
    alone = re.compile(r"\bat init scale ([\d.]+)")
    said = {
        name: (alone.findall(claim.statement), claim.measure)
        for name, claim in read_claims(claim_files()).items()
    }
    named = {
        name: (scales[0], measure) for name, (scales, measure) in said.items() if len(scales) == 1
    }
    assert len(named) > 10
    assert {
        name: one for name, one in named.items() if one[1].partition("@")[2].lstrip("<>=") != one[0]
    } == {}


def committed() -> dict[str, dict]:
    return json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))


def test_the_verdicts_in_git_are_those_that_claims_yaml_expects():
    """An expected failure that holds now, or a claim that fails now, is news either way."""
    listed, judged = read_claims(claim_files()), committed()
    assert list(judged) == list(listed)
    states = {name: claim["state"] for name, claim in judged.items() if claim["state"] != "not run"}
    assert states == {name: "fails" if listed[name].expected else "holds" for name in states}


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (
            {"seeds": [0], "values": [1]},
            "measures.json: wanted measures with lists of cases and of values, got 'rank'",
        ),
        (
            {"cases": ["0", "1"], "values": [1]},
            "rank: wanted a case for each of 1 values, got {'cases'",
        ),
    ],
)
def test_measures_that_do_not_name_their_cases_are_refused(tmp_path, verdicts, measure, said):
    verdicts([1], claim={})
    (tmp_path / "measures.json").write_text(json.dumps({"rank": measure}))
    with pytest.raises(InputError, match=said):
        files = [tmp_path / "claims.yaml", tmp_path / "measures.json"]
        main(files, tmp_path / "out" / "claims.json")
