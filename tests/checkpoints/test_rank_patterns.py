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
from tests.checkpoints.checkpoints_made import TEXT

SIZES = {
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_mlp": 24,
    "init_scale": 0.1,
    "seq_len": 16,
}
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
        for name, text in (
            ("language", TEXT),
            ("permuted", TEXT[::-1]),
            ("tuned", TEXT[3:]),
            ("measured", TEXT * 2),
        ):
            (texts / f"{name}.txt").write_bytes(text)
        for model in ("llama", "gpt2"):
            at = folder / "data" / "checkpoints" / model
            training.main(
                "checkpoints.example.train",
                Path("trainings.tsv"),
                texts,
                [at],
            )
        rank_patterns.main(n_seeds=2)
        return folder, pd.read_parquet("published/rank_patterns/tables/trained.parquet")


def chosen(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def reference(folder, row, ranks):
    """The loss of a base with an adapter, trained by hand: W + 2 B A in place of W."""
    at = folder / "data" / "checkpoints"
    model = AutoModelForCausalLM.from_pretrained(at / row["model"] / "base")
    by_columns = row["model"] == "gpt2"
    bases, factors = {}, {}
    begun = rank_patterns.with_adapter(
        AutoModelForCausalLM.from_pretrained(at / row["model"] / "base"),
        rank_patterns.lora_config(ranks, fan_in_fan_out=by_columns, scale=2),
        row["seed"],
    )
    for name, rank in ranks.items():
        if rank:
            bases[name] = model.get_submodule(name).weight.detach()
            layer = begun.get_submodule(f"base_model.model.{name}")
            A, B = (
                part["default"].weight.detach().clone() for part in (layer.lora_A, layer.lora_B)
            )
            assert (A.shape[0], float(B.abs().sum())) == (rank, 0)
            factors[name] = (A.requires_grad_(), B.requires_grad_())

    def loss(rows):
        added = {name: 2 * B @ A for name, (A, B) in factors.items()}
        weights = {
            f"{n}.weight": bases[n] + (added[n].T if by_columns else added[n]) for n in added
        }
        logits = torch.func.functional_call(model, weights, (rows,)).logits
        return torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), rows[:, 1:].flatten()
        )

    optimiser = torch.optim.AdamW(
        [x for pair in factors.values() for x in pair], betas=(0.9, 0.99), weight_decay=0
    )
    tokens = torch.tensor(list((at / "texts" / "tuned.txt").read_bytes()))
    source = generator(row["seed"], "batches of an adapter", row["model"], row["kind"])
    for step in range(row["n_steps"]):
        begin = torch.randint(len(tokens) - 16, (4,), generator=source)
        optimiser.param_groups[0]["lr"] = (
            row["learning_rate"] * (step + 1) / 20 * (1 - 0.9 * step / row["n_steps"])
        )
        optimiser.zero_grad()
        loss(torch.stack([tokens[i : i + 16] for i in begin.tolist()])).backward()
        optimiser.step()
    windows = torch.tensor(list((at / "texts" / "measured.txt").read_bytes())).view(-1, 16)
    rows = windows[8:16] if row["part"] == "tuned" else windows[16:32]
    with torch.no_grad():
        return float(loss(rows))


@pytest.mark.parametrize("model", ["llama", "gpt2"])
@pytest.mark.parametrize("rule", ["uniform", "attributed", "uniform, longer"])
def test_an_adapter_is_trained_as_it_is_written_out_here(trained, model, rule):
    folder, table = trained
    ranks = pd.read_parquet(folder / "published/rank_patterns/tables/patterns.parquet")
    at = chosen(ranks, model=model, kind="large").set_index("module")
    given = at["attributed" if rule == "attributed" else "uniform"].to_dict()
    for part, seed in (("tuned", 1001), ("measured", 1)):
        row = chosen(table, model=model, kind="large", rule=rule, part=part, seed=seed).iloc[
            0
        ].to_dict() | {"seed": seed}
        assert row["n_steps"] == (5 if rule == "uniform, longer" else 4)
        assert row["parameters"] == sum(
            rank * (at["rows"] + at["cols"])[name] for name, rank in given.items()
        )
        assert row["loss"] == pytest.approx(reference(folder, row, given), rel=1e-4)


def test_the_rate_of_a_rule_has_the_lowest_mean_loss_over_tuning_seeds(trained):
    _, table = trained
    for (model, kind, rule), rows in table.groupby(["model", "kind", "rule"], observed=True):
        tuning = chosen(rows, part="tuned")
        assert sorted(set(tuning["seed"])) == [1000, 1001]
        means = {rate: part["loss"].mean() for rate, part in tuning.groupby("learning_rate")}
        assert len(means) == 2
        measured = chosen(rows, part="measured")
        assert set(measured["learning_rate"]) == {min(means, key=means.get)}, (model, kind, rule)
        assert sorted(measured["seed"]) == [0, 1]


def test_measures_are_differences_of_pairs_and_rules_cost_the_same(trained):
    folder, table = trained
    measures = json.loads((folder / "published/rank_patterns/measures.json").read_text())
    found = measures["attributed_less_shuffled_large"]
    assert found["cases"] == ["gpt2 0", "gpt2 1", "llama 0", "llama 1"]
    for case, value in zip(found["cases"], found["values"], strict=True):
        model, seed = case.split()
        pair = chosen(table, part="measured", model=model, seed=int(seed)).set_index("rule")["loss"]
        assert value == pytest.approx(pair["attributed"] - pair["shuffled"], abs=1e-5)
    for _, rows in table.groupby(["model", "kind"], observed=True):
        cost = {rule: set(part["parameters"]) for rule, part in rows.groupby("rule", observed=True)}
        assert cost["attributed"] == cost["shuffled"]
        assert max(cost["attributed"]) <= min(cost["uniform"]) == max(cost["uniform, longer"])
