#!/usr/bin/env bash
# pytorch_optimizer's FTRL sets weights without a gradient to zero in its first step.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# FTRL keeps two sums for each weight and computes the weight from them. It is one of over a
# hundred optimizers that the package makes by name.
#
# Expected: without weight decay and penalties a weight whose gradient is zero stays where it is,
# as with AdamW; at the least for a first step.
# Seen: it is exactly zero after one step of FTRL, whatever it was: the sums begin at zero and
# know nothing of the start. A gradient in the first step is enough to keep a weight near its
# start; a weight whose first gradient comes in step two has lost it by then. Of an embedding of
# 10 words, the 7 that do not occur in the first batch are rows of zeros. SRMM multiplies weights
# without a gradient by 0.707 in the first step, and leaves them there.
#
# Why it matters: a pretrained model, a start of a chosen scale, or a rewound one loses rows that
# have no gradient yet, and the loss of the first batch shows nothing of it. Rows of zeros also
# look like the sparsity for which FTRL is chosen.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet pytorch_optimizer==4.1.0 torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch
from pytorch_optimizer import load_optimizer

torch.set_num_threads(1)


def course(name, start, gradients):
    """The weight after each step, for given gradients."""
    weight = torch.nn.Parameter(torch.tensor([start]))
    optimizer = load_optimizer(name)([weight], lr=0.1, weight_decay=0.0)
    places = []
    for gradient in gradients:
        weight.grad = torch.tensor([float(gradient)])
        optimizer.step()
        places.append(round(weight.item(), 4))
    print(f"{name} from {start}, gradients {gradients}: {places}")
    return places


for start in (3.0, -2.0):
    assert course("adamw", start, [0, 0, 0]) == [start] * 3
    assert course("ftrl", start, [0, 0, 0]) == [0, 0, 0]
    first = course("ftrl", start, [0.1, 0, 0])
    assert all(abs(place - start) < 0.2 for place in first)
    late = course("ftrl", start, [0, 0.1, 0])
    assert all(abs(place) < 0.2 for place in late)
    shrunk = course("srmm", start, [0, 0, 0])
    assert all(abs(place - start / 2**0.5) < 1e-3 for place in shrunk)

torch.manual_seed(0)
words = torch.nn.Embedding(10, 4)
start = words.weight.detach().clone()
optimizer = load_optimizer("ftrl")(words.parameters(), lr=0.1)
(words(torch.tensor([0, 1, 2])) - 1).square().sum().backward()
optimizer.step()
gone = (words.weight == 0).all(1)
print("rows of zeros after one step:", gone.tolist())
assert gone.tolist() == [False] * 3 + [True] * 7
assert (words.weight[:3] - start[:3]).abs().max() < 0.3
PY
./env/bin/python try.py
echo "as seen before"
