#!/usr/bin/env bash
# NumPy's mean of a large bfloat16 matrix is near zero, where its mean of float16 is right.
#
# Versions: ml_dtypes 0.6.0, numpy 2.4.6.
#
# ml_dtypes gives NumPy the types bfloat16 and float8. In these weights come out of JAX, and out
# of checkpoints. NumPy's mean, var and std of float16 are added up in single precision.
#
# Expected: the mean, the deviation and the norm of 300 by 400 positive normal weights (0.80,
# 0.60 and 347) are right to the three digits of bfloat16, as those of float16 are right to four.
# Seen: the mean is 0.009 and the deviation 0.19; the norm and the median are right. The sum runs
# in bfloat16, one entry after the other, and stands still once an entry is below half of its
# last digit. For ones this is at 256, so that the mean of 512 ones is 1/2 and their deviation
# 0.35; in float8 it is at 16 (e4m3fn) and 8 (e5m2). Means over rows of 400 are 5% too small. In
# float16 the mean is right, and deviation and norm overflow to infinity, with a warning. For
# bfloat16 there is none. With dtype=np.float32 mean and deviation are right for both.
#
# Why it matters: the mean magnitude of weights, and a threshold of so many deviations, are what
# pruning and reports of checkpoints begin with. A layer's number falls as one over its size, so
# that the larger layer seems to be the smaller one, and nothing is NaN.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet ml_dtypes==0.6.0 numpy==2.4.6

cat > try.py <<'PY'
import ml_dtypes
import numpy as np

exact = np.abs(np.random.default_rng(0).normal(size=(300, 400)))
for kind in (np.float16, ml_dtypes.bfloat16):
    weights = exact.astype(kind)
    with np.errstate(over="ignore"):
        deviation = float(weights.std())
        norm = float(np.linalg.norm(weights))
    mean = float(weights.mean())
    print(f"{np.dtype(kind).name}: mean {mean:.4f}, deviation {deviation:.4f}, norm {norm:.1f}")
    assert abs(float(np.median(weights)) - np.median(exact)) < 5e-3
    assert abs(float(weights.mean(dtype=np.float32)) - exact.mean()) < 1e-3
    assert abs(float(weights.std(dtype=np.float32)) - exact.std()) < 1e-3
    if kind is np.float16:
        assert abs(mean - exact.mean()) < 1e-3
        assert np.isinf(deviation) and np.isinf(norm)
    else:
        assert mean < 0.02 * exact.mean()
        assert deviation < 0.4 * exact.std()
        assert abs(norm - np.linalg.norm(exact)) < 1
print(f"exact: mean {exact.mean():.4f}, deviation {exact.std():.4f}, {np.linalg.norm(exact):.1f}")

rows = exact.astype(ml_dtypes.bfloat16).mean(1).astype(np.float64) / exact.mean(1)
print("means of rows over the exact ones:", rows.mean().round(3), "on average")
assert 0.9 < rows.mean() < 0.97

for name, limit in (("bfloat16", 256), ("float8_e4m3fn", 16), ("float8_e5m2", 8)):
    ones = np.ones(512, getattr(ml_dtypes, name))
    print(name, "512 ones: sum", ones.sum(), "mean", ones.mean(), "deviation", ones.std())
    assert float(ones.sum()) == limit and float(ones.mean()) == limit / 512
assert np.ones(512, np.float16).mean() == 1
PY
./env/bin/python try.py
echo "as seen before"
