"""Pairs as the hub has them: a backbone and a model on it, with and without its prefix, in f16."""

import json
import warnings
from pathlib import Path

import pandas as pd
import pytest
import torch
import transformers as t
from safetensors.torch import load_file, save_file

from lib.checkpoints.folders import aligned, check_pair, open_checkpoint
from lib.checkpoints.linear_modules import linear_modules
from lib.checkpoints.models import linear_places, open_model
from tests.checkpoints.checkpoints_made import (
    FEW,
    SPECTRA,
    TEXT,
    adapted,
    fit,
    planned,
    taught,
    windows,
)
from tests.checkpoints.transformers_made import made, moved, pair, saved

ONE = dict.fromkeys(("n_batches", "n_choosing_batches", "n_measured_batches"), 1) | FEW


def test_the_tuned_one_of_a_pair_may_lack_the_prefix(tmp_path):
    """A test of a backbone, below, shows that the base may lack it, too."""
    places = pair("gpt2", tmp_path)
    file = places[1] / "model.safetensors"
    short = {name.removeprefix("transformer."): W for name, W in load_file(file).items()}
    save_file(short, file, {"format": "pt"})
    base, tuned = map(open_checkpoint, places)
    found = aligned(base, tuned)
    assert set(found.tensors) == set(short) == set(check_pair(base, tuned))
    for name, W in load_file(places[0] / "model.safetensors").items():
        assert torch.equal(found.load(name.removeprefix("transformer.")), W)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_modules_that_the_library_keeps_wider_are_matched(tmp_path, dtype):
    config = t.T5Config(d_model=16, d_ff=24, d_kv=4, num_layers=1, num_heads=4, vocab_size=99)
    folder = saved(moved(t.T5ForConditionalGeneration(config), 1).to(dtype), tmp_path / "t5")
    opened = open_checkpoint(folder)
    model = open_model(folder, opened.config)
    kept = {str(m.weight.dtype) for m in linear_modules(model).values()}
    assert len(kept) == (2 if dtype == torch.float16 else 1)
    places = linear_places(opened, model)
    for name, (place, _) in places.items():
        assert torch.equal(model.get_parameter(f"{name}.weight"), opened.load(place))
    assert len(places) == 16


def classifiers(kind, folder):
    """A base without a head, what was tuned from it with one, and samples on which it is better."""
    base = saved(made("vit").vit if kind == "vit" else made("bert"), folder / "base")
    kind_of = t.ViTForImageClassification if kind == "vit" else t.BertForSequenceClassification
    images = {"pixel_values": torch.randn(16, 3, 8, 8)}
    samples = images if kind == "vit" else {"input_ids": torch.randint(256, (16, 12))}
    samples["labels"] = torch.arange(16) % 2
    tuned = kind_of.from_pretrained(base)
    fit(tuned, 12, **samples)
    measured = {name: of[:4] for name, of in samples.items()}
    three = {name: torch.cat([of] * 3) for name, of in measured.items()}
    save_file(three, folder / "my.safetensors")
    return base, saved(tuned.eval(), folder / "tuned"), measured, kind_of


def adapters_of(stage, plans, saves="no"):
    """Run the stage adapt; what is listed."""
    made = {name: Path(name) for name in ("plans", "factors", "adapters")}
    given = {"base": plans.base, "tuned": plans.tuned, "modules_to_save": saves}
    stage("checkpoints.adapt", {}, **given, **made)
    return json.loads(Path("adapters/adapters.json").read_text())


@pytest.mark.parametrize("saves", ["no", "yes"])
@pytest.mark.parametrize("kind", ["vit", "bert"])
def test_a_backbone_and_a_classifier_that_was_tuned_from_it(stage, tmp_path, kind, saves):
    """The head is new: every adapter carries it, and peft has the loss that is listed."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base, tuned, samples, kind_of = classifiers(kind, tmp_path)
    plans = planned(base, tuned, "my.safetensors", saved=saves, **ONE)
    [listed] = adapters_of(stage, plans, saves)
    with torch.no_grad():
        found = float(adapted(base, "adapters/rank-3", kind_of)(**samples).loss)
    assert found == pytest.approx(listed["loss"], rel=1e-4)
    assert plans.losses["loss_tuned"] < found < plans.losses["loss_base"]
    config = json.loads(Path("adapters/rank-3/adapter_config.json").read_text())
    assert "classifier" in config["modules_to_save"]
    assert ("bert.pooler.dense" in config["modules_to_save"]) == (kind == "bert")
    card = Path("adapters/rank-3/README.md").read_text()
    assert ("It carries whole what base lacks: " in card) == (saves == "no")
    assert ("classifier" in listed["lacking"]) == (saves == "no")


EXPERTS = {
    "mixtral": "block_sparse_moe.experts.*.w1.weight",
    "qwen2_moe": "mlp.experts.*.up_proj.weight",
    "gpt_oss": "mlp.experts.gate_up_proj_bias",
}


@pytest.mark.parametrize("kind", EXPERTS)
def test_experts_that_are_held_together_are_named_with_their_share(stage, tmp_path, kind):
    """The share is that of models put together by hand; peft has the loss that is listed."""
    (tmp_path / "my.txt").write_bytes(TEXT)
    plans = planned(*taught(kind, tmp_path), "my.txt", **ONE)
    [listed] = adapters_of(stage, plans)
    base, ended = (t.AutoModelForCausalLM.from_pretrained(f) for f in (plans.base, plans.tuned))
    tokens = windows(TEXT)[4:8]

    def loss(model):
        with torch.no_grad():
            return float(model(input_ids=tokens, labels=tokens).loss)

    tuned = loss(ended)
    with torch.no_grad():
        for name, parameter in ended.named_parameters():
            if ".experts." in name:
                parameter.copy_(base.get_parameter(name))
    share = (loss(ended) - tuned) / (loss(base) - tuned)
    assert 0.05 < share < 1
    assert listed["experts_share"] == pytest.approx(share, abs=1e-4)
    assert f"model.layers.*.{EXPERTS[kind]}" in listed["experts"]
    assert set(listed["experts"]) <= set(listed["left"])
    card = Path("adapters/rank-3/README.md").read_text()
    assert f"all else as tuned, {share:.1%} of the whole gain is lost" in card
    found = loss(adapted(plans.base, "adapters/rank-3"))
    assert found == pytest.approx(listed["loss"], rel=1e-4)


def test_experts_that_are_stored_together_have_a_spectrum_each(stage, tmp_path):
    base, tuned = pair("gpt_oss", tmp_path)
    given = {"base": base, "snapshots": tuned, "spectra": Path("spectra.parquet")}
    stage("checkpoints.spectra", {"s": SPECTRA}, section="s", **given)
    table = pd.read_parquet("spectra.parquet").set_index("module")
    name = "model.layers.1.mlp.experts.down_proj"
    W_0, W = (load_file(folder / "model.safetensors")[name] for folder in (base, tuned))
    assert name not in table.index
    for number in range(len(W)):
        row = table.loc[f"{name}.{number}"]
        sigma = torch.linalg.svdvals(W[number].double() - W_0[number].double()).numpy()
        assert row["singular_values"] == pytest.approx(sigma)
        assert (row["rows"], row["cols"], row["layer"]) == (*W.shape[1:], 2)
