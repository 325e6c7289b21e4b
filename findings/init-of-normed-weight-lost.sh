#!/usr/bin/env bash
# torch: to initialise a weight under weight_norm or orthogonal does nothing, and says nothing.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# torch.nn.utils.parametrizations computes `weight` out of other parameters. Code that sets up
# a model goes through its layers and calls torch.nn.init on each `weight`; pruning by hand
# multiplies it by a mask, and clipping clamps it, in place.
#
# Expected: nn.init.normal_(layer.weight, std=3) on such a layer sets the weight, as assigning to
# layer.weight does, or there is an error that it cannot.
# Seen: under weight_norm and orthogonal the weight is what it was, to the last bit, after
# normal_, zeros_, mul_ with a mask and clamp_: each of them works on a copy, which is thrown away,
# and returns the matrix that was asked for. Under spectral_norm the calls have no effect either,
# up to a change below 1% by its own power iteration. The older torch.nn.utils.weight_norm
# takes the new numbers until the next forward pass, which puts the old ones back. Assignment
# (layer.weight = new) works in the new ones.
#
# Why it matters: the start's scale is the axis of many a study of training dynamics. On a model
# that was normed before its loop of initialisation all scales are one; a mask multiplied on
# leaves a network dense, with the accuracy of a dense one.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import warnings

import torch
from torch.nn import init
from torch.nn.utils import parametrizations
from torch.nn.utils import weight_norm as older_weight_norm

torch.set_num_threads(1)
MASK = torch.eye(6)
CHANGES = {
    "normal_": lambda weight: init.normal_(weight, std=3.0),
    "zeros_": init.zeros_,
    "mul_": lambda weight: weight.mul_(MASK),
    "clamp_": lambda weight: weight.clamp_(-0.01, 0.01),
}


@torch.no_grad()
def moved(norm, change):
    """How far the weight went by the change, over its length, and what the change returned."""
    torch.manual_seed(0)
    layer = norm(torch.nn.Linear(6, 6))
    before = layer.weight.clone()
    returned = CHANGES[change](layer.weight).clone()
    way = (layer.weight - before).norm() / before.norm()
    asked = (returned - before).norm() / before.norm()
    return way.item(), asked.item()


for name in ("weight_norm", "orthogonal", "spectral_norm"):
    for change in CHANGES:
        way, asked = moved(getattr(parametrizations, name), change)
        print(f"{name}, {change}: the weight moved by {way:.2g}, was asked for {asked:.2g}")
        assert asked > 0.5
        assert way < 0.01 if name == "spectral_norm" else way == 0

with torch.no_grad():
    for name in ("weight_norm", "orthogonal"):
        layer = getattr(parametrizations, name)(torch.nn.Linear(6, 6))
        new = init.orthogonal_(torch.empty(6, 6))
        layer.weight = new
        print(name, "assigned:", (layer.weight - new).norm().item())
        assert (layer.weight - new).norm() < 1e-4

    warnings.simplefilter("ignore")  # that this form is deprecated
    layer = older_weight_norm(torch.nn.Linear(6, 6))
    before = layer.weight.clone()
    init.zeros_(layer.weight)
    assert layer.weight.norm() == 0
    layer(torch.zeros(1, 6))
    print("older form, after a forward pass:", (layer.weight - before).norm().item())
    assert torch.equal(layer.weight, before)
PY
./env/bin/python try.py
echo "as seen before"
