#!/usr/bin/env bash
# HQQ fills a pruned matrix: hardly a zero comes back as zero, at 8 bits as at 2.
#
# Versions: hqq 0.2.8.post1, bitsandbytes 0.50.2, torch 2.13.0 (CPU build), numpy 2.4.6,
# transformers 5.23.0, accelerate 1.15.0.
#
# HQQ keeps groups of weights as integers, each group with a scale and a zero point. NF4 of
# bitsandbytes, a table of values, is there for comparison.
#
# Expected: zero is one of the values of each group that has both signs, as is usual for integer
# formats, so that a matrix pruned to half is half zeros after it, at the least at 8 bits. A
# matrix with half of its rows pruned keeps its rank.
# Seen: the zero point is a real number, moved to the best fit. Of some 16,000 zeros, spread
# singly, less than one in a hundred is zero afterwards, at 8, 4, 3 and 2 bits. They are small
# where the zero point is fitted (0.1%, 1.5%, 3% and 7% of the mean size of the other weights) and
# not where it is not (0.5%, 9%, 18% and 52%). Pruned rows stay rows of zeros with groups along
# rows (axis=1). With groups across them (axis=0, which a call of the quantizer takes unless told)
# they are filled, and rank 64 becomes 66. NF4 keeps all zeros.
#
# Why it matters: sparsity counted on the quantised model is 0%, masks made from "== 0" are empty,
# and dead units come alive, all with one shift for a group: a part of low rank that is not data.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6 hqq==0.2.8.post1 transformers==5.23.0 \
    accelerate==1.15.0 bitsandbytes==0.50.2
export HF_HUB_OFFLINE=1

cat > try.py <<'PY'
import inspect
import warnings

import torch
from bitsandbytes import functional
from hqq.core.quantize import Quantizer

torch.set_num_threads(1)
warnings.simplefilter("ignore")
torch.manual_seed(0)
weight = torch.randn(128, 256) / 16
CUT = {
    "singles": weight * (torch.rand(128, 256) < 0.5),
    "rows": weight * (torch.arange(128) < 64)[:, None],
}


def through(matrix, bits, axis, optimize):
    """The matrix, quantised and back, in groups of 64 along an axis."""
    packed, meta = Quantizer.quantize(
        matrix,
        nbits=bits,
        group_size=64,
        axis=axis,
        optimize=optimize,
        device="cpu",
        compute_dtype=torch.float32,
    )
    return Quantizer.dequantize(packed, meta).float()


def kept(matrix, back):
    """The share of zeros that are zero, and the size of the cut entries over that of the rest."""
    cut = matrix == 0
    return (back[cut] == 0).double().mean().item(), (
        back[cut].abs().mean() / matrix[~cut].abs().mean()
    ).item()


def rank(matrix):
    return torch.linalg.matrix_rank(matrix.double()).item()


assert inspect.signature(Quantizer.quantize).parameters["axis"].default == 0
FITTED = {8: 0.0009, 4: 0.015, 3: 0.029, 2: 0.069}
PLAIN = {8: 0.005, 4: 0.087, 3: 0.18, 2: 0.52}
for name, matrix in CUT.items():
    for bits in FITTED:
        for axis in (0, 1):
            for optimize, sizes in ((True, FITTED), (False, PLAIN)):
                back = through(matrix, bits, axis, optimize)
                share, size = kept(matrix, back)
                print(
                    f"{name}, {bits} bits, axis {axis}, fitted {optimize}: zeros kept {share:.4f}, "
                    f"size {size:.4f}, rank {rank(matrix)} to {rank(back)}"
                )
                if name == "rows" and axis == 1:
                    assert share == 1 and rank(back) == 64
                else:
                    assert share < 0.01 and 0.7 < size / sizes[bits] < 1.4
                if name == "rows" and axis == 0:
                    assert rank(back) == 66
    packed, state = functional.quantize_4bit(matrix, quant_type="nf4")
    share, _ = kept(matrix, functional.dequantize_4bit(packed, state))
    print(f"{name}, NF4: zeros kept {share}")
    assert share == 1
PY
./env/bin/python try.py
echo "as seen before"
