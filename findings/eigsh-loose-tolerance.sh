#!/usr/bin/env bash
# scipy's eigsh with a loose tol leaves out copies of the top eigenvalue.
#
# Versions: scipy 1.17.1, numpy 2.4.6.
#
# scipy.sparse.linalg.eigsh says of tol that it is the relative accuracy of the
# eigenvalues, as a stopping criterion.
#
# Expected: the five largest eigenvalues of a matrix of size 100 that has 3 five times
# and else values between 0 and 1, asked with tol=1e-4, are five numbers near 3, right
# to 1e-4.
# Seen: three or four times 3, and then 1.0, which is the largest of the others. With
# tol=1e-6 one copy is still missing in each of ten draws, so that the fifth value is
# wrong by two thirds of itself; with tol=1e-8 in one draw of ten. At the default, 0,
# all five are right. A Krylov space holds but one vector for each different
# eigenvalue; the other copies come in by rounding alone, after a loose tolerance is
# met. The solver "lobpcg", which works on a block, finds five copies at tol=1e-4.
# There is no error and no warning.
#
# Why it matters: symmetric heads, one-hot targets and balanced classes give Hessians
# and Gram matrices with equal eigenvalues (one for each class but one). Anyone who
# counts outliers with a tolerance of 1e-4, which is plenty for a plot, counts too
# few.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scipy==1.17.1 numpy==2.4.6

cat > try.py <<'PY'
import warnings

import numpy as np
from scipy.sparse.linalg import eigsh, lobpcg

warnings.simplefilter("error")
true = np.concatenate([np.full(5, 3.0), np.linspace(0, 1, 95)])

missing = {tol: [] for tol in (1e-2, 1e-4, 1e-6, 1e-8, 0)}
for seed in range(10):
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((100, 100)))
    matrix = (basis * true) @ basis.T
    matrix = (matrix + matrix.T) / 2
    assert np.allclose(np.linalg.eigvalsh(matrix)[-5:], 3)
    start = rng.standard_normal(100)
    for tol, counts in missing.items():
        values = eigsh(matrix, k=5, which="LA", tol=tol, v0=start, return_eigenvectors=False)
        copies = int((np.abs(values - 3) < 0.01).sum())
        counts.append(5 - copies)
        # What is not a copy of 3 is another eigenvalue, two thirds too small.
        assert (np.sort(values)[: 5 - copies] < 1.01).all()
    block = lobpcg(matrix, rng.standard_normal((100, 5)), tol=1e-4, maxiter=200)[0]
    assert np.allclose(block, 3, atol=1e-3)

for tol, counts in missing.items():
    print(f"eigsh, tol={tol:g}: copies missing {counts}")
    if tol > 1e-7:
        assert max(counts) >= 1 and sum(counts) >= 5
    elif tol == 0:
        assert max(counts) == 0
PY
./env/bin/python try.py
echo "as seen before"
