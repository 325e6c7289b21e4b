"""The committed answers and verdicts are those of the committed claims, and claims keep to form."""

import json
import re

from lib.files.inputs import read_json
from lib.pages.claims import claims_of, read_families
from lib.pages.measures import read_measures
from tests.pipeline.project import ROOT, claim_files

FAMILIES = read_families(claim_files())
CLAIMS = {name: claim for of in FAMILIES.values() for _, name, claim in claims_of(of)}
SWEPT = re.compile(r"METRIC='?[\w/]+:(\w+)")  # on a command line
NUMBER = re.compile(r"\d+\.\d+|\d+ ?%")


def committed(name: str) -> dict[str, dict]:
    return read_json(ROOT / "metrics" / f"{name}.json", digest=True)


def test_every_claim_in_git_that_does_not_hold_says_why():
    """A claim that holds may have a reason at hand, for other seeds."""
    judged = committed("claims")
    assert list(judged) == list(CLAIMS)
    failing = [name for name, one in judged.items() if not one["holds"]]
    assert [name for name in failing if CLAIMS[name].outcome is None] == []


def test_every_claim_in_git_was_run():
    assert {name for name, one in committed("claims").items() if one["holds"] is None} == set()


def test_every_item_has_an_answer_and_what_was_not_tested_says_why():
    answers = committed("items")
    assert list(answers) == [f"{name}.{item}" for name, of in FAMILIES.items() for item in of.items]
    untested = [name for name, one in answers.items() if one["answer"] == "not tested"]
    assert [name for name in untested if "scope" not in answers[name]] == []


def test_every_number_of_a_sentence_was_taken():
    said = [committed(name) for name in ("items", "claims")]
    assert "(not run)" not in json.dumps(said)


def test_no_reason_has_a_number_that_was_typed():
    """What a run gave stands in braces; sizes and bars of a sentence may be its own."""
    reasons = {name: re.sub("{[^}]*}", "", claim.why) for name, claim in CLAIMS.items()}
    assert {name: why for name, why in reasons.items() if NUMBER.search(why)} == {}


def test_every_measure_of_a_table_is_read():
    """A claim, a sentence, a headline, a figure or a page that sweeps it reads the measure; all cases
    of a measure that is read are written.
    """
    texts = [file.read_text(encoding="utf-8") for file in claim_files()]
    read = {name for text in texts for name in re.findall(r"\w+", text)}
    for places, form in (("lib/*/figures/*.py", r'measures, "(\w+)'), ("docs/*.md", SWEPT)):
        for file in ROOT.glob(places):
            read |= set(re.findall(form, file.read_text(encoding="utf-8")))
    for file in (ROOT / "metrics").rglob("measures.csv"):
        headlines = json.loads(file.with_name("headlines.json").read_text())
        known = read | {name for key in headlines for name in (key, key.partition("_")[2])}
        measures = {name.partition(".")[0] for name in read_measures(file)} - {"setup"}
        assert measures - known == set(), file


def test_a_null_is_compared_in_pairs():
    judged = committed("claims")
    cases = [case["null"] for one in judged.values() for case in one["cases"] if "null" in case]
    assert len(cases) > 20
    assert all(null["n"] > 0 for null in cases)
