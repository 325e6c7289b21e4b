"""The published measures of adapters and of rules are those of the tables beside them."""

import json
import shutil

import pandas as pd
import pytest

from published.rank_patterns import run as rank_patterns
from published.rank_rules import run as rank_rules
from tests.pipeline.project import ROOT
from tests.stages.made import read_digested


@pytest.mark.parametrize("program", [rank_patterns, rank_rules])
def test_published_measures_are_those_of_the_published_tables(program):
    folder = ROOT / program.OUT
    tables = {path.stem: pd.read_parquet(path) for path in (folder / "tables").iterdir()}
    measured = program.measured(tables["trained"] if program is rank_patterns else tables)
    kept = read_digested(folder / "measures.json")
    del kept["setup"]
    assert measured.keys() == kept.keys()
    for name, values in measured.items():
        wanted = dict(zip(kept[name]["cases"], kept[name]["values"], strict=True))
        assert values.to_dict() == pytest.approx(wanted, rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("program", [rank_patterns, rank_rules])
def test_the_kept_measures_can_be_written_again_from_the_kept_tables(
    program, tmp_path, monkeypatch
):
    folder = ROOT / program.OUT
    shutil.copytree(folder / "tables", tmp_path / "tables")
    monkeypatch.setattr(program, "OUT", tmp_path)
    monkeypatch.setattr(program.plot, "main", lambda *_: None)
    program.remeasure()
    for name in ("measures.json", "summary.json", "headlines.json"):
        again, kept = (json.loads((at / name).read_text()) for at in (tmp_path, folder))
        assert list(again) == list(kept), name
        assert again.get("setup") == kept.get("setup")


def test_what_an_adapter_loses_on_the_base_is_a_share_of_the_whole_gain():
    """All of the gain is lost by an adapter of no use, none by one as good as the fine-tune."""
    where = {"kind": "large", "architecture": "gpt2", "base": 1}
    others = {"kind": "large", "architecture": "gpt2", "base": 0}
    gains = pd.DataFrame(
        [
            where | {"loss_base": 3.0, "loss_tuned": 2.0},
            others | {"loss_base": 9.0, "loss_tuned": 1.0},
        ]
    )
    losses = {"loss_on_base": [3.0, 2.0, 2.25, 1.75, 3.5]}
    plans = pd.DataFrame(losses).assign(**where, share_lost=0.5)
    found = rank_rules.on_base(plans, gains)
    assert found["lost_on_base"].tolist() == [1.0, 0.0, 0.25, -0.25, 1.5]


def test_bases_with_experts_lose_more_than_any_other_with_the_adapter_alone():
    kept = json.loads((ROOT / rank_rules.OUT / "measures.json").read_text())
    for kind in ("gentle", "large"):
        whole = kept[f"lost_on_base_attributed_{kind}"]
        alone = kept[f"share_lost_attributed_{kind}"]
        assert whole["cases"] == alone["cases"]
        assert len(whole["cases"]) == 55
        parts = [kept[f"lost_on_base_{of}_{kind}"] for of in ("mixtures", "others")]
        split = [case for one in parts for case in one["cases"]]
        assert sorted(split) == sorted(whole["cases"])
        assert min(parts[0]["values"]) > max(parts[1]["values"])
