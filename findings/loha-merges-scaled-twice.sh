#!/usr/bin/env bash
# LyCORIS: to merge a LoHa multiplies its update by alpha / rank once more.
#
# Versions: lycoris-lora 4.1.3, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# LoHa's update of a weight is the entrywise product of two low-rank products, times alpha / rank,
# and times a multiplier in use. merge_to puts the update into the weights.
#
# Expected: a trained model has the same outputs before and after it is merged, for each
# algorithm, alpha and multiplier.
# Seen: LoRA, LoKr and BOFT are the same to the last bit. LoHa is only at alpha = rank. Of rank 8
# at alpha 4 the merged update is 0.5 times that of the model in training, at alpha 16 twice, and
# at alpha 1, which is the default, an eighth of it: alpha / rank, one time more. The multiplier
# has no part in it. With dora_wd=True the merged one is off as well, by no one factor. There is
# no error, no warning and no NaN.
#
# Why it matters: what is merged is what is stored, evaluated and taken apart by its spectrum.
# Ranks are compared at one alpha, and so the update looks smaller the higher the rank is.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet lycoris-lora==4.1.3 torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import inspect
import logging

import torch
from lycoris import LycorisNetwork, create_lycoris

torch.set_num_threads(1)
logging.disable(logging.WARNING)
LycorisNetwork.apply_preset({"target_name": ["0"], "enable_conv": False})


def updates(algorithm, alpha, multiplier, **options):
    """A trained update of rank 8, as the model has it in use and as it is merged."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(16, 32), torch.randn(16, 64)
    base = torch.nn.Sequential(torch.nn.Linear(32, 64, bias=False))
    start = base[0].weight.detach().clone()
    adapter = create_lycoris(
        base, multiplier, linear_dim=8, linear_alpha=alpha, algo=algorithm, **options
    )
    adapter.apply_to()
    optimizer = torch.optim.Adam([p for p in adapter.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        (base(inputs) - targets).square().mean().backward()
        optimizer.step()
    adapter.eval()
    with torch.no_grad():
        used = base(torch.eye(32)).T - start
        adapter.restore()
        adapter.merge_to(multiplier)
        return used, base[0].weight - start


assert inspect.signature(create_lycoris).parameters["linear_alpha"].default == 1
for algorithm in ("lora", "lokr", "boft", "loha"):
    for alpha in (8.0, 4.0, 16.0, 1.0):
        for multiplier in (1.0, 0.5):
            used, merged = updates(algorithm, alpha, multiplier)
            factor = ((merged * used).sum() / (used * used).sum()).item()
            rest = ((merged - factor * used).norm() / used.norm()).item()
            print(f"{algorithm}, alpha {alpha:g}, multiplier {multiplier}: times {factor:.4f}")
            assert used.norm() > 0.1 and rest < 1e-5
            assert abs(factor - (alpha / 8 if algorithm == "loha" else 1)) < 1e-4

used, merged = updates("loha", 1.0, 1.0, dora_wd=True)
off = ((merged - used).norm() / used.norm()).item()
print(f"loha with dora_wd, alpha 1: off by {off:.2f} of the update")
assert off > 0.5
PY
./env/bin/python try.py
echo "as seen before"
