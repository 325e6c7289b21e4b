"""What peft, vLLM and llama.cpp make of an adapter, each by its own rule of the scale."""

import json
import re
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lib.checkpoints.adapters import lora_config, write_adapter
from lib.checkpoints.folders import Checkpoint, hub_name
from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from tests.checkpoints.transformers_made import made


def of_peft(config, name, _):
    """peft: alpha over rank, each that of the first pattern which fits the name's end."""

    def found(kind, otherwise):
        for key, value in config[kind].items():
            if re.match(rf"(.*\.)?({key})$", name):
                return value
        return config[otherwise]

    return found("alpha_pattern", "lora_alpha") / found("rank_pattern", "r")


def of_vllm(config, *_):
    """vLLM: one factor for all, which knows no pattern."""
    return config["lora_alpha"] / config["r"]


def of_llama_cpp(config, _, A):
    """llama.cpp: the one alpha that its converter keeps, over the rows of A."""
    return config["lora_alpha"] / A.shape[0]


RULES = {"peft": of_peft, "vLLM": of_vllm, "llama.cpp": of_llama_cpp}
RANKS = (0, 1, 3, 5)


def written(kind, folder, *, equal):
    """A base, factors of mixed ranks, and the folder of their adapter."""
    model = made(kind)
    random = torch.Generator().manual_seed(3)
    factors = {}
    ranks = {}
    for i, (name, module) in enumerate(linear_modules(model).items()):
        rows, cols = module.weight.shape
        if stored_as_columns(module):
            rows, cols = cols, rows
        ranks[name] = RANKS[i % len(RANKS)]
        if ranks[name]:
            A = torch.randn(ranks[name], cols, generator=random)
            B = torch.randn(rows, ranks[name], generator=random)
            factors[name] = (A, B)
    config = lora_config(ranks, fan_in_fan_out=kind == "gpt2")
    write_adapter(folder, factors, config, base="b", card="c", task_type=None, equal=equal)
    return model, factors, ranks


@pytest.mark.parametrize("equal", [True, False], ids=["equal", "mixed"])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_equal_ranks_are_right_in_every_runtime_and_mixed_ones_wrong_in_one(kind, equal, tmp_path):
    _, factors, ranks = written(kind, tmp_path / "adapter", equal=equal)
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert bool(config["rank_pattern"]) == bool(config["alpha_pattern"]) == (not equal)
    wrong = {runtime: set() for runtime in RULES}
    for name, (A, B) in factors.items():
        A_read, B_read = (tensors[f"base_model.model.{name}.lora_{x}.weight"] for x in "AB")
        assert A_read.shape[0] == B_read.shape[1] == (5 if equal else ranks[name])
        for runtime, rule in RULES.items():
            added = rule(config, name, A_read) * B_read @ A_read
            if not torch.allclose(added, B @ A, rtol=1e-5, atol=1e-5):
                wrong[runtime].add(name)
    low = {name for name, rank in ranks.items() if 0 < rank < 5}
    assert low
    assert wrong == {"peft": set(), "vLLM": set(), "llama.cpp": set() if equal else low}


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_peft_merges_an_adapter_of_equal_ranks_to_the_same_weights(kind, tmp_path):
    model, factors, _ = written(kind, tmp_path, equal=True)
    before = {name: one.weight.detach().clone() for name, one in linear_modules(model).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from peft import PeftModel

        merged = linear_modules(PeftModel.from_pretrained(model, tmp_path).merge_and_unload())
    for name, W_0 in before.items():
        A, B = factors.get(name, (torch.zeros(1, 1), torch.zeros(1, 1)))
        added = (B @ A).T if kind == "gpt2" else B @ A
        torch.testing.assert_close(merged[name].weight.detach(), W_0 + added, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("place", "told", "name"),
    [
        ("hub/models--org--model-7b/snapshots/0af1", "other/one", "org/model-7b"),
        ("hub/models--gpt2/snapshots/0af1", "", "gpt2"),
        ("base", "org/model-7b", "org/model-7b"),
        ("base", "./out/run", "base"),
        ("base", "/models/one", "base"),
        ("base", "out/checkpoint-300", "base"),
        ("base", "", "base"),
    ],
)
def test_a_base_is_named_as_the_hub_names_it(tmp_path, place, told, name):
    folder = Path(tmp_path, place)
    folder.mkdir(parents=True)
    assert hub_name(Checkpoint(folder, {"_name_or_path": told}, {})) == name
