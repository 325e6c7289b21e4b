#!/usr/bin/env bash
# peft: VeRA's adapter of a layer shrinks when another layer of the model that is wider gets one.
#
# Versions: peft 0.21.2, transformers 5.23.0, accelerate 1.15.0, torch 2.13.0 (CPU
# build), numpy 2.4.6.
#
# VeRA trains two vectors for each layer, between two random matrices that are frozen and that
# all layers share. Where layers differ in width, each takes its corner of the shared matrices.
#
# Expected: one layer of width 64, alone and beside layers that read or write 256 (a feed-forward
# part), gets random matrices of the same deviations, so that the same vectors give updates of
# the same length, up to the draw.
# Seen: beside a layer with 256 inputs the update is half as long, for each seed: its random A has
# half the deviation, that of a layer of 256 inputs, and only a quarter of the columns. A layer
# that writes 256 does not matter, as B's deviation goes by the rank. With 1024 inputs it is a
# quarter. The gradients of the vectors shrink, too, so that the first step of descent moves the
# weight a quarter as far, and a sixteenth. There is no warning, and no setting for it but
# d_initial, which is one for all layers.
#
# Why it matters: target_modules is thought of as the list of what is trained. With "down_proj"
# on it each attention layer takes steps a quarter as long under plain descent. A study of which
# modules to adapt, or of which of them move, sees one module take over from another.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 \
    accelerate==1.15.0 peft==0.21.2
export HF_HUB_OFFLINE=1

cat > try.py <<'PY'
import torch
from peft import VeraConfig, get_peft_model

torch.set_num_threads(1)


def lengths(neighbour, seed):
    """The update of layer 0 for vectors of ones, and its way in one step of descent."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64, bias=False)]
    targets = ["0"]
    if neighbour is not None:
        layers.append(torch.nn.Linear(*neighbour, bias=False))
        targets.append("1")
    config = VeraConfig(target_modules=targets, r=16, projection_prng_key=seed)
    layer = get_peft_model(torch.nn.Sequential(*layers), config).base_model.model[0]

    torch.manual_seed(1)
    inputs = torch.randn(256, 64)
    aims = torch.randn(256, 64)
    (layer(inputs) - aims).square().mean().backward()
    with torch.no_grad():
        vectors = (layer.vera_lambda_b["default"], layer.vera_lambda_d["default"])
        for vector in vectors:
            vector -= vector.grad
        step = layer.get_delta_weight("default").norm().item()
        for vector in vectors:
            vector.fill_(1.0)
        return layer.get_delta_weight("default").norm().item(), step


for seed in range(5):
    alone, step_alone = lengths(None, seed)
    for neighbour, expected in (
        ((64, 64), 1.0), ((64, 256), 1.0), ((256, 64), 0.5), ((1024, 64), 0.25),
    ):
        beside, step_beside = lengths(neighbour, seed)
        print(
            f"seed {seed}, beside a layer of {neighbour}: the update is {beside / alone:.3f}, the "
            f"step {step_beside / step_alone:.3f} of what they are alone"
        )
        assert 0.85 < beside / alone / expected < 1.15
        assert 0.7 < step_beside / step_alone / expected**2 < 1.4
PY
./env/bin/python try.py
echo "as seen before"
