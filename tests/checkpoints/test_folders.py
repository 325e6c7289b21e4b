import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.checkpoints.folders import (
    Checkpoint,
    adapter_disk,
    check_pair,
    hub_name,
    layer_of,
    n_matrices,
    open_checkpoint,
)
from lib.checkpoints.snapshots import open_snapshots
from lib.files.files import InputError
from lib.files.inputs import Entry
from tests.checkpoints.transformers_made import made, moved, saved

INDEX = "base/model.safetensors.index.json"
WHOLE = "tuned/model.safetensors"
CONFIG = "tuned/config.json"


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


def configured(folder, **changes):
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps(config | changes))


def test_tensors_of_shards_are_those_of_the_model_by_the_index(tmp_path):
    """This holds also where a shard holds a tensor that the index gives to another."""
    model = made("llama").bfloat16()
    folder = saved(model, tmp_path / "base", sharded=True)
    placed = json.loads((tmp_path / INDEX).read_text())["weight_map"]
    (one, first), *_, (_, second) = placed.items()
    assert first != second
    save_file(load_file(folder / second) | {one: torch.zeros(3)}, folder / second, {"format": "pt"})
    opened = open_checkpoint(folder)
    weights = model.state_dict()
    assert set(opened.tensors) == set(weights)
    assert all(torch.equal(opened.load(name), W) for name, W in weights.items())


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("", [("a", 9), ("a", 10), ("b", 3), ("b", 12), ("final", 0)]),
        ("a/checkpoint-10", [("checkpoint-10", 10)]),
        ("b", [("b", 3), ("b", 12)]),
    ],
)
def test_snapshots_are_found_by_run_and_step(tmp_path, kept, place, found):
    for name in ("a/checkpoint-10", "a/checkpoint-9", "b/step-00003", "b/step-00012", "final"):
        shutil.copytree(kept / "tuned", tmp_path / name)
    snapshots = open_snapshots(tmp_path / place)
    assert [(one.run, one.step) for one in snapshots] == found


def test_rows_in_common_are_those_of_the_smaller_vocabulary(kept, tmp_path):
    tuned = open_checkpoint(saved(made("llama", vocab_size=260), tmp_path / "tuned"))
    rows = check_pair(open_checkpoint(kept / "base"), tuned)
    assert rows["model.embed_tokens.weight"] == rows["lm_head.weight"] == 256
    assert rows["model.layers.0.self_attn.q_proj.weight"] == 32


def with_tensor(folder, name, change):
    tensors = load_file(folder / WHOLE)
    tensors[name] = change(tensors[name])
    save_file(tensors, folder / WHOLE, {"format": "pt"})


def without_a_shard(folder):
    shards = json.loads((folder / INDEX).read_text())["weight_map"].values()
    (folder / "base" / sorted(set(shards))[1]).unlink()


def with_an_index_of_more(folder):
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["more.weight"] = index["weight_map"]["lm_head.weight"]
    (folder / INDEX).write_text(json.dumps(index))


LAYERS = "wanted at most 1000 layers, for weights of 21 tensors, got 1000000"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_a_shard, "base: wanted the shard .*, which its index names, got none"),
        (with_an_index_of_more, "wanted the tensor more.weight, which the index gives to it, got"),
        (lambda f: (f / WHOLE).rename(f / "tuned/pytorch_model.bin"), "got the pickle pytorch_mod"),
        (lambda f: configured(f, quantization_config={"quant_method": "x"}), r"quantised ones \(x"),
        (lambda f: with_tensor(f, "lm_head.weight", torch.Tensor.char), "got lm_head.weight in I8"),
        (lambda f: with_tensor(f, "lm_head.weight", lambda W: W / 0), "got NaN or infinity in lm_"),
        (lambda f: configured(f, num_hidden_layers=10**6), f"num_hidden_layers: {LAYERS}"),
        (lambda f: configured(f, text={"encoder_layers": 10**6}), f"encoder_layers: {LAYERS}"),
        (lambda f: configured(f, depths=[2, 10**6]), f"depths: {LAYERS}"),
    ],
)
def test_what_is_no_checkpoint_is_refused(folder, change, message):
    change(folder)
    with pytest.raises(InputError, match=message):
        for name in ("base", "tuned"):
            opened = open_checkpoint(folder / name)
            opened.load("lm_head.weight")


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        ("gpt2", {}, "wanted the base's model_type 'llama', got 'gpt2'"),
        ("llama", {"intermediate_size": 40}, r"the base's shape \[32, 48\], got \[32, 40\]"),
    ],
)
def test_two_checkpoints_that_are_no_pair_are_refused(kept, tmp_path, kind, sizes, message):
    other = saved(made(kind, **sizes), tmp_path / "other")
    with pytest.raises(InputError, match=message):
        check_pair(open_checkpoint(kept / "base"), open_checkpoint(other))


