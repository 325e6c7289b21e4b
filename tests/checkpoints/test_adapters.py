import json
import warnings

import pytest
import torch

from lib.checkpoints.adapters import lora_config, write_adapter
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.linear_modules import (
    beside_linear_layers,
    linear_modules,
    matched_by_content,
    stored_as_columns,
)
from lib.checkpoints.models import open_model
from lib.checkpoints.update_spectra import leading_triplets, update_of
from tests.checkpoints.transformers_made import KINDS, pair


def all_parameters(model):
    """Those that are tied too, each by its own name."""
    return model.named_parameters(remove_duplicate=False)


@pytest.mark.parametrize("saves", [False, True], ids=["linear layers", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_peft_merges_an_adapter_to_the_base_plus_the_cut(kind, saves, tmp_path):
    """Odd ranks, and modules of rank 0, which are no targets; every warning is an error, but for
    one of peft's own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from peft import PeftModel

    base, tuned = (open_checkpoint(folder) for folder in pair(kind, tmp_path))
    model = open_model(base.folder, base.config)
    places = matched_by_content(model, ((name, base.load(name)) for name in base.tensors))
    live = linear_modules(model)
    assert set(places) == set(live)
    by_columns = {name: stored_as_columns(module) for name, module in live.items()}
    assert any(by_columns.values()) == (kind == "gpt2")
    wanted = {
        name: parameter.detach().double().clone() for name, parameter in all_parameters(model)
    }
    ranks, factors = {name: (0, 1, 3, 5)[i % 4] for i, name in enumerate(places)}, {}
    for name, place in places.items():
        if ranks[name]:
            update = update_of(tuned.load(place), base.load(place))
            U, sigma, Vh = leading_triplets(update, ranks[name], torch.Generator())
            wanted[f"{name}.weight"] += (U * sigma) @ Vh
            B, A = U * sigma.sqrt(), sigma.sqrt()[:, None] * Vh
            factors[name] = (B.mT, A.mT) if by_columns[name] else (A, B)
    config, saved = lora_config(ranks, fan_in_fan_out=any(by_columns.values())), {}
    if saves:
        after = open_model(tuned.folder, tuned.config)
        rest = beside_linear_layers(model, after)
        assert rest.left == (["cls.predictions.bias"] if kind == "bert" else [])
        config, saved = config | rest.config, rest.parameters
        linear = {f"{name}.weight" for name in live}
        wanted |= {
            n: p.detach().double()
            for n, p in all_parameters(after)
            if n not in {*linear, *rest.left}
        }
    write_adapter(
        tmp_path / "adapter", factors, config, base="base", card="card", task_type=None, saved=saved
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings(
            "ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning
        )
        adapted = PeftModel.from_pretrained(model, tmp_path / "adapter")
        if (
            saves and kind == "bert"
        ):  # peft ties saved weights of the names embed_tokens and lm_head alone
            warnings.filterwarnings(
                "ignore", "Input and output embeddings are no longer tied", UserWarning
            )
        merged = adapted.merge_and_unload()
    assert set(linear_modules(merged)) == set(live)
    found = dict(all_parameters(merged))
    assert set(found) == set(wanted)
    for name, W in wanted.items():
        error = (found[name].detach().double() - W).abs().max()
        assert float(error) <= 1e-6, name


def test_the_plan_goes_into_a_lora_config_as_it_is(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from peft import LoraConfig, get_peft_model

    base, _ = (open_checkpoint(folder) for folder in pair("gpt2", tmp_path))
    model = open_model(base.folder, base.config)
    ranks = {
        "transformer.h.0.attn.c_proj": 2,
        "transformer.h.0.mlp.c_proj": 3,
        "transformer.h.1.mlp.c_proj": 0,
    }
    write_adapter(
        tmp_path / "adapter",
        {},
        lora_config(ranks, fan_in_fan_out=True),
        base="base",
        card="card",
        task_type=None,
    )
    plan = json.loads((tmp_path / "adapter" / "plan.json").read_text())
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning
        )
        trained = get_peft_model(model, LoraConfig(**plan))
    found = {name: p.shape[0] for name, p in trained.named_parameters() if "lora_A" in name}
    assert {
        name.removeprefix("base_model.model.").split(".lora_A")[0]: rank
        for name, rank in found.items()
    } == {name: rank for name, rank in ranks.items() if rank}
    scaling = {m.scaling["default"] for m in trained.modules() if hasattr(m, "lora_A")}
    assert scaling == {1.0}


def test_names_are_escaped_and_whole():
    """`layers.1.x` is no part of `layers.11.x`, and a dot is a dot."""
    config = lora_config({"layers.1.x": 2, "layers.11.x": 4, "none": 0}, fan_in_fan_out=False)
    assert config["target_modules"] == ["layers.1.x", "layers.11.x"]
    assert (
        config["rank_pattern"]
        == config["alpha_pattern"]
        == {r"^layers\.1\.x$": 2, r"^layers\.11\.x$": 4}
    )
    assert (config["r"], config["lora_alpha"]) == (4, 4)
