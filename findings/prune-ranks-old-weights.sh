#!/usr/bin/env bash
# torch's pruning ranks the weights of the last forward pass, not those that the layer has now.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# torch.nn.utils.prune keeps a pruned weight as `weight_orig` and `weight_mask`; `weight` is
# their product. Magnitude pruning in rounds calls l1_unstructured or global_unstructured anew.
#
# Expected: a second round, after load_state_dict or after the steps of an optimizer, cuts the
# smallest of the weights that the layer has now; and `weight` is weight_orig * weight_mask.
# Seen: the product is a plain attribute that is made anew only in a forward pass, and pruning
# ranks that attribute. Weights are loaded into a layer that was prepared with prune.identity,
# and half of them are cut: the mask agrees with that of the loaded weights in half of its
# entries, which is chance, and is that of the weights before to the last entry. Of the loaded
# weights it keeps less than 60% of the squared length, where the largest half has 93%. One
# forward pass before the call, on any input, makes the mask right. Both functions do this,
# and so does ln_structured; after an optimizer's step, too, the weights before it are ranked. Read before a forward pass, `weight` (its
# norm, its spectrum) is still that of the weights before. There is no error and no warning.
#
# Why it matters: a checkpoint that is loaded and cut in one script has a random mask of the
# right density. Compared with random pruning, magnitude looks like no better a choice; with a
# forward pass between (an evaluation, say) it is.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch
from torch.nn.utils import prune

torch.set_num_threads(1)
torch.manual_seed(0)
LOADED = torch.randn(100, 100)


def largest_half(weight):
    """The mask that keeps the largest half of the entries."""
    return (weight.abs() > weight.abs().median()).float()


def by_layer(layer):
    prune.l1_unstructured(layer, "weight", amount=0.5)


def over_all(layer):
    prune.global_unstructured([(layer, "weight")], prune.L1Unstructured, amount=0.5)


for way in (by_layer, over_all):
    for with_forward in (False, True):
        layer = torch.nn.Linear(100, 100, bias=False)
        before = layer.weight.detach().clone()
        prune.identity(layer, "weight")
        layer.load_state_dict({"weight_orig": LOADED, "weight_mask": torch.ones(100, 100)})
        if with_forward:
            layer(torch.zeros(1, 100))
        else:
            assert torch.equal(layer.weight, before)
        way(layer)
        mask = layer.weight_mask
        agrees_loaded = (mask == largest_half(LOADED)).float().mean().item()
        agrees_before = (mask == largest_half(before)).float().mean().item()
        kept = ((mask * LOADED).square().sum() / LOADED.square().sum()).item()
        print(
            f"{way.__name__}, forward pass {with_forward}: agrees with the loaded weights in "
            f"{agrees_loaded:.3f}, with those before in {agrees_before:.3f}, keeps {kept:.3f}"
        )
        assert mask.mean() == 0.5
        if with_forward:
            assert agrees_loaded > 0.999 and kept > 0.9
        else:
            assert agrees_before > 0.999 and 0.45 < agrees_loaded < 0.55 and 0.4 < kept < 0.6

layer = torch.nn.Linear(100, 100, bias=False)
prune.identity(layer, "weight")
layer.load_state_dict({"weight_orig": LOADED * torch.linspace(1, 5, 100)[:, None],
                       "weight_mask": torch.ones(100, 100)})
prune.ln_structured(layer, "weight", amount=0.5, n=2, dim=0)
rows = layer.weight_mask[:, 0]
print("ln_structured: kept of the 50 strongest rows", int(rows[50:].sum()))
assert rows[50:].sum() < 40

layer = torch.nn.Linear(100, 100, bias=False)
prune.identity(layer, "weight")
optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
layer.weight_orig.grad = -LOADED
before = layer.weight.detach().clone()
optimizer.step()
by_layer(layer)
agrees = (layer.weight_mask == largest_half(before)).float().mean().item()
print("after a step: agrees with the weights before the step in", agrees)
assert agrees > 0.999
PY
./env/bin/python try.py
echo "as seen before"
