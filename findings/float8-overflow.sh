#!/usr/bin/env bash
# torch's float8_e4m3fn turns an infinity into 448, and its float8_e8m0fnu turns -1 into 1.
#
# Versions: torch 2.13.0 (CPU build), ml_dtypes 0.6.0, numpy 2.4.6.
#
# Both libraries have the same five formats of eight bits. None of the formats but e5m2 has an
# infinity, all of them have a NaN, and e8m0 (the scales of MX formats) has no sign and no zero.
#
# Expected: what a format cannot hold becomes an infinity or NaN, in each format and in both
# libraries alike, so that an overflow is seen later.
# Seen: ml_dtypes does so. torch does in e5m2 (infinity) and in the two fnuz formats (NaN), but in
# e4m3fn all that is too large, an infinity, too, becomes 448, the largest number; only NaN stays.
# This holds from float64, float32, float16 and bfloat16. In e8m0fnu torch drops the sign, so that
# -1 becomes 1 and -3 becomes 4, and takes 0 to 2**-127; ml_dtypes makes NaN of all three. On
# numbers that a format can hold the two agree to the bit.
#
# Why it matters: a training or a checkpoint that overflowed is looked for by isfinite, which sees
# nothing after a trip through e4m3fn. Weights that were converted by the two libraries differ in
# just those entries that matter most to a spectrum.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 ml_dtypes==0.6.0 numpy==2.4.6

cat > try.py <<'PY'
import ml_dtypes
import numpy as np
import torch

TOO_LARGE = np.array([465.0, 1e9, np.inf, -1e9, -np.inf], "f4")
TOO_LARGE_E5M2 = np.array([1e9, np.inf, -1e9, -np.inf], "f4")


def by_torch(x, name, source=torch.float32):
    return torch.tensor(x).to(source).to(getattr(torch, name)).float().numpy()


def by_ml_dtypes(x, name):
    return x.astype(getattr(ml_dtypes, name)).astype("f4")


for source in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    got = by_torch(TOO_LARGE, "float8_e4m3fn", source)
    assert (got == 448 * np.sign(TOO_LARGE)).all()
assert np.isnan(by_ml_dtypes(TOO_LARGE, "float8_e4m3fn")).all()
assert np.isnan(by_torch(np.array([np.nan], "f4"), "float8_e4m3fn")).all()
print("e4m3fn: torch", by_torch(TOO_LARGE, "float8_e4m3fn"), "ml_dtypes nan")

for name in ("float8_e4m3fnuz", "float8_e5m2fnuz"):
    for found in (by_torch(TOO_LARGE[1:], name), by_ml_dtypes(TOO_LARGE[1:], name)):
        assert np.isnan(found).all()
for found in (by_torch(TOO_LARGE_E5M2, "float8_e5m2"), by_ml_dtypes(TOO_LARGE_E5M2, "float8_e5m2")):
    assert (found == np.sign(TOO_LARGE_E5M2) * np.inf).all()
print("the fnuz formats: nan in both; e5m2: infinity in both")

negative = np.array([-1.0, -3.0, 0.0], "f4")
got = by_torch(negative, "float8_e8m0fnu")
assert got.tolist() == [1.0, 4.0, 2.0**-127]
assert np.isnan(by_ml_dtypes(negative, "float8_e8m0fnu")).all()
print("e8m0fnu of -1, -3, 0: torch", got, "ml_dtypes nan")

inside = np.linspace(-448, 448, 100_001, dtype="f4")
for name in ("float8_e4m3fn", "float8_e5m2", "float8_e5m2fnuz"):
    assert (by_torch(inside, name) == by_ml_dtypes(inside, name)).all()
PY
./env/bin/python try.py
echo "as seen before"
