"""Adapters of peft as TUNED: what they make of the base, their spectra, plans and smaller adapters;
and what is refused.
"""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from lib.checkpoints.folders import check_pair, open_checkpoint
from lib.checkpoints.models import open_model, open_tuned_model
from lib.checkpoints.snapshots import audited, open_snapshots, open_tuned, tuned_snapshots
from lib.checkpoints.tuned_adapters import open_adapter
from lib.checkpoints.update_spectra import Product, leading_triplets, squared_norm
from lib.files.files import InputError
from tests.checkpoints.checkpoints_made import FEW, TEXT, fit, planned, windows
from tests.checkpoints.transformers_made import made, saved

WEIGHTS = "tuned/adapter_model.safetensors"
MIXED = {"r": 3, "lora_alpha": 5, "rank_pattern": {"k_proj": 2}, "alpha_pattern": {"up_proj": 7}}
CASES = {
    "llama": MIXED | {"use_rslora": True, "bias": "none"},
    "qwen2": MIXED | {"bias": "all", "modules_to_save": ["norm", "lm_head"]},
    "qwen3": MIXED | {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
    "gpt2": {"r": 3, "lora_alpha": 5, "fan_in_fan_out": True, "modules_to_save": ["ln_f"]},
    "bert": {"r": 3, "lora_alpha": 5, "modules_to_save": ["transform"]},
    "gemma3": MIXED | {"target_modules": ".*language_model.*_proj", "modules_to_save": ["norm"]},
}


def trained(kind, folder, dtype=torch.float32, n_steps=8, **options):
    """A base, the folder of an adapter that was tuned on TEXT, and the model with it."""
    base = saved(made(kind).to(dtype), folder / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(0)
        config = LoraConfig(**{"target_modules": "all-linear", **options})
        model = get_peft_model(open_model(base, open_checkpoint(base).config), config)
        fit(model, n_steps, 1e-2, input_ids=windows(TEXT), labels=windows(TEXT))
        model.save_pretrained(folder / "tuned")
    return base, folder / "tuned", model


@pytest.mark.parametrize("rank", [0, 5, 40])
def test_the_triplets_of_a_product_are_those_of_the_matrix(rank):
    random = torch.Generator().manual_seed(rank)
    B = torch.randn(30, rank, generator=random).double()
    A = torch.randn(rank, 20, generator=random).double()
    B[:, :1] = 0
    product = Product(B, A)
    U, sigma, Vh = leading_triplets(product, 40, random)
    torch.testing.assert_close((U * sigma) @ Vh, B @ A)
    wanted = torch.linalg.svdvals(B @ A)[: len(sigma)]
    torch.testing.assert_close(sigma, wanted, atol=1e-12, rtol=1e-12)
    assert int((sigma > 0).sum()) == min(max(rank - 1, 0), 20), "rounding has no rank"
    assert squared_norm(product) == pytest.approx(float((B @ A).square().sum()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", CASES)
def test_what_an_adapter_makes_of_its_base_is_what_peft_merges(kind, dtype, tmp_path):
    base, folder, model = trained(kind, tmp_path, dtype, **CASES[kind])
    begun = open_checkpoint(base)
    tuned = open_tuned(folder, begun)
    assert {tuned.base.stored[name] for name in tuned.tensors} == set(begun.tensors)
    assert set(tuned.tensors) == set(check_pair(begun, tuned))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = dict(model.double().merge_and_unload().named_parameters())
    for name in merged.keys() & tuned.tensors.keys():
        W = merged[name].detach()
        torch.testing.assert_close(tuned.load(name).double(), W, atol=2e-6, rtol=0)
    live = dict(open_tuned_model(tuned).named_parameters())
    for name, W in live.items():
        torch.testing.assert_close(W.detach().double(), merged[name], atol=2e-6, rtol=0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    trained("gpt2", folder, r=3, lora_alpha=5, fan_in_fan_out=True, n_steps=12)
    (folder / "my.txt").write_bytes(TEXT)
    return folder


@pytest.fixture
def folder(kept, tmp_path):
    return shutil.copytree(kept, tmp_path, dirs_exist_ok=True)


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_an_adapter_is_planned_by_the_same_stages_as_a_full_fine_tune(stage, folder, prefix):
    """Its spectrum is exact."""
    file = Path("base/model.safetensors")
    held = {name.removeprefix(prefix): W.clone() for name, W in load_file(file).items()}
    save_file(held, file, {"format": "pt"})
    plans = planned(Path("base"), Path("tuned"), "my.txt", **FEW)
    table = pd.read_parquet("spectra.parquet")
    matrices = table[(table["of"] == "update") & (table["head"] == 0)].set_index("module")
    tensors = load_file("tuned/adapter_model.safetensors")
    for name in ("attn.c_attn", "mlp.c_proj"):
        row = matrices.loc[f"transformer.h.1.{name}.weight"]
        A, B = (tensors[f"base_model.model.transformer.h.1.{name}.lora_{x}.weight"] for x in "AB")
        update = (5 / 3 * B.double() @ A.double()).mT
        wanted = torch.linalg.svdvals(update)[:3]
        np.testing.assert_allclose(row["singular_values"], wanted, rtol=1e-12)
        assert (row["method"], row["edge"], row["rank_above_edge"]) == ("factors", 0, 3)
        assert (row["rows"], row["cols"]) == tuple(update.shape)
    assert matrices.loc["transformer.wte.weight"]["norm"] == 0
    assert (table["head"] > 0).any()
    assert set(plans.table("modules")["limit"]) == {3}


def test_a_folder_of_adapters_is_one_of_snapshots(folder):
    base = open_checkpoint(folder / "base")
    for step in (10, 20):
        shutil.copytree(folder / "tuned", folder / f"run/checkpoint-{step}")
    found = tuned_snapshots(base, folder / "run")
    assert [(one.run, one.step) for one in found] == [("run", 10), ("run", 20)]
    assert set(audited(found)["moved"]) == {0}
    (folder / "run/adapters.json").write_text("[]")
    with pytest.raises(InputError, match="wanted a checkpoint, or a folder of them"):
        tuned_snapshots(base, folder / "run")
    with pytest.raises(InputError, match="got an adapter; merge it into its model first"):
        open_snapshots(folder / "tuned")


def test_an_adapter_that_carries_a_tied_head_whole_is_read(tmp_path):
    """It is carried as by the adapters of this project: a head that the base does not store equals
    its embedding.
    """
    base, folder, _ = trained("gpt2", tmp_path, r=2, fan_in_fan_out=True)
    file = folder / "adapter_model.safetensors"
    wte = torch.randn(256, 32)
    whole = {f"base_model.model.{name}.weight": wte for name in ("transformer.wte", "lm_head")}
    save_file(load_file(file) | {n: W.clone() for n, W in whole.items()}, file, {"format": "pt"})
    tuned = open_tuned(folder, open_checkpoint(base))
    assert torch.equal(tuned.load("transformer.wte.weight"), wte)
    model = open_tuned_model(tuned)
    assert torch.equal(model.lm_head.weight, wte)
    assert model.lm_head.weight is model.transformer.wte.weight
    held = load_file(file)
    del held["base_model.model.lm_head.weight"]
    save_file(held, file, {"format": "pt"})
    with pytest.raises(InputError, match=r"tied to no other, got transformer\.wte\.weight"):
        open_tuned_model(open_tuned(folder, open_checkpoint(base)))


@pytest.mark.parametrize("told", [True, False])
def test_the_class_of_a_layer_says_how_it_is_stored_and_not_one_flag_for_all(folder, told):
    """peft sets the flag right for each layer, and so ignores what the config says of all."""
    file = folder / "tuned/adapter_config.json"
    before = open_adapter(open_checkpoint(folder / "base"), folder / "tuned")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"fan_in_fan_out": told}))
    after = open_adapter(open_checkpoint(folder / "base"), folder / "tuned")
    assert after.by_columns == before.by_columns != frozenset()
    for name in after.changed:
        assert torch.equal(after.load(name), before.load(name))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"peft_type": "LOHA"}, "wanted a plain LoRA adapter, got peft_type LOHA"),
        ({"use_dora": True}, "wanted a plain LoRA adapter, got use_dora True"),
        ({"target_parameters": ["experts.up"]}, r"got target_parameters \['experts.up'\]"),
        ({"init_lora_weights": "pissa"}, "got init_lora_weights pissa, which changes the base"),
        ({"rank_pattern": {"c_fc": 2}}, "c_fc.weight: wanted matrices A and B of rank 2"),
        ({"alpha_pattern": {"c_fc": "x"}}, "lora_alpha: wanted a finite number, got x"),
        ({"alpha_pattern": 3}, "alpha_pattern: wanted names and numbers, got 3"),
        ({"lora_alpha": float("nan")}, "lora_alpha: wanted a finite number, got nan"),
        ({"rank_pattern": {"(": 2}}, r"rank_pattern: wanted names of modules.*, got '\('"),
        ({"rank_pattern": {"(c|d)_fc": 2}}, "rank_pattern: wanted names of modules"),
        ({"rank_pattern": {"c_[fp]c": 2}}, "rank_pattern: wanted names of modules"),
    ],
)
def test_other_kinds_of_adapters_are_refused_by_name(folder, changes, message):
    file = folder / "tuned/adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(InputError, match=message):
        tuned_snapshots(open_checkpoint(folder / "base"), folder / "tuned")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("base_model.model.score.weight", "wanted weights that .*base has, got score.weight: m"),
        ("base_model.model.other.lora_A.weight", "got the tensor base_model.model.other.lora_A"),
        ("base_model.model.wte.token_adapter.x", "got the tensor .*token_adapter"),
        ("loose", "wanted a plain LoRA adapter, got the tensor loose"),
    ],
)
def test_tensors_that_plain_lora_does_not_have_are_named(folder, name, message):
    file = folder / WEIGHTS
    save_file({**load_file(file), name: torch.ones(3, 32)}, file, {"format": "pt"})
    with pytest.raises(InputError, match=message):
        tuned_snapshots(open_checkpoint(folder / "base"), folder / "tuned")


def test_a_factor_that_is_no_number_is_refused(folder):
    file = folder / WEIGHTS
    name, A = next(iter(load_file(file).items()))
    save_file({**load_file(file), name: A / 0}, file, {"format": "pt"})
    with pytest.raises(InputError, match=f"wanted finite weights, got NaN or infinity in {name}"):
        tuned_snapshots(open_checkpoint(folder / "base"), folder / "tuned")


def test_an_adapter_in_a_pickle_is_refused(folder):
    (folder / WEIGHTS).rename(folder / "tuned/adapter_model.bin")
    with pytest.raises(InputError, match=r"wanted adapter_model.safetensors .*adapter_model.bin"):
        tuned_snapshots(open_checkpoint(folder / "base"), folder / "tuned")
