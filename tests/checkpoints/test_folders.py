import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.checkpoints.folders import check_pair, layer_of, open_checkpoint
from lib.checkpoints.snapshots import open_snapshots
from lib.files.files import InputError
from tests.checkpoints.transformers_made import made, moved, pair, saved


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A base in shards and a tuned one in a single file."""
    folder = tmp_path_factory.mktemp("kept")
    model = made("llama")
    saved(model, folder / "base", sharded=True)
    saved(moved(model, 7), folder / "tuned")
    return folder


@pytest.fixture
def folder(kept, tmp_path):
    return shutil.copytree(kept, tmp_path / "made")


def index(folder):
    return json.loads((folder / "model.safetensors.index.json").read_text())


def rewrite(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sharded", [False, True])
def test_tensors_are_those_of_the_model(tmp_path, dtype, sharded):
    model = made("llama").to(dtype)
    opened = open_checkpoint(saved(model, tmp_path / "one", sharded=sharded))
    assert len({entry.file for entry in opened.tensors.values()}) > 1 or not sharded
    weights = model.state_dict()
    assert set(opened.tensors) == set(weights)
    for name, entry in opened.tensors.items():
        assert entry.shape == tuple(weights[name].shape)
        assert torch.equal(opened.load(name), weights[name])


def test_snapshots_are_found_by_run_and_step(tmp_path):
    model = made("llama")
    for place in ("a/checkpoint-10", "a/checkpoint-9", "b/step-00003", "b/step-00012", "final"):
        saved(model, tmp_path / place)
    assert [(one.run, one.step) for one in open_snapshots(tmp_path)] == [
        ("a", 9),
        ("a", 10),
        ("b", 3),
        ("b", 12),
        ("final", 0),
    ]
    assert [(one.run, one.step) for one in open_snapshots(tmp_path / "a" / "checkpoint-10")] == [
        ("checkpoint-10", 10)
    ]
    assert [(one.run, one.step) for one in open_snapshots(tmp_path / "b")] == [("b", 3), ("b", 12)]


def test_rows_in_common_are_those_of_the_smaller_vocabulary(tmp_path):
    base = open_checkpoint(saved(made("llama"), tmp_path / "base"))
    tuned = open_checkpoint(saved(made("llama", vocab_size=260), tmp_path / "tuned"))
    rows = check_pair(base, tuned)
    assert rows["model.embed_tokens.weight"] == rows["lm_head.weight"] == 256
    assert rows["model.layers.0.self_attn.q_proj.weight"] == 32


@pytest.mark.parametrize(
    ("name", "layer"),
    [("model.layers.0.x.weight", 1), ("h.11.mlp.c_fc.weight", 12), ("lm_head.weight", 0)],
)
def test_the_layer_of_a_tensor(name, layer):
    assert layer_of(name) == layer


def test_a_folder_without_a_config_is_refused(folder):
    (folder / "tuned" / "config.json").unlink()
    with pytest.raises(
        InputError, match=r"tuned: wanted a checkpoint with a config.json, got none"
    ):
        open_checkpoint(folder / "tuned")
    with pytest.raises(
        InputError, match=r"nowhere: wanted a checkpoint, or a folder of them, got no config.json"
    ):
        open_snapshots(folder / "nowhere")


def test_an_adapter_is_no_model(folder):
    (folder / "tuned" / "config.json").rename(folder / "tuned" / "adapter_config.json")
    with pytest.raises(InputError, match="got an adapter; merge it into its model first"):
        open_checkpoint(folder / "tuned")


def test_a_shard_that_the_index_names_must_be_there(folder):
    shard = sorted(set(index(folder / "base")["weight_map"].values()))[1]
    (folder / "base" / shard).unlink()
    with pytest.raises(
        InputError, match=f"base: wanted the shard {shard}, which its index names, got none"
    ):
        open_checkpoint(folder / "base")


def test_a_tensor_must_be_in_the_shard_that_the_index_gives_it_to(folder):
    value = index(folder / "base")
    name = sorted(value["weight_map"])[0]
    value["weight_map"]["more.weight"] = value["weight_map"][name]
    (folder / "base" / "model.safetensors.index.json").write_text(json.dumps(value))
    with pytest.raises(
        InputError, match=r"wanted the tensor more.weight, which the index gives to it, got none"
    ):
        open_checkpoint(folder / "base")


def test_where_a_shard_holds_a_tensor_of_another_the_index_wins(folder):
    placed = index(folder / "base")["weight_map"]
    (one, first), *_, (_, second) = placed.items()
    assert first != second
    tensors = load_file(folder / "base" / second)
    save_file({**tensors, one: torch.zeros(3)}, folder / "base" / second, {"format": "pt"})
    opened = open_checkpoint(folder / "base")
    assert opened.tensors[one].file.name == first
    assert opened.load(one).abs().sum() > 0


def test_a_file_cut_short_is_refused(folder):
    file = folder / "tuned" / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-10])
    with pytest.raises(
        InputError, match=f"wanted {len(data)} bytes, as its header says, got {len(data) - 10}"
    ):
        open_checkpoint(folder / "tuned")


def test_pickles_are_refused_with_the_conversion(folder):
    (folder / "tuned" / "model.safetensors").rename(folder / "tuned" / "pytorch_model.bin")
    with pytest.raises(
        InputError, match=r"got the pickle pytorch_model.bin: convert it, .*save_pretrained"
    ):
        open_checkpoint(folder / "tuned")


def test_quantised_weights_are_refused(folder):
    rewrite(folder / "tuned", quantization_config={"quant_method": "bitsandbytes"})
    with pytest.raises(
        InputError, match=r"wanted weights in f32, bf16 or f16, got quantised ones \(bitsandbytes\)"
    ):
        open_checkpoint(folder / "tuned")


def test_weights_of_eight_bits_are_refused(folder):
    file = folder / "tuned" / "model.safetensors"
    tensors = load_file(file)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({**tensors, name: tensors[name].to(torch.int8)}, file, {"format": "pt"})
    with pytest.raises(InputError, match=f"got {name} in I8"):
        open_checkpoint(folder / "tuned")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named(folder, value):
    file = folder / "tuned" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.norm.weight"][3] = value
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(
        InputError, match=r"wanted finite weights, got NaN or infinity in model.norm.weight"
    ):
        open_checkpoint(folder / "tuned").load("model.norm.weight")


def test_a_base_is_not_tuned_from_itself(folder):
    opened = open_checkpoint(folder / "base")
    with pytest.raises(
        InputError, match="wanted a checkpoint tuned from the base, got the base itself"
    ):
        check_pair(opened, open_checkpoint(folder / "base"))


def test_two_architectures_are_refused(folder, tmp_path):
    base, _ = pair("gpt2", tmp_path / "gpt2")
    with pytest.raises(InputError, match="wanted the base's model_type 'gpt2', got 'llama'"):
        check_pair(open_checkpoint(base), open_checkpoint(folder / "tuned"))


def test_other_shapes_are_refused(folder, tmp_path):
    other = saved(made("llama", intermediate_size=40), tmp_path / "other")
    with pytest.raises(
        InputError, match=r"down_proj.weight: wanted the base's shape \[32, 48\], got \[32, 40\]"
    ):
        check_pair(open_checkpoint(folder / "base"), open_checkpoint(other))


def test_a_broken_config_is_refused(folder):
    (folder / "tuned" / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config.json: wanted a JSON file, got"):
        open_checkpoint(folder / "tuned")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"text_config": {"encoder_layers": 10**6}}, "encoder_layers"),
        ({"depths": [2, 10**6]}, "depths"),
    ],
)
def test_more_layers_than_the_weights_can_be_of_are_refused(folder, changes, key):
    rewrite(folder / "tuned", **changes)
    message = (
        f"config.json: {key}: wanted at most 1000 layers, for weights of 21 tensors, got 1000000"
    )
    with pytest.raises(InputError, match=message):
        open_checkpoint(folder / "tuned")
