"""What is no item or claim is refused by file and line, before anything is judged."""

import copy

import pytest
import yaml

from lib.files.files import InputError
from lib.pages.claims import read_families

CLAIM = {
    "statement": "It is so",
    "bar": "every in [1, 2]",
    "better": "near",
    "measure": "rank",
}
FAMILY = {
    "figures": "plots/a",
    "command": "dvc repro a",
    "runs": {"near": "m.json"},
    "items": {
        "theorem": {
            "title": "A theorem",
            "says": "It is so.",
            "size": "the paper's",
            "found": "It was so.",
            "figure": "a",
            "claims": {"one": CLAIM},
        }
    },
}


def read(folder, family, name="toy"):
    """The family as it is read from a file."""
    file = folder / name / "claims.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(family, sort_keys=False))
    return file


def changed(place, changes):
    """The family with another item or claim."""
    family = copy.deepcopy(FAMILY)
    item = family["items"]["theorem"]
    (item["claims"]["one"] if place == "claim" else item).update(changes)
    return family


@pytest.mark.parametrize(
    ("place", "changes", "message"),
    [
        ("claim", {"bar": "every in about 3"}, "line 13: .*wanted an interval such as"),
        ("claim", {"bar": "all in [0, 1]"}, "line 13: .*bar: wanted every, mean or median"),
        ("claim", {"bar": "every in [2, 1]"}, r"wanted an interval such as .*, got '\[2, 1\]'"),
        ("claim", {"measure": "a@x"}, "wanted MEASURE, MEASURE.CASE.* got 'a@x'"),
        ("claim", {"measure": "elsewhere/a"}, r"elsewhere/a: wanted a run of \['near'\]"),
        ("claim", {"cases": {"a": "rank"}}, "wanted a measure, or cases .*, got both or none"),
        ("claim", {"null_is": "chance"}, "wanted null_is, in words, and null_measure"),
        ("claim", {"outcome": "finding"}, "wanted outcome and why, or none"),
        ("claim", {"outcome": "sad", "why": "so"}, "outcome"),
        ("claim", {"figure": "a from b"}, "figure: wanted NAME, or NAME, from TABLE.COLUMN"),
        (
            "claim",
            {"null_is": "chance", "null_measure": {"b": "rank"}},
            r"null_measure: wanted \[''\], got \['b'\]",
        ),
        ("claim", {"colour": "red"}, "line 13: .*unknown key 'colour'"),
        ("claim", {"better": "above"}, "better"),
        ("claim", {"bar": "every in [1, inf)"}, "better: near wants a bar with two ends"),
        ("item", {"found": ""}, "found: wanted what was found where there are claims"),
        ("item", {"size": ""}, "size: wanted the paper's, or what is smaller"),
        ("item", {"asks": "Is it so?"}, "line 6: .*what the paper says, or what is asked"),
        ("item", {"run": "far"}, r"line 6: run: wanted one of \['near'\], got 'far'"),
        ("item", {"figure": ""}, "line 13: one: wanted a figure, of the claim or of its item"),
        ("item", {"otherwise": "sad"}, "line 6: .*otherwise"),
        ("item", {"claims": {"One!": CLAIM}}, "wanted a name of small letters"),
    ],
)
def test_what_is_no_item_or_claim_is_refused_by_its_line(tmp_path, place, changes, message):
    file = read(tmp_path, changed(place, changes))
    with pytest.raises(InputError, match=message):
        read_families([file])


@pytest.mark.parametrize("text", ["", "- one\n", "3\n", "items: {}\n"])
def test_a_file_without_runs_and_items_is_refused(tmp_path, text):
    file = tmp_path / "claims.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=r"claims\.yaml"):
        read_families([file])


def test_a_name_is_that_of_one_claim(tmp_path):
    files = [read(tmp_path, FAMILY, name) for name in ("a", "b")]
    wanted = r"b.claims\.yaml, line 13: one: wanted another name, as .*a.claims\.yaml has it"
    with pytest.raises(InputError, match=wanted):
        read_families(files)
