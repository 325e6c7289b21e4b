"""What turned on other seeds is said with both numbers, and kept."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from lib.files.files import InputError
from tests.pipeline.project import ROOT
from tools import unseen

BEFORE = yaml.safe_load("""
items:
  a.same: {answer: reproduced, number: '1'}
  a.turned: {answer: 'yes', number: '2'}
  a.gone: {answer: 'no'}
claims:
  same: {cases: [], holds: true, value: 1.0}
  turned: {cases: [], holds: true, value: 2.0}
  lost: {holds: true, value: 3.0}
""")
AFTER = yaml.safe_load("""
items:
  a.same: {answer: reproduced}
  a.turned: {answer: 'no', number: '9'}
claims:
  same: {cases: [], holds: true, value: 1.5}
  turned: {cases: [{case: a, values: [9.0], value: 9.0}], holds: false, value: 9.0}
  lost: {holds: null}
""")


def test_every_answer_and_verdict_that_turned_is_a_line():
    assert list(unseen.table(BEFORE, AFTER)) == [
        "1 of 3 answers turned",
        "  a.turned: yes (2), unseen: no (9)",
        "2 of 3 verdicts turned",
        "  turned: holds (2.0), unseen: does not hold (9.0)",
        "  lost: holds (3.0), unseen: not run (None)",
    ]


def test_what_came_out_is_kept_and_what_turned_in_every_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for commit, seeds in (("old", 50), ("abc", 70), ("abc", 9000), ("abc", 70)):
        unseen.publish(BEFORE, AFTER, commit, seeds, 0.25)
    kept = tmp_path / "published" / "unseen"
    assert sorted(folder.name for folder in kept.iterdir()) == ["70", "9000"]
    assert json.loads((kept / "70/claims.json").read_text())["turned"] == {
        "holds": False,
        "value": 9.0,
        "cases": [{"case": "a", "value": 9.0}],
    }
    answers = json.loads((kept / "70/items.json").read_text())
    assert answers == AFTER["items"]
    note = json.loads((kept / "70/provenance.json").read_text())
    assert (note["seeds_from"], note["commit"]) == (70, "abc")
    assert (note["command"], note["wall_hours"]) == ("make unseen SEEDS=70", 0.25)
    runs = json.loads((tmp_path / "published" / "unseen.json").read_text())
    assert [(run["seeds_from"], run["commit"]) for run in runs] == [
        (50, "old"),
        (9000, "abc"),
        (70, "abc"),
    ]
    assert runs[0]["turned"] == {"items": ["a.turned"], "claims": ["turned", "lost"]}
    assert runs[0]["judged"] == {"items": 3, "claims": 3}


def test_younger_items_join_a_run_once(tmp_path, monkeypatch):
    """What turned of them is added to the run's list, and the commit of both is kept."""
    monkeypatch.chdir(tmp_path)
    for seeds in (70, 9000):
        unseen.publish(BEFORE, AFTER, "abc", seeds, 0.25)
    both = [
        {
            "items": {"b.young": {"answer": answer}, "a.same": {"answer": "yes"}},
            "claims": {
                "young": {"item": "b.young", "holds": answer == "yes"},
                "same": {"item": "a.same", "holds": True},
            },
        }
        for answer in ("yes", "no")
    ]
    before, after = (unseen.only(found, ["b.young"]) for found in both)
    unseen.join(before, after, "def", 70, "b_judge")
    kept = tmp_path / "published" / "unseen" / "70"
    answers = json.loads((kept / "items.json").read_text())
    assert answers == AFTER["items"] | {"b.young": {"answer": "no"}}
    assert json.loads((kept / "claims.json").read_text())["young"] == {"holds": False}
    note = json.loads((kept / "provenance.json").read_text())
    assert note["commit"] == "abc"
    command = 'make unseen SEEDS=70 STAGES="b_judge"'
    assert note["joined"] == [{"commit": "def", "command": command}]
    first, other = json.loads((tmp_path / "published" / "unseen.json").read_text())
    assert first["turned"] == {
        "items": ["a.turned", "b.young"],
        "claims": ["turned", "lost", "young"],
    }
    assert first["judged"] == {"items": 4, "claims": 4}
    assert other["judged"] == {"items": 3, "claims": 3}
    with pytest.raises(
        InputError, match="STAGES: wanted items that published/unseen/70 lacks, got b"
    ):
        unseen.join(before, after, "def", 70, "b_judge")


def test_the_items_of_a_stage_are_those_of_its_measures(monkeypatch):
    monkeypatch.chdir(ROOT)
    blocks = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    names = unseen.judged_by(["gradual_rank_judge_normalized"], blocks)
    assert names == ["gradual_rank.normalized_heads"]


def test_a_run_that_is_not_published_cannot_be_joined(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="SEEDS: wanted a run that is published, got 70"):
        unseen.main(70, stages="b_judge")


def test_a_clone_shares_the_cache_of_the_project(tmp_path, monkeypatch):
    for name in ("project", "clone"):
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run([*unseen.DVC, "init", "--no-scm", "--quiet"], cwd=folder, check=True)
    monkeypatch.chdir(tmp_path / "project")
    unseen.share_cache(tmp_path / "clone")
    shown = subprocess.run(
        [*unseen.DVC, "cache", "dir"], cwd=tmp_path / "clone", capture_output=True, text=True
    )
    assert Path(shown.stdout.strip()) == tmp_path / "project/.dvc/cache"


def test_one_line_of_params_says_from_where_seeds_count(tmp_path):
    file = tmp_path / "params.yaml"
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    file.write_text(text)
    unseen.shift(file, 70)
    before, after = text.splitlines(), file.read_text().splitlines()
    changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
    assert changed == [("seeds_from: 0", "seeds_from: 70")]


def test_no_shift_is_refused():
    with pytest.raises(InputError, match="SEEDS: wanted a number above zero, got 0"):
        unseen.main(0)
