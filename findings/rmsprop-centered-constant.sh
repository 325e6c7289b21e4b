#!/usr/bin/env bash
# torch.optim.RMSprop(centered=True) under a constant gradient ends in NaN.
#
# Version: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# The centred form divides by the root of the running variance of the gradient,
# computed as mean of squares less square of mean, plus eps. A steady gradient has no
# variance, so large steps are to be expected. NaN is something else.
#
# Expected: parameters become large but stay finite, as eps = 1e-8 bounds each step
# to about lr * gradient / eps.
# Seen: some parameters become NaN, in single and in double precision, with the
# single-tensor and the foreach form alike: the difference falls below zero by
# rounding and the root is taken before eps is added. Here some of 500 constant
# gradients between 0.001 and 10 do so within 5000 steps, though not a single
# gradient was zero, infinite or large. The first ones come when alpha to the number
# of steps nears the rounding unit: after about 1200 steps in single precision and
# about 3200 in double, so more digits put it off and do not cure it.
#
# Why it matters: runs on a linear loss, on a frozen batch, or of a parameter whose
# gradient has settled, are what one uses to look at training dynamics; a run that is
# sound for a thousand steps then fails for no reason in the data.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch

torch.set_num_threads(1)


def run(dtype, foreach, centered):
    gradient = torch.logspace(-3, 1, 500, dtype=dtype)
    weight = torch.nn.Parameter(torch.zeros_like(gradient))
    optimizer = torch.optim.RMSprop([weight], lr=1e-4, centered=centered, foreach=foreach)
    first = None
    for step in range(1, 5001):
        weight.grad = gradient
        optimizer.step()
        if first is None and not torch.isfinite(weight).all():
            first = step
    return first, int(torch.isnan(weight).sum())


for dtype in (torch.float32, torch.float64):
    for foreach in (False, True):
        first, count = run(dtype, foreach, centered=True)
        print(f"{dtype}, foreach={foreach}: {count} of 500 are NaN, the first after {first} steps")
        assert count > 0 and first > 500

first, count = run(torch.float32, False, centered=False)
print(f"not centred: {count} of 500 are NaN")
assert count == 0 and first is None
PY
./env/bin/python try.py
echo "as seen before"
