"""What peft makes of an adapter: modules that it does not adapt as they are, and what it loads."""

import json
from pathlib import Path

import pytest
import torch
import transformers as t
from safetensors.torch import load_file, save_file

from lib.checkpoints import peft_models
from lib.checkpoints.adapters import lora_config, write_adapter
from lib.checkpoints.folders import aligned, open_checkpoint
from lib.checkpoints.linear_modules import linear_modules, shared_linear_modules
from lib.checkpoints.peft_models import not_adapted, read_back
from published.architectures import tiny
from tests.checkpoints.checkpoints_made import adapted, loss_of, windows
from tests.checkpoints.transformers_made import SIZES, made, pair

WORDS = {"vocab_size": 256, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
FEW_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1}
MLP = ("gate_proj", "up_proj", "down_proj")


def mixture():
    """A dense layer, and one of experts with a shared one beside them."""
    sizes = {**SIZES, **WORDS, **FEW_EXPERTS, "num_key_value_heads": 2, "head_dim": 8}
    config = t.Glm4MoeConfig(**sizes, n_routed_experts=4, first_k_dense_replace=1)
    return t.Glm4MoeForCausalLM(config)


def state_space():
    config = t.MambaConfig(vocab_size=256, hidden_size=32, state_size=4, num_hidden_layers=2)
    return t.MambaForCausalLM(config)


def renamed():
    """A mixture whose shared experts have another name on disk than in the live model."""
    return t.LagunaForCausalLM(tiny.config_of(t.LagunaConfig, {}))


def plain():
    return made("llama")


NOT_ADAPTED = {
    mixture: {
        *(f"model.layers.0.mlp.{name}" for name in MLP),
        *(f"model.layers.1.mlp.shared_experts.{name}" for name in MLP),
    },
    state_space: {f"backbone.layers.{i}.mixer.out_proj" for i in range(2)},
    renamed: {f"model.layers.1.mlp.shared_experts.{name}" for name in MLP},
    plain: set(),
}
WHY = {mixture: "peft would adapt model.layers.1.ml", renamed: peft_models.RENAMED}


@pytest.mark.parametrize("make", NOT_ADAPTED)
def test_what_peft_refuses_or_puts_others_in_place_of_is_named(make):
    def unloaded():
        return make().to("meta")

    names = list(linear_modules(unloaded()))
    found = not_adapted(unloaded, names, "CAUSAL_LM")
    assert set(found) == NOT_ADAPTED[make]
    for name, why in found.items():
        refused = make is state_space or (make is mixture and "down_proj" not in name)
        assert why.startswith("peft refuses: " if refused else WHY[make])


def test_a_module_whose_name_ends_that_of_another_is_named():
    """peft takes the end of a name for it."""

    def unloaded():
        with torch.device("meta"):
            model = torch.nn.ModuleDict({"up": torch.nn.Linear(2, 2), "a": torch.nn.Module()})
            model["a"].up = torch.nn.Linear(2, 2)
        return model

    assert not_adapted(unloaded, ["up"], None) == {"up": "peft would adapt a.up instead"}
    assert not_adapted(unloaded, ["up", "a.up"], None) == {}
    assert not_adapted(unloaded, ["a.up"], None) == {}


def test_layers_that_share_a_weight_or_stand_at_two_places_are_none():
    model = torch.nn.ModuleDict({name: torch.nn.Linear(2, 2) for name in ("a", "b", "c", "d")})
    model["b"].weight = model["a"].weight
    model["e"] = model["c"]
    assert shared_linear_modules(model) == ["a", "b", "c"]
    assert list(linear_modules(model)) == ["d"]


@pytest.fixture
def written(tmp_path):
    """A base, an adapter of it that was drawn, and the loss of the two."""
    base, tuned = map(open_checkpoint, pair("llama", tmp_path))
    factors = {
        name: (torch.randn(2, one.in_features) / 9, torch.randn(one.out_features, 2) / 9)
        for name, one in linear_modules(made("llama")).items()
    }
    config = lora_config(dict.fromkeys(factors, 2), fan_in_fan_out=False)
    said = {"base": "base", "card": "card", "task_type": "CAUSAL_LM"}
    write_adapter(tmp_path / "adapter", factors, config, **said)
    return aligned(base, tuned), tmp_path / "adapter", loss_of(adapted(base.folder, "adapter"))


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


BATCHES = [{"input_ids": windows()[8:16]}]
FILE = Path("adapter/adapter_model.safetensors")


def test_the_loss_is_that_of_the_base_with_the_adapter_as_peft_loads_it(written):
    base, folder, loss = written
    found = read_back(base, folder, BATCHES, "cpu", loss)
    assert found["loss"] == pytest.approx(loss, rel=1e-6)
    assert (found["own_loss"], found["wrong"]) == (loss, [])
    assert read_back(base, folder, [], "cpu", None)["wrong"] == []


def test_a_loss_that_peft_does_not_compute_is_wrong(written):
    base, folder, loss = written
    found = read_back(base, folder, BATCHES, "cpu", loss * 1.001)
    assert found["loss"] == pytest.approx(loss, rel=1e-6)
    assert found["wrong"] == [f"with peft the loss is {loss:.5g}, without it {1.001 * loss:.5g}"]


Q = "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda W: W.pop(Q), f"peft wants {Q}, which the adapter lacks"),
        (lambda W: W.update({"base_model.model.x.lora_A.weight": W[Q].clone()}), "peft takes none"),
        (lambda W: W.update({Q: W[Q][:, :5].clone()}), "wanted an adapter that peft loads"),
    ],
    ids=["missing", "unexpected", "shape"],
)
@pytest.mark.parametrize("batches", [BATCHES, []], ids=["text", "no text"])
def test_tensors_that_peft_lacks_or_leaves_are_wrong(written, change, wanted, batches):
    base, folder, _ = written
    tensors = load_file(FILE)
    change(tensors)
    save_file(tensors, FILE)
    assert any(
        one.startswith(wanted) for one in read_back(base, folder, batches, "cpu", None)["wrong"]
    )


def test_an_adapter_that_peft_refuses_is_wrong(written):
    base, folder, _ = written
    file = folder / "adapter_config.json"
    config = json.loads(file.read_text()) | {"target_modules": ["nowhere"]}
    file.write_text(json.dumps(config))
    found = read_back(base, folder, BATCHES, "cpu", 1.0)
    assert found["loss"] is None
    assert "wanted an adapter that peft loads and computes with, got: " in found["wrong"][0]


def test_a_head_that_the_base_lacks_must_come_with_the_adapter(tmp_path):
    """peft leaves a head that no adapter brings as it was drawn."""
    base = Path("base")
    made("bert").save_pretrained(base)
    tuned = t.BertForSequenceClassification.from_pretrained(base)
    tuned.save_pretrained("tuned")
    name = next(iter(linear_modules(tuned)))
    layer = tuned.get_submodule(name)
    factors = {name: (torch.zeros(1, layer.in_features), torch.zeros(layer.out_features, 1))}
    config = lora_config({name: 1}, fan_in_fan_out=False)
    write_adapter(Path("adapter"), factors, config, base="base", card="", task_type=None)
    begun = aligned(open_checkpoint(base), open_checkpoint(Path("tuned")))
    batch = {"input_ids": windows()[:4], "labels": torch.arange(4) % 2}
    found = read_back(begun, Path("adapter"), [batch], "cpu", 0.7)
    assert found["loss"] is None
    assert found["wrong"] == ["with peft the loss is nan, without it 0.7"]
