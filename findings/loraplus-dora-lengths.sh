#!/usr/bin/env bash
# peft: LoRA+ trains DoRA's lengths and all biases at B's rate, and of VeRA everything.
#
# Versions: peft 0.21.2, transformers 5.23.0, accelerate 1.15.0, torch 2.13.0 (CPU
# build), numpy 2.4.6.
#
# LoRA+ (Hayou et al. 2024) gives the factor B, which begins at zero, a learning rate
# some 16 times that of A. create_loraplus_optimizer(model, ..., lr=,
# loraplus_lr_ratio=16) does so for a model of peft; its docstring calls the ratio that of
# the rates of B and A, and says which other parameters have a rate of their own:
# embeddings.
#
# Expected: what is neither A nor B has the rate `lr`: the trained length of each row
# that DoRA adds, and the biases that bias="lora_only" trains. After one step of SGD they
# are where they are without LoRA+.
# Seen: each moves 16 times as far in a step, as any parameter of one dimension counts as
# B. With VeRA, whose two trained vectors stand in the places of A and B, both do, so that
# the ratio between them stays 1. There is no word of it in a log.
#
# Why it matters: DoRA and LoRA+ are switched on together in recipes. DoRA's length is of
# the size of a row of the weight, where B begins at zero: at lr=2e-4 and the usual ratio
# Adam moves each length by 0.0032 a step, and a row of length 1 is half a percent
# longer or shorter before the second step is done. Whoever compares DoRA with LoRA under
# LoRA+ compares two learning rates, too.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 peft==0.21.2 \
  transformers==5.23.0 accelerate==1.15.0

cat > try.py <<'PY'
import torch
from peft import LoraConfig, VeraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from torch import nn

torch.set_num_threads(1)
RATIO = 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(12, 8)

    def forward(self, x):
        return self.layer(x)


def moved(config, optimizer_of):
    """How far each trained parameter is moved by one step, by its name."""
    torch.manual_seed(1)
    model = get_peft_model(Model(), config)
    with torch.no_grad():  # not at B = 0, where A has no gradient
        for name, parameter in model.named_parameters():
            if "lora_B" in name or "vera_lambda_b" in name:
                parameter.normal_(std=0.1)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in trained.items()}
    optimizer = optimizer_of(model, list(trained.values()))
    model(torch.randn(32, 12)).square().mean().backward()
    optimizer.step()
    return {name: (p.detach() - before[name]).norm().item() for name, p in trained.items()}


def ratios(config):
    """How much farther each parameter moves with LoRA+ than without."""
    plain = moved(config, lambda _, parameters: torch.optim.SGD(parameters, lr=1e-3))
    plus = moved(
        config,
        lambda model, _: create_loraplus_optimizer(
            model, torch.optim.SGD, lr=1e-3, loraplus_lr_ratio=RATIO
        ),
    )
    found = {}
    for name, far in plain.items():
        short = name.removeprefix("base_model.model.layer.").replace(".default", "")
        found[short.removesuffix(".weight")] = plus[name] / far
    print(found)
    return found


def near(value, wanted):
    return abs(value / wanted - 1) < 1e-3


dora = LoraConfig(r=2, target_modules=["layer"], use_dora=True, bias="lora_only")
found = ratios(dora)
assert near(found["lora_A"], 1) and near(found["lora_B"], RATIO)
assert near(found["lora_magnitude_vector"], RATIO)
assert near(found["base_layer.bias"], RATIO)

found = ratios(VeraConfig(r=4, target_modules=["layer"]))
assert near(found["vera_lambda_d"], RATIO) and near(found["vera_lambda_b"], RATIO)
PY
./env/bin/python try.py
echo "as seen before"
