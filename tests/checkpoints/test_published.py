"""The published measures of adapters and of rules are those of the tables beside them."""

import shutil

import pandas as pd
import pytest

from lib.pages.measures import read_measures
from published.rank_patterns import run as rank_patterns
from published.rank_rules import run as rank_rules
from tests.pipeline.project import ROOT


@pytest.mark.parametrize("program", [rank_patterns, rank_rules])
def test_published_measures_are_those_of_the_published_tables(program):
    folder = ROOT / program.OUT
    tables = {path.stem: pd.read_parquet(path) for path in (folder / "tables").iterdir()}
    measured = program.measured(tables["trained"] if program is rank_patterns else tables)
    kept = read_measures(folder / "measures.csv")
    names = {f"{row.measure}.{row.case}" if row.case else row.measure for row in measured}
    assert names == kept.keys() - {"setup"}
    for row in measured:
        one = kept[f"{row.measure}.{row.case}" if row.case else row.measure]
        wanted = one["values"][one["cases"].index(row.unit)]
        assert row.value == pytest.approx(wanted, rel=1e-4, abs=1e-6), row


@pytest.mark.parametrize("program", [rank_patterns, rank_rules])
def test_the_kept_measures_can_be_written_again_from_the_kept_tables(
    program, tmp_path, monkeypatch
):
    folder = ROOT / program.OUT
    shutil.copytree(folder / "tables", tmp_path / "tables")
    monkeypatch.setattr(program, "OUT", tmp_path)
    monkeypatch.setattr(program.plot, "main", lambda *_: None)
    program.remeasure()
    again, kept = (read_measures(at / "measures.csv") for at in (tmp_path, folder))
    assert list(again) == list(kept)
    assert again["setup"] == kept["setup"]


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
    kept = read_measures(ROOT / rank_rules.OUT / "measures.csv")
    for kind in ("gentle", "large"):
        whole = kept[f"lost_on_base_attributed.{kind}"]
        alone = kept[f"share_lost_attributed.{kind}"]
        assert whole["cases"] == alone["cases"]
        assert len(whole["cases"]) == 55
        parts = [kept[f"lost_on_base_{of}.{kind}"] for of in ("mixtures", "others")]
        split = [case for one in parts for case in one["cases"]]
        assert sorted(split) == sorted(whole["cases"])
        assert min(parts[0]["values"]) > max(parts[1]["values"])
