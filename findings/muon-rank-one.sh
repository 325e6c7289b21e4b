#!/usr/bin/env bash
# torch.optim.Muon turns a gradient of rank one into an update of many ranks.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# Muon replaces the gradient by a polynomial of it that has odd powers only, so
# that singular values go towards one and singular vectors stay. An odd polynomial
# sends zero to zero: what the gradient has no part in gets no part in the update.
#
# Expected: the gradient of one sample (an outer product, rank one) gives an update
# of rank one, up to about 1% of rounding noise.
# Seen: the update has tens of singular values of the same order as the first. In a
# 64 by 64 layer the second is about two thirds of the first, about 24 are above a
# tenth of it, and the first has only some 30% of the squared norm. The scale of the
# gradient does not matter, nor does the parameter being in double precision. The
# same five steps of the polynomial done in single precision leave a second singular
# value below 1e-3 of the first. So the rest is rounding: Muon rounds the
# gradient to bfloat16 first, and the slope of the polynomial at zero (3.4445, five
# times over, so about 485) makes a part in 500 into a part of order one.
#
# Why it matters: who reads the effective rank of updates or of weights trained by
# Muon reads, at small batches or for low-rank gradients, the rounding of a number
# format. A random-looking bulk in the update need not come from the data.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch

torch.set_num_threads(1)
SIZE = 64


def update(gradient):
    weight = torch.nn.Parameter(torch.zeros_like(gradient))
    weight.grad = gradient.clone()
    torch.optim.Muon([weight], lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0).step()
    return weight.detach()


def describe(matrix):
    values = torch.linalg.svdvals(matrix.double())
    share = (values[0] ** 2 / (values**2).sum()).item()
    return (values[1] / values[0]).item(), int((values > 0.1 * values[0]).sum()), share


def check(seen, what):
    second, count, share = seen
    print(f"{what}: second/first {second:.3g}, above a tenth {count}, share of the first {share:.2f}")
    assert second > 0.3 and count >= 10 and share < 0.6, what


# A layer and one sample: the gradient is an outer product.
torch.manual_seed(0)
layer = torch.nn.Linear(SIZE, SIZE, bias=False)
layer(torch.randn(1, SIZE)).pow(2).sum().backward()
gradient = layer.weight.grad
before = describe(gradient)
print(f"gradient: second/first {before[0]:.3g}")
assert before[0] < 1e-5 and before[1] == 1

for scale in (1e-3, 1.0, 1e3):
    check(describe(update(gradient * scale)), f"update, gradient times {scale:g}")

left, right = torch.randn(SIZE, 1).double(), torch.randn(1, SIZE).double()
check(describe(update(left @ right)), "update, double precision")

# The same polynomial, not rounded to bfloat16.
step = gradient / gradient.norm()
for _ in range(5):
    gram = step @ step.T
    step = 3.4445 * step + (-4.7750 * gram + 2.0315 * gram @ gram) @ step
plain = describe(step)
print(f"polynomial in single precision: second/first {plain[0]:.3g}, share of the first {plain[2]:.4f}")
assert plain[0] < 1e-3 and plain[1] == 1
PY
./env/bin/python try.py
echo "as seen before"
