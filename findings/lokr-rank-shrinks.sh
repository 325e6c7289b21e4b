#!/usr/bin/env bash
# peft: LoKr of a larger rank is a smaller step on the same parameters.
#
# Versions: peft 0.21.2, transformers 5.23.0, accelerate 1.15.0, torch 2.13.0 (CPU
# build), numpy 2.4.6.
#
# LoKr's update of a weight is a Kronecker product of two matrices, the larger of which is itself
# a product of rank r, times alpha / r. The shapes of the two follow from that of the weight: for
# 64 by 64 both are 8 by 8. From r = 4 on (half of their side) a product of rank r has no fewer
# parameters than the matrix, and the whole matrix is trained in its place.
#
# Expected: from r = 4 on nothing depends on r any more: no product, no rank, no scale; the same
# seed gives the same training. LyCORIS, from which LoKr is taken, sets the scale to 1 there.
# Seen: the parameters are the same ones, 128 for each r of 4 to 64, and alpha / r is still
# there: twenty steps of descent move the weight by 7.7e-2 at r=4, 2.0e-2 at r=8, 5.0e-3 at r=16
# and 3.1e-4 at r=64, one over the square of r. By Adam it goes as one over r. Runs at r = 16 and
# 64 look as if a rank that is too large did harm. A layer of 4096 by 4096 (two matrices of 64
# by 64) is past that point at r=32. There is no warning.
#
# Why it matters: ranks are compared, of LoKr and of LoRA, at one alpha and one learning rate.
# Here the axis "rank" is the learning rate divided by 4, 16, 64, on one and the same model.
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
from peft import LoKrConfig, get_peft_model

torch.set_num_threads(1)


def tuned(rank, kind, **options):
    """The length of the update after twenty steps, and the number of its parameters."""
    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(64, 64, bias=False))
    inputs = torch.randn(256, 64)
    targets = inputs @ torch.randn(64, 64) / 8
    model = get_peft_model(base, LoKrConfig(target_modules=["0"], r=rank, alpha=8))
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = kind(trained, **options)
    for _ in range(20):
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
    layer = model.base_model.model[0]
    length = layer.get_delta_weight("default").detach().norm().item()
    return length, [tuple(one.shape) for one in trained]


for kind, options, power in (
    (torch.optim.SGD, {"lr": 0.01}, 2),
    (torch.optim.Adam, {"lr": 1e-4}, 1),
):
    lengths = {}
    for rank in (1, 2, 4, 8, 16, 64):
        lengths[rank], shapes = tuned(rank, kind, **options)
        print(f"{kind.__name__}, r={rank}: length {lengths[rank]:.2e}, parameters {shapes}")
        assert (shapes == [(8, 8), (8, 8)]) == (rank >= 4)
    for rank in (8, 16, 64):
        expected = (4 / rank) ** power
        assert 0.8 * expected < lengths[rank] / lengths[4] < 1.25 * expected
    assert lengths[4] > 10 * lengths[64]
PY
./env/bin/python try.py
echo "as seen before"
