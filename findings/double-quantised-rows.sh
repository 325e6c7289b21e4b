#!/usr/bin/env bash
# bitsandbytes' double quantisation turns the sign of rows that stand beside one long row.
#
# Versions: bitsandbytes 0.50.2, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# NF4 keeps 64 weights as four bits each and one scale, their largest size. Double quantisation
# (compress_statistics, on in most recipes of QLoRA) keeps the scales themselves in eight bits,
# less their mean, in blocks of 256 scales.
#
# Expected: it costs little. Rows of unlike length come back with their own lengths, right to a
# few percent, with it as without; a scale, being a size, stays positive.
# Seen: without it each row of 64 comes back within 5% of its length. With it, beside one row that
# is multiplied by 1000, the others come back times a factor of -0.69 to 2.2: some have the
# opposite sign. The mean of the scales is taken off, the rest is rounded as the longest one needs
# it, and the sum can fall below zero. Beside a row times 100 the factors are 0.74 to 1.2. Where
# every other row is multiplied by 1e-4 the small ones come back 1.4 to 3 times too long, and by
# 1e-6 90 to 200 times. Rows of zeros stay zero. Nothing is said.
#
# Why it matters: units that are regularised towards zero, and outlier features, make just such
# rows. Their stable rank and their signs are then those of the format, and a low-rank adapter is
# trained against a base whose small rows point the other way.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 bitsandbytes==0.50.2

cat > try.py <<'PY'
import torch
from bitsandbytes import functional

torch.set_num_threads(1)
torch.manual_seed(0)
WEIGHT = torch.randn(64, 64) * 0.05


def factors(matrix, rows, double):
    """The least and the largest factor by which rows come back, along themselves."""
    packed, state = functional.quantize_4bit(
        matrix, quant_type="nf4", blocksize=64, compress_statistics=double
    )
    back = functional.dequantize_4bit(packed, state)
    along = ((back * matrix).sum(1) / (matrix * matrix).sum(1))[rows]
    return along.min().item(), along.max().item()


short = torch.arange(64) > 0
seen = {}
for times in (1, 10, 100, 1000):
    matrix = torch.where(short[:, None], WEIGHT, times * WEIGHT)
    for double in (False, True):
        low, high = factors(matrix, short, double)
        seen[times, double] = low, high
        print(f"first row times {times}, double {double}: others by {low:.3f} to {high:.3f}")
        if not double:
            assert 0.95 < low and high < 1.05
assert 0.94 < seen[1, True][0] and seen[1, True][1] < 1.06
assert seen[1000, True][0] < -0.5 and seen[1000, True][1] > 2

small = torch.arange(64) % 2 == 0
for size, least in ((1e-1, 0.8), (1e-4, 1.2), (1e-6, 50.0)):
    matrix = torch.where(small[:, None], size * WEIGHT, WEIGHT)
    for double in (False, True):
        low, high = factors(matrix, small, double)
        print(f"every other row times {size:g}, double {double}: by {low:.3f} to {high:.3f}")
        if not double:
            assert 0.95 < low and high < 1.05
        else:
            assert low > least
            assert size > 1e-2 or high > 2 * least

matrix = torch.where(small[:, None], 0 * WEIGHT, WEIGHT)
packed, state = functional.quantize_4bit(matrix, quant_type="nf4", compress_statistics=True)
assert functional.dequantize_4bit(packed, state)[small].abs().max() == 0
PY
./env/bin/python try.py
echo "as seen before"
