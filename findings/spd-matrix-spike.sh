#!/usr/bin/env bash
# scikit-learn's random positive-definite matrix always has one giant eigenvalue.
#
# Versions: scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1.
#
# sklearn.datasets.make_spd_matrix(n) is said to give a random symmetric,
# positive-definite matrix; nothing is said of its spectrum.
#
# Expected: a spectrum like that of a random covariance (a spread without an
# outlier), or all eigenvalues between 1 and 2.
# Seen: for each seed and size, one eigenvalue is within 0.5 of n + 0.5, and all the
# others are between 0 and 1. The matrix is a rank-one spike on a flat bulk: the
# first eigenvalue has about two thirds of the trace at every size from 20 on, and the
# condition number grows faster than n. A Wishart matrix of the same size has a first
# eigenvalue of only about 4/n of its trace.
#
# Why it matters: such a matrix is taken as a neutral input to test estimates of
# spectra (effective rank, outliers from the bulk, top-k shares, condition). It is in
# truth the easiest case there is for every method that finds the first eigenvalue,
# and any test for "signal above the bulk" reports one signal.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1

cat > try.py <<'PY'
import numpy as np
from sklearn.datasets import make_spd_matrix

for n in (5, 20, 100, 300):
    tops, seconds, shares, conditions = [], [], [], []
    for seed in range(5):
        values = np.linalg.eigvalsh(make_spd_matrix(n, random_state=seed))
        tops.append(values[-1] - n)
        seconds.append(values[-2])
        shares.append(values[-1] / values.sum())
        conditions.append(values[-1] / values[0])
        assert values[0] > 0 and values[-2] < 1 and n < values[-1] < n + 1
    print(
        f"n = {n}: first - n from {min(tops):.3f} to {max(tops):.3f}, second at most {max(seconds):.3f}, "
        f"share of the first about {np.mean(shares):.2f}, condition at least {min(conditions):.0f}"
    )
    assert 0.6 < np.mean(shares) < 0.8
    assert min(conditions) > n

draw = np.random.default_rng(0).standard_normal((300, 300))
values = np.linalg.eigvalsh(draw @ draw.T)
print(f"Wishart, n = 300: share of the first {values[-1] / values.sum():.3f}")
assert values[-1] / values.sum() < 0.03
PY
./env/bin/python try.py
echo "as seen before"
