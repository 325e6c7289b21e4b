"""Live models: what they are made of, which of their modules are planned, and what is refused."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.checkpoints.adapters import with_adapter
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.linear_modules import empty_linear_modules, linear_modules
from lib.checkpoints.models import check_architecture, open_model
from lib.checkpoints.texts import loss, token_ids
from lib.files.files import InputError
from tests.checkpoints.transformers_made import made, saved


def test_an_adapter_is_drawn_from_its_seed():
    config = {"r": 2, "target_modules": ["layers.1.mlp.up_proj"]}
    one, same, other = (
        next(
            A
            for name, A in with_adapter(made("llama"), config, seed).named_parameters()
            if "lora_A" in name
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_class_derived_from_linear_counts_and_a_router_or_a_projection_never_called_does_not():
    class Fused(torch.nn.Linear):
        pass

    class TopRouter(torch.nn.Linear):
        pass

    model = torch.nn.Module()
    model.fused = Fused(2, 2)
    model.pooler = torch.nn.Linear(2, 2)
    model.top = TopRouter(2, 2)
    model.gate = torch.nn.Linear(2, 2)
    model.attention = torch.nn.MultiheadAttention(2, 1)
    model.classifier = torch.nn.Linear(2, 2)
    assert list(linear_modules(model)) == ["fused", "pooler"]


def test_a_linear_layer_whose_weight_is_empty_is_none():
    model = torch.nn.ModuleDict({"some": torch.nn.Linear(2, 2), "none": torch.nn.Linear(2, 2)})
    model["none"].weight = torch.nn.Parameter(torch.zeros(2, 0))
    assert list(linear_modules(model)) == ["some"]
    assert empty_linear_modules(model) == ["none"]


@pytest.mark.parametrize(("kind", "n"), [("llama", 14), ("gpt2", 8), ("bert", 13)])
def test_heads_and_embeddings_are_no_targets(kind, n):
    found = linear_modules(made(kind))
    assert len(found) == n
    assert not [name for name in found if "embed" in name or "lm_head" in name or "decoder" in name]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return saved(made("llama"), tmp_path_factory.mktemp("llama"))


@pytest.fixture
def copy(llama, tmp_path):
    return shutil.copytree(llama, tmp_path / "copy")


def rewritten(folder, **changes):
    """The config of a checkpoint, with changes, which are written."""
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return config


NAMES = ["MyOwnForCausalLM", "LlamaConfig", "pipeline", "LlamaPreTrainedModel", 3]


@pytest.mark.parametrize("names", [*([name] for name in NAMES), "LlamaForCausalLM"])
@pytest.mark.parametrize("opening", [check_architecture, open_model])
def test_an_architecture_that_is_no_model_of_transformers_is_refused(copy, names, opening):
    got = re.escape(str(names))
    wanted = rf"copy: wanted an architecture that transformers \S+ has, got {got}$"
    with pytest.raises(InputError, match=wanted):
        opening(copy, rewritten(copy, architectures=names))


@pytest.fixture
def ran(copy, monkeypatch):
    """What the code in a checkpoint would write, were a user to answer that it may run."""
    monkeypatch.setattr("builtins.input", lambda _: "y")
    (copy / "mine.py").write_text(f"open({str(copy / 'ran')!r}, 'w').close()")
    return copy / "ran"


@pytest.mark.parametrize("opening", [check_architecture, open_model])
@pytest.mark.parametrize(
    "changes",
    [
        {"auto_map": {"AutoConfig": "mine.C"}, "model_type": "mine"},
        {"text_config": {"auto_map": {"AutoModel": "mine.M"}}},
    ],
)
def test_a_model_with_code_of_its_own_is_refused(copy, ran, changes, opening):
    wanted = r"copy: wanted a model of .*, got one with code of its own \(auto_map\)$"
    with pytest.raises(InputError, match=wanted):
        opening(copy, rewritten(copy, **changes))
    assert not ran.exists()


def test_a_tokenizer_with_code_of_its_own_is_refused(copy, ran):
    (copy / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["mine.T", null]}}')
    rewritten(copy, model_type="mine")
    wanted = r"wanted a tokenizer of .*, got one with code of its own \(auto_map\)$"
    with pytest.raises(InputError, match=wanted):
        token_ids(copy, b"words", 256)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": "256"}, "config that LlamaForCausalLM can read, got: .*expected int"),
        ({"vocab_size": 9}, "can read, got: weights of other shapes than its config says"),
    ],
)
def test_what_the_library_cannot_open_is_refused_in_one_line(copy, changes, message):
    config = rewritten(copy, **changes)
    with pytest.raises(InputError, match=rf"copy: .*{message}.*Error\)$") as refused:
        check_architecture(copy, config)
        open_model(copy, config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(28, "full"), RuntimeError("can't allocate memory")]
)
def test_what_the_machine_lacks_is_no_fault_of_a_checkpoint(error):
    class Large(torch.nn.Module):
        def forward(self, **_):
            raise error

    with pytest.raises(type(error)) as raised:
        loss(Large(), {"input_ids": torch.zeros(1, 4)})
    assert raised.value is error


def test_a_weight_that_is_missing_is_not_drawn_at_random(copy):
    weights = load_file(copy / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, copy / "model.safetensors", {"format": "pt"})
    wanted = r"wanted every weight of Llama\w+, got none for 1 of them: .*layers.1.mlp.up_proj"
    with pytest.raises(InputError, match=wanted):
        open_model(copy, open_checkpoint(copy).config)
