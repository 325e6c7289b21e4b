"""Names on disk and in the live model: the library's own renaming decides, and never content."""

import functools
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.checkpoints.adapters import lora_config, write_adapter
from lib.checkpoints.folders import aligned, check_pair, open_checkpoint
from lib.checkpoints.gains import opened_updates
from lib.checkpoints.linear_modules import beside_linear_layers, linear_modules
from lib.checkpoints.models import linear_places, open_model, put
from lib.checkpoints.names import tied_names
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import adapted
from tests.checkpoints.transformers_made import made, moved, pair, saved

FILE = "model.safetensors"
KINDS = ["llama", "mixtral", "gpt2", "gpt_neox", "phi3", "bert", "vit", "gemma3"]


def rewritten(folder, changed):
    """A checkpoint whose tensors were changed, and are written."""
    tensors = changed(load_file(folder / FILE))
    save_file({name: W.clone() for name, W in tensors.items()}, folder / FILE, {"format": "pt"})
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_names_place_each_layer_and_no_weight_is_read(kind, tmp_path, monkeypatch):
    base = open_checkpoint(saved(made(kind), tmp_path / "base"))
    live = open_model(base.folder, base.config)
    never = functools.partial(pytest.fail, "weights were read")
    monkeypatch.setattr("lib.checkpoints.models.open_model", never)
    places = linear_places(base)
    assert list(places) == list(linear_modules(live))
    for name, (place, _) in places.items():
        assert torch.equal(live.get_parameter(f"{name}.weight"), base.load(place))
    assert {by_columns for _, by_columns in places.values()} == {kind == "gpt2"}


def test_layers_of_equal_content_are_told_apart_by_their_names(tmp_path):
    """Frozen twins have the same weights, and each has its own tensor."""
    model = made("llama", num_hidden_layers=3)
    for number in (1, 2):
        model.model.layers[number].load_state_dict(model.model.layers[0].state_dict())
    base = open_checkpoint(saved(model, tmp_path / "base"))
    moved(model.model.layers[2], 3)
    tuned = open_checkpoint(saved(model, tmp_path / "tuned"))
    linear, places = opened_updates(base, tuned)
    assert {place for place, _ in places.values()} == {f"{name}.weight" for name in places}
    for name, update in linear.updates.items():
        assert bool(update.any()) == ("layers.2." in name)


def test_weights_are_as_precise_as_on_disk_beside_a_config_of_bf16(tmp_path):
    places = pair("llama", tmp_path)
    file = places[1] / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": "bfloat16"}))
    base, tuned = map(open_checkpoint, places)
    linear, _ = opened_updates(base, tuned)
    for name, parameter in linear.model.named_parameters():
        assert torch.equal(parameter, tuned.load(name))


def test_two_tensors_for_one_layer_are_refused_by_name(tmp_path):
    place = "layers.1.mlp.up_proj.weight"
    base = rewritten(
        saved(made("llama"), tmp_path / "base"),
        lambda tensors: tensors | {place: tensors[f"model.{place}"]},
    )
    with pytest.raises(InputError, match=r"up_proj: wanted one tensor .* got \['layers.*', 'mod"):
        linear_places(open_checkpoint(base))


@pytest.mark.parametrize("older", ["base", "tuned"])
def test_a_pair_may_have_the_names_of_two_versions_of_the_library(tmp_path, older):
    """One of the two has the names of the live model, the other those on disk."""
    base, tuned = pair("gemma3", tmp_path)
    wanted = {name: W.clone() for name, W in load_file(base / FILE).items()}
    new = tuned if older == "base" else base
    rewritten(new, lambda tensors: {live_name(name): W for name, W in tensors.items()})
    begun, ended = map(open_checkpoint, (base, tuned))
    found = aligned(begun, ended)
    assert set(check_pair(begun, ended)) == set(ended.tensors) == set(found.tensors)
    for name, W in wanted.items():
        assert torch.equal(found.load(live_name(name) if new is tuned else name), W)


def live_name(name):
    """What Gemma 3 calls a tensor on disk."""
    begun = {"language_model.model.": "model.language_model.", "lm_head": "lm_head"}
    for old, new in begun.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return f"model.{name}"


def test_ties_are_those_of_the_live_model(tmp_path):
    assert tied_names(made("gpt2"))["lm_head.weight"] == ["transformer.wte.weight"]
    assert tied_names(untied(made("gpt2")))["lm_head.weight"] == []


def untied(model):
    """The model with a head of its own, and a config that still says that it is tied."""
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    return model


@pytest.mark.parametrize(
    "what", [("lm_head",), ("transformer.wte",), ("lm_head", "transformer.wte")]
)
def test_a_head_that_was_tuned_apart_is_carried_apart_and_peft_loads_it(tmp_path, what):
    base = saved(made("gpt2"), tmp_path / "base")
    changed = untied(made("gpt2"))
    for seed, name in enumerate(what):
        moved(changed.get_submodule(name), seed)
    tuned = open_checkpoint(saved(changed, tmp_path / "tuned"))
    begun = open_checkpoint(base)
    model, ended = (open_model(one.folder, one.config) for one in (begun, tuned))
    rest = beside_linear_layers(model, ended)
    assert (rest.modules, rest.left, rest.tied) == ([*what], [], False)
    put(model, rest.parameters)
    tokens = torch.arange(16)[None]
    wanted = changed(tokens).logits
    torch.testing.assert_close(model(tokens).logits, wanted)
    layer = "transformer.h.0.attn.c_proj"
    factors = {layer: (torch.zeros(1, 32), torch.zeros(32, 1))}
    config = lora_config({layer: 1}, fan_in_fan_out=True) | rest.config
    how = {"base": str(base), "card": "", "task_type": None, "saved": rest.parameters}
    write_adapter(tmp_path / "adapter", factors, config, **how)
    torch.testing.assert_close(adapted(base, tmp_path / "adapter")(tokens).logits, wanted)


def test_biases_that_the_base_lacks_are_left_by_name(tmp_path):
    base = made("llama")
    ended = made("llama", attention_bias=True)
    ended.load_state_dict(base.state_dict(), strict=False)
    rest = beside_linear_layers(base, ended)
    assert (rest.modules, rest.parameters, rest.biases) == ([], {}, False)
    assert len(rest.left) == 8
    assert all(name.endswith("_proj.bias") for name in rest.left)
