#!/usr/bin/env bash
# scipy's svds with PROPACK gives singular values above the norm on a flat spectrum.
#
# Versions: scipy 1.17.1, numpy 2.4.6.
#
# PROPACK's values come from a projection of the matrix on a Krylov subspace. In exact
# arithmetic no such value can be above the largest singular value.
#
# Expected: scipy.sparse.linalg.svds(A, k=4, solver="propack") of an identity or of an
# orthogonal matrix gives four ones.
# Seen: with the identity of size 30 the largest value is about 1.4 for every starting
# vector tried, without an error or a warning. With a random orthogonal matrix of
# size 40 it lies from one to fifteen percent above one. With k=1 both raise an error
# that says it did not converge; so a larger k hides the trouble. The solvers "arpack"
# and "lobpcg" give 1 for the same input. A single value above the flat rest (3
# against 1) is enough for PROPACK to be right about the largest one.
#
# Why it matters: weights after an orthogonal start, and updates that an optimiser
# made orthogonal, have exactly this spectrum. A spectral norm of 1.4 in place of 1
# looks like the first sign of learning.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scipy==1.17.1 numpy==2.4.6

cat > try.py <<'PY'
import warnings

import numpy as np
from scipy.sparse.linalg import svds

warnings.simplefilter("error")


def largest(matrix, k, solver, seed=0):
    rng = np.random.default_rng(seed)
    return svds(matrix, k=k, solver=solver, return_singular_vectors=False, rng=rng).max()


identity = np.eye(30)
orthogonal, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((40, 40)))
assert abs(np.linalg.svd(orthogonal)[1] - 1).max() < 1e-12

for name, matrix, least in (("identity", identity, 1.2), ("orthogonal", orthogonal, 1.002)):
    seen = [largest(matrix, 4, "propack", seed) for seed in range(8)]
    print(f"{name}, propack, k=4: " + " ".join(f"{value:.3f}" for value in seen))
    assert max(seen) > least
    try:
        value = largest(matrix, 1, "propack")
        raise AssertionError(f"k=1 gave {value}")
    except np.linalg.LinAlgError as error:
        print(f"{name}, propack, k=1: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        others = {solver: largest(matrix, 4, solver) for solver in ("arpack", "lobpcg")}
    print(f"{name}, other solvers: {others}")
    assert all(abs(value - 1) < 1e-6 for value in others.values())

spiked = orthogonal @ np.diag([3.0] + [1.0] * 39)
seen = largest(spiked, 1, "propack")
print(f"one value of 3 above ones, propack, k=1: {seen:.6f}")
assert abs(seen - 3) < 1e-6
PY
./env/bin/python try.py
echo "as seen before"
