#!/usr/bin/env bash
# GGUF's Q4_0 and Q5_0 shrink one of the two signs, and so bend a flat spectrum.
#
# Versions: gguf 0.19.0, numpy 2.4.6.
#
# Q4_0 keeps 32 weights as one scale and 4 bits each. A block that holds only +1 and -1
# is as easy as it can be: two levels of sixteen are enough.
#
# Expected: such a block comes back exact, for both signs, so that matrices of +1 and
# -1 keep their spectrum.
# Seen: the sign that comes first in the block comes back as 1, the other as 0.875
# (Q4_0) or 0.9375 (Q5_0). A Hadamard matrix of size 32 (all singular values equal to
# 5.657) comes back from Q4_0 with 6.568 on top, thirty at 5.303, and 4.568 last: the
# unlike shrinkage adds a part of rank one. Five bits (6.090 and 5.090) only halve it.
# Q4_1, with as many levels and an offset, and Q8_0 keep the spectrum to 0.1%. To
# turn the sign of the whole matrix turns the sign of the result: what decides is the
# first of the extreme weights in each row, not plus or minus itself.
#
# Why it matters: sign-like and orthogonal weights are where quantising is thought to
# be harmless. An outlier of 24% above the bulk, of rank one, is what one would report
# as structure if the spectrum is measured on a file from Q4_0.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet gguf==0.19.0 numpy==2.4.6

cat > try.py <<'PY'
import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import quants

block = np.array([[1.0]])
for _ in range(5):
    block = np.block([[block, block], [block, -block]])
hadamard = block.astype(np.float32)
rng = np.random.default_rng(0)
signs = rng.choice([-1.0, 1.0], size=(2, 32)).astype(np.float32)
flipped = np.ascontiguousarray(hadamard * signs[0][:, None] * signs[1][None, :])


def through(matrix, kind):
    return quants.dequantize(quants.quantize(matrix, kind), kind)


def spectrum(matrix):
    return np.linalg.svd(matrix.astype(np.float64))[1]


assert np.allclose(spectrum(hadamard), 32**0.5)
for name, matrix in (("Hadamard", hadamard), ("Hadamard with signs drawn", flipped)):
    for kind, small, top, bulk, last in (
        (Kind.Q4_0, 0.875, 6.568, 5.303, 4.568),
        (Kind.Q5_0, 0.9375, 6.090, 5.480, 5.090),
    ):
        back = through(matrix, kind)
        values = spectrum(back)
        print(f"{name}, {kind.name}: sizes {np.unique(abs(back))}, top {values[0]:.3f}, bulk {values[15]:.3f}, last {values[-1]:.3f}")
        assert set(np.unique(abs(back)).tolist()) == {small, 1.0}
        assert (abs(back[:, 0]) == 1).all()
        assert np.allclose(values[[0, 1, 30, 31]], [top, bulk, bulk, last], atol=2e-3)
        assert np.array_equal(through(-matrix, kind), -back)
    for kind in (Kind.Q4_1, Kind.Q8_0):
        values = spectrum(through(matrix, kind))
        print(f"{name}, {kind.name}: from {values[-1]:.4f} to {values[0]:.4f}")
        assert np.allclose(values, 32**0.5, rtol=1e-3)
PY
./env/bin/python try.py
echo "as seen before"
