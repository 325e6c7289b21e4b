"""Adapters by pattern of ranks, on tiny models: every training is the one that is written out
here.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from lib.training.devices import generator
from published.rank_patterns import run as rank_patterns
from stages.checkpoints import train as training
from tests.checkpoints.checkpoints_made import SIZES, TEXT, cross_entropy

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
    """The loss of a base with an adapter, trained by hand: W + 2 B A in place of W."""
    at = folder / "data" / "checkpoints"
    base = at / row["model"] / "base"
    model = AutoModelForCausalLM.from_pretrained(base)
    by_columns = row["model"] == "gpt2"
    config = rank_patterns.lora_config(ranks, fan_in_fan_out=by_columns, scale=2)
    begun = AutoModelForCausalLM.from_pretrained(base)
    begun = rank_patterns.with_adapter(begun, config, row["seed"])
    factors = {}
    for name in filter(ranks.get, ranks):
        layer = begun.get_submodule(f"base_model.model.{name}")
        parts = (layer.lora_A["default"], layer.lora_B["default"])
        A, B = (part.weight.detach().clone() for part in parts)
        assert (len(A), float(B.abs().sum())) == (ranks[name], 0)
        factors[name] = (A.requires_grad_(), B.requires_grad_())

    def loss(rows):
        weights = {}
        for name, (A, B) in factors.items():
            added = 2 * B @ A
            W = model.get_submodule(name).weight.detach()
            weights[f"{name}.weight"] = W + (added.T if by_columns else added)
        logits = torch.func.functional_call(model, weights, (rows,)).logits
        return cross_entropy(logits, rows)

    leaves = [one for pair in factors.values() for one in pair]
    optimiser = torch.optim.AdamW(leaves, betas=(0.9, 0.99), weight_decay=0)
    tokens = torch.tensor(list((at / "texts" / "tuned.txt").read_bytes()))
    source = generator(row["seed"], "batches of an adapter", row["model"], row["kind"])
    for step in range(row["n_steps"]):
        begin = torch.randint(len(tokens) - 16, (4,), generator=source)
        rate = row["learning_rate"] * (step + 1) / 20 * (1 - 0.9 * step / row["n_steps"])
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        loss(torch.stack([tokens[i : i + 16] for i in begin.tolist()])).backward()
        optimiser.step()
    windows = torch.tensor(list((at / "texts" / "measured.txt").read_bytes())).view(-1, 16)
    with torch.no_grad():
        return float(loss(windows[8:16] if row["part"] == "tuned" else windows[16:32]))


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


def test_measures_are_differences_of_pairs(trained):
    folder, table = trained
    measures = json.loads((folder / "published/rank_patterns/measures.json").read_text())
    found = measures["attributed_less_shuffled_large"]
    rows = chosen(table, part="measured", kind="large")
    losses = rows.pivot_table(index=["model", "seed"], columns="rule", values="loss", observed=True)
    above = losses["attributed"] - losses["shuffled"]
    assert found["cases"] == [f"{model} {seed}" for model, seed in above.index]
    assert found["values"] == pytest.approx(above.tolist(), abs=1e-5)
