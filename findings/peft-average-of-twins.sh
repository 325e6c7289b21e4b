#!/usr/bin/env bash
# peft: a "linear" average of two adapters that make the same update makes another one.
#
# Versions: peft 0.21.2, transformers 5.23.0, torch 2.13.0 (CPU build), numpy 2.4.6,
# accelerate 1.15.0.
#
# add_weighted_adapter merges adapters with weights. Its documentation calls the type
# "linear" a very rough approximation, for one would have to add products B A, and
# adds factors.
#
# Expected: rough or not, half an adapter and half of the same adapter are that
# adapter.
# Seen: they are twice the adapter. "dare_linear" and "magnitude_prune" at density 1
# do the same; "ties" gives a half. One adapter alone, with weight 0.5, is halved, as
# it should be. If the second is a twin (both its factors with their sign turned, so
# that the product B A is the same to the last bit), "linear" gives exactly zero. If
# the factors of the twin are rescaled by 3 and 1/3, it gives 2.67 times the adapter.
# "svd", which is the default of the argument, and "cat" give the adapter in all three
# cases.
#
# Why it matters: the factors of a trained adapter have no fixed sign or scale; two
# seeds that found the same update differ in just this. An average over seeds made
# with "linear" measures the agreement of the factors, and neither its size nor its
# rank says anything about the updates.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 transformers==5.23.0 \
    peft==0.21.2 accelerate==1.15.0
export HF_HUB_OFFLINE=1

cat > try.py <<'PY'
import warnings

import torch
from peft import LoraConfig, get_peft_model

torch.set_num_threads(1)
warnings.simplefilter("ignore")
TWINS = {"same": 1.0, "turned": -1.0, "rescaled": 3.0}


def config():
    return LoraConfig(r=4, lora_alpha=8, target_modules=["0"])


torch.manual_seed(0)
base = torch.nn.Sequential(torch.nn.Linear(32, 32))
model = get_peft_model(base, config(), adapter_name="first")
layer = model.base_model.model[0]
down, up = torch.randn(4, 32), torch.randn(32, 4)
for name, scale in {"first": 1.0, **TWINS}.items():
    if name != "first":
        model.add_adapter(name, config())
    layer.lora_A[name].weight.data = down * scale
    layer.lora_B[name].weight.data = up / scale


def update(name):
    return layer.get_delta_weight(name).detach()


first = update("first")


def size(kind, names, weights):
    """How many times the first adapter the merged one is; all are multiples of it."""
    merged = f"{kind} of " + " and ".join(names)
    density = {} if kind in ("linear", "svd", "cat") else {"density": 1.0}
    model.add_weighted_adapter(names, weights, merged, combination_type=kind, **density)
    factor = ((update(merged) * first).sum() / (first * first).sum()).item()
    assert torch.allclose(update(merged), factor * first, atol=1e-3)
    print(f"{merged}, weights {weights}: {factor:.4f} times the adapter")
    return factor


for name in TWINS:
    assert torch.allclose(update(name), first, rtol=1e-4, atol=1e-4)
assert torch.equal(update("turned"), first)

assert abs(size("linear", ["first"], [0.5]) - 0.5) < 1e-3
wanted_sizes = {"linear": 2.0, "dare_linear": 2.0, "magnitude_prune": 2.0, "ties": 0.5}
for kind, wanted in wanted_sizes.items():
    assert abs(size(kind, ["first", "same"], [0.5, 0.5]) - wanted) < 1e-3
assert size("linear", ["first", "turned"], [0.5, 0.5]) == 0
assert abs(size("linear", ["first", "rescaled"], [0.5, 0.5]) - 8 / 3) < 1e-3
for kind in ("svd", "cat"):
    for name in TWINS:
        assert abs(size(kind, ["first", name], [0.5, 0.5]) - 1) < 1e-3
PY
./env/bin/python try.py
echo "as seen before"
