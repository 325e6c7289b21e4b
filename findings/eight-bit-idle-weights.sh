#!/usr/bin/env bash
# bitsandbytes' Lion8bit on a CPU moves weights without a gradient faster than those that have one.
#
# Versions: bitsandbytes 0.50.2, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# The optimizers of eight bits keep their averages as one byte an entry and one scale a block. The
# 256 values of a byte lie densest near zero, and zero is one of them.
#
# Expected: zero comes back from eight bits as zero. Weights that never have a gradient (dead
# neurons, words that do not occur) stay where they are under Adam8bit, Lion8bit and SGD8bit
# without weight decay, to the last bit, as they do under Adam of 32 bits of the same package.
# Seen: on a CPU zero comes back as 2.1e-5 of the largest entry of its block, and so does each
# positive entry below that, down to 1e-7 of it: the seven values around zero are in the table and
# never taken. The average of an idle weight is thus a small positive number, whatever the others
# are. Lion takes its sign: in 100 steps at a rate of 1e-3 each idle weight goes down by 0.099,
# one step after the other, while those with noise for a gradient move by 0.027. Adam8bit moves
# the idle ones by 3% of what the others move by, all downwards, and SGD8bit by 1e-5 in all.
#
# Why it matters: what stands still is how dead units, pruned rows and rare words are told from
# the rest, and an update that idle entries share is a part of rank one in its spectrum. A trial
# on a CPU shows it without any noise.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 bitsandbytes==0.50.2

cat > try.py <<'PY'
import bitsandbytes
import torch
from bitsandbytes import functional

torch.set_num_threads(1)

block = torch.zeros(256)
block[0] = 1.0
sizes = torch.tensor([1e-2, 1e-4, 1e-5, 1e-6, 1e-7])
block[1:6] = sizes
packed, state = functional.quantize_blockwise(block)
back = functional.dequantize_blockwise(packed, state)
print("entries", [f"{one:.0e}" for one in sizes.tolist()], "come back as", back[1:6].tolist())
print("zero comes back as", back[10:].unique().tolist())
assert (state.code == 0).sum() == 1
assert torch.allclose(back[1:3], sizes[:2], rtol=0.2)
assert back[10] > 1e-5 and (back[3:6] == back[10]).all() and (back[10:] == back[10]).all()

spread = torch.logspace(-9, 0, 20000)
spread = torch.cat([spread, -spread])[torch.randperm(40000)]
spread[::256] = 1.0
taken = functional.quantize_blockwise(spread)[0].unique().tolist()
around = state.code[sorted(set(range(256)) - set(taken))]
print("values in the table that are never taken:", around.tolist())
assert len(around) == 7 and around[3] == 0


def moved(kind, **options):
    """How far weights with and without a gradient went in 100 steps, in the mean."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(64, 128))
    start = weight.detach().clone()
    optimizer = kind([weight], lr=1e-3, weight_decay=0.0, **options)
    for _ in range(100):
        gradient = torch.randn(64, 128)
        gradient[:, 64:] = 0
        weight.grad = gradient
        optimizer.step()
    way = weight.detach() - start
    live, idle = way[:, :64].abs().mean().item(), way[:, 64:].mean().item()
    down = (way[:, 64:] < 0).float().mean().item()
    print(f"{kind.__name__}: live {live:.4g}, idle {idle:.4g}, share of the idle gone down {down}")
    return live, idle, down


assert moved(bitsandbytes.optim.Adam)[1:] == (0, 0)
live, idle, down = moved(bitsandbytes.optim.Adam8bit)
assert down == 1 and 0.02 < -idle / live < 0.05
live, idle, down = moved(bitsandbytes.optim.Lion8bit)
assert down == 1 and -idle > 0.098 and -idle > 3 * live
live, idle, down = moved(bitsandbytes.optim.SGD8bit, momentum=0.9)
assert down > 0.99 and 0 < -idle < 1e-4
PY
./env/bin/python try.py
echo "as seen before"
