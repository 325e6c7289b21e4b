#!/usr/bin/env bash
# torch's Adafactor on bfloat16 weights is gradient descent for gradients below 0.008.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# Adafactor divides the gradient by a running estimate of its size and clips the
# result, so that the length of a step depends on the learning rate and on the size of
# the weights, and not on the scale of the loss. It is chosen where memory is short,
# which is also where weights are kept in bfloat16.
#
# Expected: with lr=0.1 and weights of deviation 1, the steps have a root mean square of
# about 0.1 for gradients of 0.1 and of 0.00001 alike, in float32 and in bfloat16, up to
# the rounding of the weights.
# Seen: float32 does this at every scale. In bfloat16 a gradient of 0.1 gives 0.1, one
# of 0.001 gives 0.013, and one of 0.0001 gives 0.0012: the step is the gradient times
# a constant. In float16 the same begins a little below 0.001. The estimate is never
# let below the square of eps, which is left out by default and then is the machine
# precision of the type of the weights: 1.2e-7 in float32, 0.00098 in float16, 0.0078
# in bfloat16. With eps=(1e-7, 1e-3) bfloat16 steps as float32 does. The documentation
# calls this eps a term for numerical stability.
#
# Why it matters: gradients of a trained network are 1e-3 to 1e-6 an entry. A run that
# is moved to bfloat16 loses the adaptation, layer by layer, and trains as if the
# learning rate had been divided by ten or a thousand.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch

torch.set_num_threads(1)


def step(dtype, scale, **options):
    """Root mean square of the first step, on weights and a gradient drawn at random."""
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(64, 64).to(dtype))
    before = weights.detach().float().clone()
    optimizer = torch.optim.Adafactor([weights], lr=0.1, **options)
    weights.grad = (scale * torch.randn(64, 64)).to(dtype)
    optimizer.step()
    size = (weights.detach().float() - before).square().mean().sqrt().item()
    print(f"{dtype}, gradient {scale:g}, {options}: step {size:.5f}")
    return size


for scale in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5):
    assert 0.09 < step(torch.float32, scale) < 0.11

assert 0.09 < step(torch.bfloat16, 1e-1) < 0.11
assert 0.010 < step(torch.bfloat16, 1e-3) < 0.016
assert 0.0009 < step(torch.bfloat16, 1e-4) < 0.0015

assert 0.09 < step(torch.float16, 1e-2) < 0.11
assert 0.008 < step(torch.float16, 1e-4) < 0.013
assert 0.0008 < step(torch.float16, 1e-5) < 0.0013

for scale in (1e-1, 1e-3, 1e-5):
    assert 0.09 < step(torch.bfloat16, scale, eps=(1e-7, 1e-3)) < 0.11
PY
./env/bin/python try.py
echo "as seen before"