@pytest.mark.parametrize(
    ("place", "told", "name"),
    [
        ("hub/models--org--model-7b/snapshots/0af1", "other/one", "org/model-7b"),
        ("base", "org/model-7b", None),
    ],
)
def test_a_base_is_named_by_the_cache_that_it_stands_in_or_by_its_path(tmp_path, place, told, name):
    """What it was once made from, `_name_or_path`, is another model."""
    folder = Path(tmp_path, place)
    folder.mkdir(parents=True)
    assert hub_name(Checkpoint(folder, {"_name_or_path": told}, {})) == (name or str(folder))


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("model.layers.7.mlp.weight", 8),
        ("a.weight", 0),
        ("h.99999999999999999999.weight", 0),
        ("h.123456789.weight", 123456790),
    ],
)
def test_a_layer_is_the_first_number_of_a_name_that_can_be_one(name, layer):
    assert layer_of(name) == layer


def test_names_that_cannot_be_printed_are_refused(kept, tmp_path):
    folder = shutil.copytree(kept / "tuned", tmp_path / "named")
    tensors = load_file(folder / "model.safetensors")
    save_file({"a\nb": torch.zeros(2, 2), **tensors}, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"names of tensors that can be printed, got 'a\\nb'"):
        open_checkpoint(folder)


def test_a_config_that_says_there_is_no_quantisation_is_of_plain_weights(kept, tmp_path):
    folder = shutil.copytree(kept / "tuned", tmp_path / "plain")
    tensors = open_checkpoint(folder).tensors
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": None}
    (folder / "config.json").write_text(json.dumps(config))
    assert open_checkpoint(folder).tensors == tensors


@pytest.mark.parametrize(
    ("whole", "equal", "n_numbers"),
    [
        (False, False, (1 + 2) * (10 + 7)),
        (False, True, 3 * (1 + 2) * (10 + 7)),
        (True, False, (1 + 2) * (10 + 7) + 2 * 2 * (24 + 4)),
    ],
)
def test_an_adapter_takes_its_rank_times_rows_and_columns_and_what_it_carries_whole(
    whole, equal, n_numbers
):
    """Two ranks, in four bytes a number; an embedding counts twice, as a tied head is another."""
    shapes = {"words": (6, 4), "W": (3, 4), "norm": (4,)}
    tensors = {name: Entry(Path("model"), shape, "F32") for name, shape in shapes.items()}
    base = Checkpoint(Path("base"), {"vocab_size": 6}, tensors)
    assert adapter_disk(base, [1, 2], whole=whole, equal=equal) == 4 * n_numbers


def test_a_single_file_is_read_before_an_index_as_the_library_reads_it(kept, tmp_path):
    folder = shutil.copytree(kept / "base", tmp_path / "both")
    shutil.copy(kept / WHOLE, folder / "model.safetensors")
    files = {entry.file.name for entry in open_checkpoint(folder).tensors.values()}
    assert files == {"model.safetensors"}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool])
def test_masks_of_positions_are_no_quantised_weights(kept, tmp_path, dtype):
    folder = shutil.copytree(kept / "tuned", tmp_path / "masked")
    tensors = load_file(folder / "model.safetensors")
    mask = torch.ones(1, 1, 4, 4).tril().to(dtype)
    save_file({**tensors, "h.0.attn.bias": mask}, folder / "model.safetensors")
    assert "h.0.attn.bias" in open_checkpoint(folder).tensors


def test_what_a_trainer_keeps_beside_weights_is_no_pickle_of_them(kept, tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    shutil.copy(kept / "tuned/config.json", folder)
    for name in ("rng_state_0.pth", "scheduler.pt", "optimizer.pt", "training_args.bin"):
        (folder / name).write_bytes(b"x")
    with pytest.raises(InputError, match=r"wanted model.safetensors or .*, got \['config.json'"):
        open_checkpoint(folder)


def test_an_empty_tensor_is_no_matrix():
    assert n_matrices("head.weight", (256, 0)) == 0
    assert n_matrices("experts.weight", (4, 0, 2)) == 0
    assert n_matrices("experts.weight", (4, 3, 2)) == 4


def test_a_pair_without_a_matrix_is_refused(folder):
    for name in ("base", "tuned"):
        shutil.rmtree(folder / name)
        (folder / name).mkdir()
        save_file({"conv.weight": torch.ones(2, 2, 3, 3)}, folder / name / "model.safetensors")
        (folder / name / "config.json").write_text("{}")
    pair = [open_checkpoint(folder / name) for name in ("base", "tuned")]
    with pytest.raises(InputError, match=r"tuned: wanted a matrix, .*, got none among 1 tensors"):
        check_pair(*pair)
