#!/usr/bin/env bash
# peft: to merge rank-stabilised adapters multiplies them by the root of their rank.
#
# Versions: peft 0.21.2, transformers 5.23.0, accelerate 1.15.0, torch 2.13.0 (CPU
# build), numpy 2.4.6.
#
# LoRA scales its product B A by alpha / r, rank-stabilised LoRA (use_rslora=True) by
# alpha / sqrt(r), as the rank is then free of the length of the update. add_weighted_adapter
# makes a new adapter out of old ones; its docstring calls "cat" and "svd" precise.
#
# Expected: with weights 1 and 1, "cat" is the sum of the two updates, and with one adapter of
# weight 1 every type gives that adapter again, with use_rslora as without.
# Seen: without it they do, to seven digits. With it, one adapter of rank 4 comes out 2 times as
# large from all types of merging (cat, svd, linear, ties, dare_linear, magnitude_prune), one of
# rank 16 comes out 4 times, one of rank 64 8 times. The sum of two of rank 64 by "cat" is 11.3
# times the sum of their updates. alpha does not matter. The new adapter takes the old one's
# switch over, with its own alpha set to its rank: this gives a scale of 1 by the first rule, of
# sqrt(r) by the second. There is no error and no warning.
#
# Why it matters: rank-stabilised adapters are those of high rank, where the factor is largest.
# A merge that has lost its tasks looks like interference between adapters and is nothing but
# the length; its spectrum has the right shape. LoRA and rank-stabilised LoRA, compared by how
# well they merge, differ by this factor alone.
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
from peft import LoraConfig, get_peft_model

torch.set_num_threads(1)
TYPES = ("cat", "svd", "linear", "ties", "dare_linear", "magnitude_prune")


def factor(names, kind, rank, stabilised, alpha):
    """The merged update over the sum of the updates, and what is left off that line."""
    torch.manual_seed(0)
    config = LoraConfig(
        target_modules=["0"], r=rank, lora_alpha=alpha, use_rslora=stabilised,
        init_lora_weights=False,
    )
    base = torch.nn.Sequential(torch.nn.Linear(160, 160, bias=False))
    model = get_peft_model(base, config, adapter_name="one")
    model.add_adapter("two", config)
    model.base_model.add_weighted_adapter(
        names, [1.0] * len(names), "merged", combination_type=kind, density=1.0
    )
    layer = model.base_model.model[0]
    with torch.no_grad():
        total = sum(layer.get_delta_weight(name) for name in names)
        merged = layer.get_delta_weight("merged")
    ratio = ((merged * total).sum() / total.square().sum()).item()
    rest = ((merged - ratio * total).norm() / merged.norm()).item()
    return ratio, rest


for rank in (4, 16, 64):
    for stabilised in (False, True):
        for alpha in (8, 32):
            found = []
            for kind in TYPES:
                ratio, rest = factor(["one"], kind, rank, stabilised, alpha)
                assert rest < 1e-5
                assert abs(ratio - (rank**0.5 if stabilised else 1)) < 1e-4 * ratio
                found.append(round(ratio, 4))
            both, rest = factor(["one", "two"], "cat", rank, stabilised, alpha)
            assert rest < 1e-5
            assert abs(both - ((2 * rank) ** 0.5 if stabilised else 1)) < 1e-4 * both
            print(f"rank {rank}, rslora {stabilised}, alpha {alpha}: {found}, two by cat {both:.4f}")
PY
./env/bin/python try.py
echo "as seen before"
