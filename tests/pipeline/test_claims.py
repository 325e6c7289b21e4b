"""How claims are judged, and that the committed verdicts are those that claims.yaml expects."""

import json
import math

import pytest
import yaml
from project import ROOT

from lib.io.files import InputError
from lib.io.params import load_yaml
from stages.claims import main

ENTRY = {
    "statement": "It is so",
    "where": "theorem 1",
    "family": "vision",
    "kind": "theorem",
    "source": "[P]",
    "measure": "{measures}#rank",
    "over": "every",
    "bar": "[1, 2]",
    "figure": "plots/a.svg",
    "command": "dvc repro a",
}


@pytest.fixture
def verdicts(tmp_path):
    """Judges claims, each given as what differs from `ENTRY`, by the values of the measure `rank`."""

    def judge(values: list[float | None], **claims: dict[str, object]) -> dict[str, dict]:
        measures = tmp_path / "measures.json"
        measures.write_text(json.dumps({"rank": {"seeds": list(range(len(values))), "values": values}}))
        listed = {name: ENTRY | {"measure": f"{measures}#rank"} | changes for name, changes in claims.items()}
        (tmp_path / "claims.yaml").write_text(yaml.safe_dump(listed, sort_keys=False))
        main(tmp_path / "claims.yaml", [measures], tmp_path / "out" / "claims.json")
        return json.loads((tmp_path / "out" / "claims.json").read_text())

    return judge


def test_every_seed_must_meet_the_bar_or_their_mean_or_their_median(verdicts):
    judged = verdicts([1, 1.5, 4], every={}, mean={"over": "mean"}, median={"over": "median"})
    assert {name: claim["state"] for name, claim in judged.items()} == {
        "every": "fails",
        "mean": "fails",
        "median": "holds",
    }
    assert judged["mean"]["value"] == pytest.approx(6.5 / 3, rel=1e-5)
    assert judged["median"]["value"] == 1.5
    assert (judged["every"]["min"], judged["every"]["max"], judged["every"]["n"]) == (1, 4, 3)


def test_a_spread_and_an_interval_are_those_of_the_seeds(verdicts):
    claim = verdicts([1, 2, 3], mean={"over": "mean"})["mean"]
    assert claim["spread"] == 1
    assert claim["interval_95"] == pytest.approx([2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)], rel=1e-5)


def test_the_interval_of_a_median_is_made_of_values(verdicts):
    """A binomial law says how many of eight are below the median: two or more, and six or fewer, in 93 % alone."""
    claim = verdicts([1, 2, 3, 4, 5, 6, 7, 1000], median={"over": "median"})["median"]
    assert (claim["value"], claim["interval_95"]) == (4.5, [1, 1000])
    twelve = verdicts([*range(1, 12), 1000], median={"over": "median"})["median"]
    assert twelve["interval_95"] == [3, 10]


def test_a_measure_without_values_was_not_run(verdicts):
    assert verdicts([], none={})["none"]["state"] == "not run"


def test_one_seed_has_no_spread(verdicts):
    claim = verdicts([1.5], one={})["one"]
    assert (claim["state"], claim["spread"], claim["interval_95"]) == ("holds", None, [None, None])


def test_a_value_that_is_not_a_number_meets_no_bar(verdicts):
    judged = verdicts([1, None], every={"bar": "(-inf, inf)"}, mean={"over": "mean", "bar": "(-inf, inf)"})
    assert [claim["state"] for claim in judged.values()] == ["fails", "fails"]


def test_a_claim_whose_measures_are_not_there_was_not_run(verdicts):
    claim = verdicts([1], elsewhere={"measure": "published/gpu/measures.json#rank"})["elsewhere"]
    assert claim["state"] == "not run"
    assert "holds" not in claim


def test_a_claim_says_which_of_its_nulls_it_beats(verdicts):
    judged = verdicts([1], low={"nulls": ["weak", "strong"]}, weak={}, strong={"bar": "[5, 6]"})
    assert judged["low"]["nulls"] == {"weak": "holds", "strong": "fails"}
    assert "nulls" not in judged["weak"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bar": "about 3"}, "interval"),
        ({"kind": "hope"}, "kind: wanted one of"),
        ({"expected": "fails, somehow"}, "wanted 'fails, because"),
        ({"measure": "measures.json"}, "wanted FILE#NAME"),
        ({"nulls": ["nobody"]}, r"nulls: wanted names of claims, got \['nobody'\]"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_a_claim_that_is_not_one_is_refused(verdicts, changes, message):
    with pytest.raises(InputError, match=message):
        verdicts([1], claim=changes)


def test_a_claim_whose_measure_was_not_taken_was_not_run(verdicts, tmp_path):
    """As in a sweep without a control; in git, no name is wrong."""
    assert verdicts([1], claim={"measure": f"{tmp_path / 'measures.json'}#control"})["claim"]["state"] == "not run"
    missing = [name for name, claim in committed().items() if claim["state"] == "not run"]
    assert [
        name for name in missing if (ROOT / load_yaml(ROOT / "claims.yaml")[name]["measure"].split("#")[0]).exists()
    ] == []


def committed() -> dict[str, dict]:
    return json.loads((ROOT / "metrics" / "claims.json").read_text(encoding="utf-8"))


def test_the_verdicts_in_git_are_those_that_claims_yaml_expects():
    """An expected failure that holds now, or a claim that fails now, is news either way."""
    listed = load_yaml(ROOT / "claims.yaml")
    judged = committed()
    assert list(judged) == list(listed)
    states = {name: claim["state"] for name, claim in judged.items() if claim["state"] != "not run"}
    assert states == {name: "fails" if "expected" in listed[name] else "holds" for name in states}
