#!/usr/bin/env bash
# peft: DoRA on a weight with a row of zeros gives NaN, LoRA on it does not.
#
# Versions: peft 0.21.2, transformers 5.23.0, accelerate 1.15.0, torch 2.13.0 (CPU
# build), numpy 2.4.6.
#
# Structured pruning sets rows of a weight to zero, and a low-rank adapter then tunes
# what is left. An adapter of peft begins as zero: before its first step the adapted
# model computes what the base does. DoRA is LoRA (use_dora=True) with one trained
# length for every row of the weight.
#
# Expected: a layer of which one row is zero has the same output with a fresh DoRA
# adapter as without, and this row begins to learn as it does under LoRA, or stays
# zero.
# Seen: the output of this row is NaN from the first call on, as its length is divided
# by itself. The loss is NaN, and the gradients of the factors of the whole layer are
# too, so that one step of the optimizer spoils every row. LoRA, and DoRA on the same
# layer with 1e-10 in that row, are right. There is neither an error nor a warning.
#
# Why it matters: pruned models, embeddings of padding, and layers that were begun at
# zero (the last layer of a block, a gate) all have such rows, and the option is the one
# that tutorials tell to add to LoRA.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 peft==0.21.2 \
  transformers==5.23.0 accelerate==1.15.0

cat > try.py <<'PY'
import torch
from peft import LoraConfig, get_peft_model
from torch import nn

torch.set_num_threads(1)


class Model(nn.Module):
    def __init__(self, row):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 6)
        with torch.no_grad():
            self.layer.weight[2] = row

    def forward(self, x):
        return self.layer(x)


def start(row, dora):
    """The difference that a fresh adapter makes, and whether its gradients are finite."""
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    base = Model(row)
    before = base(x).detach()
    config = LoraConfig(r=2, target_modules=["layer"], use_dora=dora)
    adapted = get_peft_model(base, config)
    after = adapted(x)
    (after**2).mean().backward()
    factors = [p for name, p in adapted.named_parameters() if "lora_B" in name]
    finite = all(p.grad.isfinite().all() for p in factors)
    print(f"row {row:g}, DoRA {dora}: {after[0].tolist()}, finite gradients: {finite}")
    return (after - before).abs().amax(0), finite


difference, finite = start(0.0, dora=False)
assert difference.max() < 1e-6 and finite

difference, finite = start(1e-10, dora=True)
assert difference.max() < 1e-6 and finite

difference, finite = start(0.0, dora=True)
assert difference[2].isnan() and difference.isnan().sum() == 1 and not finite
PY
./env/bin/python try.py
echo "as seen before"
