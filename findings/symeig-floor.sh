#!/usr/bin/env bash
# tensorly's symeig_svd gives singular values of at least 1.5e-8, however small the matrix is.
#
# Versions: tensorly 0.10.0, numpy 2.4.6, scipy 1.17.1.
#
# tensorly has three ways to a truncated SVD behind one door, svd_interface.
#
# Expected: a matrix that is c times as large has singular values c times as large, in all three.
# Seen: so it is with truncated_svd and randomized_svd. symeig_svd takes the root of eigenvalues that
# it cuts off below the machine epsilon, an absolute number: no singular value is below 1.49e-8.
# Of a matrix of size 1e-9 all four values are 1.49e-8, so that its spectrum is flat, and stable rank
# and effective rank are 4 in the place of 1.9 and 3.7. There is no warning, and the product of the
# factors still gives the matrix: the error goes into the vectors, whose lengths are not one.
# A matrix of size 1 with a singular value of 1e-10 has 1.49e-8 there.
#
# Why it matters: updates near a saddle, and heads of a small init scale, are of such a size. A
# residual does not show it, and a curve of ranks over time begins with full rank.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet tensorly==0.10.0 numpy==2.4.6 scipy==1.17.1

cat > try.py <<'PY'
import numpy as np
from tensorly.tenalg import svd_interface

matrix = np.random.default_rng(0).standard_normal((6, 4))
exact = np.linalg.svd(matrix, compute_uv=False)


def ranks(values):
    """The stable rank and the effective rank."""
    share = values / values.sum()
    return (values**2).sum() / values.max() ** 2, np.exp(-(share * np.log(share)).sum())


for size in (1.0, 1e-6, 1e-9, 1e-12):
    for way in ("truncated_svd", "randomized_svd", "symeig_svd"):
        U, values, V = svd_interface(size * matrix, n_eigenvecs=4, method=way)
        residual = np.abs((U * values) @ V - size * matrix).max() / size
        length = np.linalg.norm(V, axis=1)
        stable, effective = ranks(values)
        print(
            f"size {size:g}, {way}: values / size {np.round(values / size, 4)}, stable rank "
            f"{stable:.2f}, effective {effective:.2f}, residual {residual:.0e}"
        )
        assert residual < 1e-13
        if way == "symeig_svd" and size < 1e-8:
            assert np.allclose(values, np.finfo(float).eps ** 0.5)
            assert abs(stable - 4) < 1e-9 and abs(effective - 4) < 1e-9
            lengths = np.r_[length, np.linalg.norm(U, axis=0)]
            assert np.abs(lengths - 1).max() > 0.5
        else:
            assert np.allclose(values / size, exact)
PY
./env/bin/python try.py
echo "as seen before"
