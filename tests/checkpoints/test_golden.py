"""One tiny fine-tune of each kind of model, its spectra, attribution and ranks, number by
number.
"""

from pathlib import Path

import pytest
import torch

from lib.checkpoints.attribution import path_attribution
from lib.checkpoints.gains import LinearUpdates
from lib.checkpoints.grammar import text
from lib.checkpoints.linear_modules import linear_modules
from lib.checkpoints.models import small_model
from lib.checkpoints.plans import Module, budget_of, plan
from lib.checkpoints.texts import loss
from lib.training.devices import generator
from stages.checkpoints.train import Train, descent

SIZES = {
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_mlp": 24,
    "init_scale": 0.1,
    "seq_len": 16,
}


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def tuned(request, tmp_path_factory):
    """Twenty steps from seed 0 on a made-up language: kind, the model with its updates, a batch of
    what it learned.
    """
    file = Path(tmp_path_factory.mktemp("golden")) / "text.txt"
    file.write_bytes(text(0, 4000, 0))
    model = small_model(request.param, **SIZES, seed=0)
    base = {name: module.weight.detach().clone() for name, module in linear_modules(model).items()}
    params = Train(n_seeds=1, batch_size=8, **SIZES)
    for _ in descent(model, file, params, 20, 1e-2, generator(0, "golden")):
        pass
    tokens = (
        torch.frombuffer(bytearray(file.read_bytes()[:1024]), dtype=torch.uint8).long().view(-1, 16)
    )
    return request.param, LinearUpdates(model.train(False), base), {"input_ids": tokens}


def test_losses_and_attribution_are_as_they_were(tuned):
    kind, linear, batch = tuned
    wanted = LOSSES[kind]
    assert linear.mean_loss([batch]) == pytest.approx(wanted["tuned"], rel=1e-4)
    earned = path_attribution(
        linear.parameters, linear.updates, [batch], lambda one: loss(linear.model, one), 4
    )
    assert linear.drop([batch]) == pytest.approx(wanted["drop"], rel=1e-3)
    assert sum(earned.values()) == pytest.approx(wanted["attributed"], rel=1e-3)
    assert [earned[name] for name in sorted(earned, key=earned.__getitem__)[-3:]] == pytest.approx(
        wanted["most"], rel=1e-3
    )


def test_spectra_and_ranks_are_as_they_were(tuned):
    kind, linear, batch = tuned
    sigma = {name: torch.linalg.svdvals(update.double()) for name, update in linear.updates.items()}
    first = next(iter(sigma.values()))
    assert first[:3].tolist() == pytest.approx(SINGULAR_VALUES[kind], rel=1e-3)
    modules = {
        name: Module(
            tuple(update.shape),
            sigma[name].numpy(),
            float(update.double().square().sum()),
            min(update.shape),
        )
        for name, update in linear.updates.items()
    }
    earned = path_attribution(
        linear.parameters, linear.updates, [batch], lambda one: loss(linear.model, one), 4
    )
    ranks = {
        rule: plan(rule, modules, budget_of(modules, 2), earned)
        for rule in ("attributed", "energy")
    }
    assert {rule: list(found.values()) for rule, found in ranks.items()} == RANKS[kind]


LOSSES = {
    "llama": {
        "tuned": 4.730708,
        "drop": 0.475009,
        "attributed": 0.476041,
        "most": [0.066359, 0.077002, 0.08255],
    },
    "gpt2": {
        "tuned": 4.272656,
        "drop": 0.264707,
        "attributed": 0.258645,
        "most": [0.035733, 0.04725, 0.070929],
    },
}
SINGULAR_VALUES = {"llama": [0.21377, 0.144312, 0.137365], "gpt2": [0.374063, 0.21906, 0.179532]}
RANKS = {
    "llama": {
        "attributed": [0, 0, 3, 4, 3, 3, 3, 0, 0, 3, 4, 2, 1, 1],
        "energy": [2, 2, 1, 2, 3, 3, 2, 2, 2, 1, 1, 2, 2, 2],
    },
    "gpt2": {"attributed": [1, 2, 3, 3, 1, 2, 3, 2], "energy": [3, 1, 3, 2, 2, 1, 2, 1]},
}
