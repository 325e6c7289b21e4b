import warnings

import pytest
import torch

from lib.checkpoints.adapters import lora_config, write_adapter
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.linear_modules import beside_linear_layers
from lib.checkpoints.models import linear_places, open_model
from lib.checkpoints.update_spectra import leading_triplets, update_of
from tests.checkpoints.transformers_made import KINDS, pair


def all_parameters(model):
    """All parameters, also tied ones, each by its own name."""
    return model.named_parameters(remove_duplicate=False)


@pytest.mark.parametrize("kind", KINDS)
def test_peft_merges_an_adapter_to_the_base_plus_the_cut_and_all_else_as_tuned(kind, tmp_path):
    """There are odd ranks, and modules of rank 0, which are no targets; every warning is an error,
    but for two of peft's own.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from peft import PeftModel

    base, tuned = (open_checkpoint(folder) for folder in pair(kind, tmp_path))
    model = open_model(base.folder, base.config)
    places = linear_places(base)
    is_gpt2 = kind == "gpt2"
    wanted = {name: p.detach().double().clone() for name, p in all_parameters(model)}
    ranks = {name: (0, 1, 3, 5)[i % 4] for i, name in enumerate(places)}
    factors = {}
    for name in filter(ranks.get, places):
        place, _ = places[name]
        update = update_of(tuned.load(place), base.load(place))
        U, sigma, Vh = leading_triplets(update, ranks[name], torch.Generator())
        wanted[f"{name}.weight"] += (U * sigma) @ Vh
        B, A = U * sigma.sqrt(), sigma.sqrt()[:, None] * Vh
        factors[name] = (B.mT, A.mT) if is_gpt2 else (A, B)
    config = lora_config(ranks, fan_in_fan_out=is_gpt2)
    after = open_model(tuned.folder, tuned.config)
    rest = beside_linear_layers(model, after)
    assert rest.left == (["cls.predictions.bias"] if kind == "bert" else [])
    assert rest.config["bias"] in ("all", "none")  # those of other layers too
    own = {*(f"{name}.weight" for name in places), *rest.left}
    wanted |= {n: p.detach().double() for n, p in all_parameters(after) if n not in own}
    words = {"base": "base", "card": "card", "task_type": None}
    write_adapter(
        tmp_path / "adapter", factors, config | rest.config, **words, saved=rest.parameters
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        adapted = PeftModel.from_pretrained(model, tmp_path / "adapter")
        if kind == "bert":  # peft ties saved weights of some names alone
            warnings.filterwarnings("ignore", "Input and output embeddings", UserWarning)
        merged = adapted.merge_and_unload()
    found = dict(all_parameters(merged))
    assert set(found) == set(wanted)
    for name, W in wanted.items():
        error = (found[name].detach().double() - W).abs().max()
        assert float(error) <= 1e-6, name


def test_names_are_escaped_and_whole():
    """`layers.1.x` is no part of `layers.11.x`, and a dot is a dot."""
    config = lora_config(
        {"layers.1.x": 2, "layers.11.x": 4, "none": 0}, fan_in_fan_out=False, scale=2
    )
    assert config["target_modules"] == ["layers.1.x", "layers.11.x"]
    assert config["rank_pattern"] == {r"^layers\.1\.x$": 2, r"^layers\.11\.x$": 4}
    assert config["alpha_pattern"] == {r"^layers\.1\.x$": 4, r"^layers\.11\.x$": 8}
    assert (config["r"], config["lora_alpha"]) == (4, 8)


class Small(torch.nn.Module):
    """Two linear layers, and a norm with a buffer; no embedding that the library knows."""

    def __init__(self):
        super().__init__()
        self.up, self.out = (torch.nn.Linear(2, 2, bias=False) for _ in range(2))
        self.norm = torch.nn.BatchNorm1d(2)

    def get_output_embeddings(self):
        return torch.nn.Linear(2, 2)

    def get_input_embeddings(self):
        raise NotImplementedError


def test_what_is_in_no_plan_is_carried_whole_and_a_module_with_its_buffers():
    """peft wants the buffers of a module that an adapter brings whole."""
    base, tuned = Small(), Small()
    rest = beside_linear_layers(base, tuned, without=["out"])
    assert rest.modules == ["out"]
    tuned.norm.weight.data += 1
    tuned.norm.running_mean += 2
    rest = beside_linear_layers(base, tuned, without=["out"])
    assert rest.modules == ["norm", "out"]
    assert set(rest.parameters) == {"norm.weight", "norm.bias", "out.weight"}
    assert {*rest.parameters, *rest.buffers} == {
        "out.weight",
        *(f"norm.{name}" for name in tuned.norm.state_dict()),
    }
    assert torch.equal(rest.buffers["norm.running_mean"], tuned.norm.running_mean)
    assert beside_linear_layers(base, tuned, whole=False).modules == []
