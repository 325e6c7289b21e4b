"""A structure that is known by heart is that of transformers, and peft adapts all of it.

What is not plain is not known.
"""

import json
import re

import pytest
import torch

from lib.checkpoints.adapters import lora_config, write_adapter
from lib.checkpoints.folders import aligned, open_checkpoint
from lib.checkpoints.known_structures import known_modules, known_places, misfits
from lib.checkpoints.library import unloaded
from lib.checkpoints.linear_modules import (
    empty_linear_modules,
    linear_modules,
    shared_linear_modules,
)
from lib.checkpoints.models import check_architecture, check_shapes, linear_places
from lib.checkpoints.peft_models import not_adapted, read_back
from tests.checkpoints.transformers_made import made, saved

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
KNOWN = {
    "llama": ("llama", {}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "no groups": ("llama", {"num_key_value_heads": 4}),
    "wide heads": ("llama", {"head_dim": 12}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3": ("llama", {"rope_parameters": LLAMA3, "max_position_embeddings": 512}),
    "mistral": ("mistral", {}),
    "mistral, tied": ("mistral", {"tie_word_embeddings": True, "sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2, sliding": ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen3": ("qwen3", {}),
    "qwen3, biases": ("qwen3", {"attention_bias": True, "tie_word_embeddings": True}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_structure_is_that_of_transformers_and_peft_adapts_all_of_it(name, tmp_path):
    kind, changes = KNOWN[name]
    checkpoint = open_checkpoint(saved(made(kind, **changes), tmp_path / "model"))
    known = known_modules(checkpoint)

    def model():
        return unloaded(checkpoint.folder, checkpoint.config)

    shapes = {name: entry.shape for name, entry in checkpoint.tensors.items()}
    found = linear_modules(model())
    assert known is not None
    assert list(known) == list(found)
    assert known == {name: (one.out_features, one.in_features) for name, one in found.items()}
    assert known_places(checkpoint) == linear_places(checkpoint)
    assert not_adapted(model, list(known), "CAUSAL_LM") == {}
    assert shared_linear_modules(model()) == empty_linear_modules(model()) == []
    assert check_shapes(checkpoint) == sum(torch.Size(shape).numel() for shape in shapes.values())
    check_architecture(checkpoint.folder, checkpoint.config)


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "gemma", "phi3", "bert", "mixtral"])
def test_no_other_structure_is_known(kind, tmp_path):
    assert known_modules(open_checkpoint(saved(made(kind), tmp_path / "model"))) is None


NOT_PLAIN = [
    {"architectures": ["LlamaForSequenceClassification"]},
    {"architectures": ["LlamaForCausalLM"] * 2},
    {"model_type": "mistral"},
    {"auto_map": {"AutoConfig": "mine.C"}},
    {"hidden_act": "slu"},
    {"hidden_size": 32.0},
    {"hidden_size": 36},
    {"num_attention_heads": 0},
    {"num_attention_heads": True},
    {"num_hidden_layers": 3},
    {"num_key_value_heads": 3},
    {"pad_token_id": 256},
    {"pad_token_id": -1},
    {"rope_parameters": {"rope_type": "mine"}},
    {"rope_parameters": {"rope_type": "llama3", "factor": 8.0}},
    {"rms_norm_eps": "1e-6"},
    {"tie_word_embeddings": True},
    {"attention_bias": True},
    {"vocab_size": 255},
    {"dtype": "int8"},
]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return saved(made("llama"), tmp_path_factory.mktemp("llama"))


@pytest.mark.parametrize("changes", NOT_PLAIN, ids=str)
def test_a_config_that_is_not_plain_or_not_of_the_tensors_is_not_known(llama, tmp_path, changes):
    config = json.loads((llama / "config.json").read_text()) | changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").symlink_to(llama / "model.safetensors")
    assert known_modules(open_checkpoint(llama)) is not None
    assert known_modules(open_checkpoint(tmp_path)) is None


def written(base, folder, ranks, **equal):
    """An adapter of these ranks by module."""
    factors = {name: (torch.ones(r, i), torch.ones(o, r)) for name, (r, o, i) in ranks.items()}
    config = lora_config({name: one[0] for name, one in ranks.items()}, fan_in_fan_out=False)
    said = {"base": str(base), "card": "card", "task_type": "CAUSAL_LM"}
    write_adapter(folder, factors, config, **said, **equal)
    return folder


@pytest.mark.parametrize("equal", [False, True])
def test_an_adapter_fits_a_known_structure_where_peft_takes_it(llama, tmp_path, equal):
    base = open_checkpoint(llama)
    known = known_modules(base)
    ranks = {name: (1 + i % 3, *shape) for i, (name, shape) in enumerate(known.items())}
    ranks.pop("model.layers.0.mlp.up_proj")
    folder = written(llama, tmp_path / "adapter", ranks, equal=equal)
    assert read_back(aligned(base, base), folder, [], "cpu", None)["wrong"] == []
    assert misfits(folder, known) == []


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"model.layers.0.mlp.up": (2, 48, 32)}, "got the target model.layers.0.mlp.up$"),
        ({"model.layers.0.mlp.up_proj": (2, 32, 48)}, r"lora_A.weight: .* \(2, 32\), got \(2, 48"),
    ],
)
def test_a_tensor_or_a_target_that_does_not_fit_is_named(llama, tmp_path, change, got):
    folder = written(llama, tmp_path / "adapter", change)
    first = misfits(folder, known_modules(open_checkpoint(llama)))[0]
    assert re.search(got, first)


def test_a_rank_that_the_config_does_not_say_is_named(llama, tmp_path):
    name = "model.layers.1.self_attn.q_proj"
    folder = written(llama, tmp_path / "adapter", {name: (2, 32, 32)})
    config = json.loads((folder / "adapter_config.json").read_text())
    config["rank_pattern"] = {}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"r": 3}))
    said = misfits(folder, known_modules(open_checkpoint(llama)))
    assert said[0].endswith("lora_A.weight: wanted the shape (3, 32), got (2, 32)")
    assert len(said) == 2
