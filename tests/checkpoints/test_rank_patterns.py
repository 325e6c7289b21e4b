"""Adapters by pattern of ranks, on tiny models: every training is the one that is written out
here.
"""

from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from lib.training.devices import generator
from published.rank_patterns import run as rank_patterns
from stages.checkpoints import train as training
from tests.checkpoints.checkpoints_made import SIZES, TEXT, cross_entropy, descended, windows

TRAININGS = "name\tn_steps\tlearning_rate\tsnapshot_steps\nbase\t4\t1e-2\t[]\nlarge\t4\t1e-2\t[1]\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The table of what was trained, in a folder where all was made."""
    folder = tmp_path_factory.mktemp("patterns")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
        patch.setattr(rank_patterns, "RATES", (1e-3, 1e-2))
        patch.setattr(rank_patterns, "WINDOWS", 2)
        patch.setattr(rank_patterns, "BUDGET", 1)
        patch.setattr(rank_patterns.plot, "main", lambda *_: None)
        example = {"train": {"n_seeds": 1, "batch_size": 4, **SIZES}}
        params = {"cases": {"trainings": "trainings.tsv"}, "example": example}
        Path("params.yaml").write_text(yaml.safe_dump({"checkpoints": params}))
        Path("trainings.tsv").write_text(TRAININGS)
        texts = folder / "data" / "checkpoints" / "texts"
        texts.mkdir(parents=True)
        made = {"language": TEXT, "permuted": TEXT[::-1], "tuned": TEXT[3:], "measured": TEXT * 2}
        for name, text in made.items():
            (texts / f"{name}.txt").write_bytes(text)
        models = [folder / "data" / "checkpoints" / model for model in ("llama", "gpt2")]
        training.main("checkpoints.example.train", Path("trainings.tsv"), texts, models)
        rank_patterns.main(n_seeds=2)
        return folder, pd.read_parquet("published/rank_patterns/tables/trained.parquet")


def chosen(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def reference(folder, row, ranks):
    """The loss of a base with an adapter of alpha twice the rank, trained step by step."""
    at = folder / "data" / "checkpoints"
    base = AutoModelForCausalLM.from_pretrained(at / row["model"] / "base")
    config = rank_patterns.lora_config(ranks, fan_in_fan_out=row["model"] == "gpt2", scale=2)
    model = rank_patterns.with_adapter(base, config, row["seed"])
    added = [one for name, one in model.named_parameters() if "lora_B" in name]
    assert len(added) == sum(rank > 0 for rank in ranks.values())
    assert not any(one.any() for one in added)
    source = generator(row["seed"], "batches of an adapter", row["model"], row["kind"])
    text = (at / "texts" / "tuned.txt").read_bytes()
    descended(model, text, row["n_steps"], row["learning_rate"], source)
    rows = slice(8, 16) if row["part"] == "tuned" else slice(16, 32)
    tokens = windows((at / "texts" / "measured.txt").read_bytes())[rows]
    with torch.no_grad():
        return float(cross_entropy(model(input_ids=tokens).logits, tokens))


@pytest.mark.parametrize(
    ("model", "rule", "n_steps"),
    [("llama", "attributed", 4), ("gpt2", "attributed", 4), ("llama", "uniform, longer", 5)],
)
def test_an_adapter_is_trained_as_it_is_written_out_here(trained, model, rule, n_steps):
    folder, table = trained
    patterns = pd.read_parquet(folder / "published/rank_patterns/tables/patterns.parquet")
    at = chosen(patterns, model=model, kind="large").set_index("module")
    given = at["attributed" if rule == "attributed" else "uniform"]
    for part, seed in (("tuned", 1001), ("measured", 1)):
        where = {"model": model, "kind": "large", "rule": rule, "part": part, "seed": seed}
        row = chosen(table, **where).iloc[0].to_dict() | where
        assert row["n_steps"] == n_steps
        assert row["parameters"] == (given * (at["rows"] + at["cols"])).sum()
        wanted = reference(folder, row, given.to_dict())
        assert row["loss"] == pytest.approx(wanted, rel=1e-4)


def test_the_rate_of_a_rule_has_the_lowest_mean_loss_over_tuning_seeds(trained):
    _, table = trained
    for key, rows in table.groupby(["model", "kind", "rule"], observed=True):
        tuning = chosen(rows, part="tuned")
        assert set(tuning["seed"]) == {1000, 1001}
        means = tuning.groupby("learning_rate")["loss"].mean()
        measured = chosen(rows, part="measured")
        assert (len(means), set(measured["learning_rate"])) == (2, {means.idxmin()}), key
        assert set(measured["seed"]) == {0, 1}
