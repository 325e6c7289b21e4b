#!/usr/bin/env bash
# optht keeps every singular value of a long matrix when the noise level is given.
#
# Versions: optht 0.2.0, numpy 2.4.6, scipy 1.17.1.
#
# The optimal hard threshold of Gavish and Donoho for an m by n matrix, m <= n, and
# noise of known deviation sigma is lambda(m/n) * sqrt(n) * sigma, where n is the
# longer side.
#
# Expected: one strong direction in noise of deviation 1 gives rank 1 for shapes 200
# by 200 and 20 by 2000 alike, and to know sigma can only make the answer better.
# Seen: 200 by 200 gives 1. At 20 by 2000, and at 2000 by 20, sigma=1.0 gives rank 20,
# which is every value there is, while the same call without sigma gives 1. The
# threshold is computed with the square root of the number of singular values, which
# is the shorter side, so it is ten times too low here and lies below the whole bulk
# of the noise. It makes no difference whether the ratio or the matrix itself is
# given. For a square matrix the two sides are equal, and nothing shows.
#
# Why it matters: updates of weights by head (64 by 4096) are long matrices, and the
# noise of a seed is known from repeats. Every one of them is reported as full rank.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet optht==0.2.0 numpy==2.4.6 scipy==1.17.1

cat > try.py <<'PY'
import numpy as np
from optht import optht

rng = np.random.default_rng(0)


def unit(size):
    vector = rng.standard_normal(size)
    return vector / np.linalg.norm(vector)


for shape in ((200, 200), (20, 2000), (2000, 20)):
    rows, columns = shape
    short, long = min(shape), max(shape)
    ratio = short / long
    for _ in range(5):
        signal = 8 * long**0.5 * np.outer(unit(rows), unit(columns))
        matrix = signal + rng.standard_normal(shape)
        values = np.linalg.svd(matrix, compute_uv=False)
        # The threshold of the paper, for sigma = 1 (its equation for lambda).
        root = (ratio**2 + 14 * ratio + 1) ** 0.5
        factor = (2 * (ratio + 1) + 8 * ratio / (ratio + 1 + root)) ** 0.5
        paper = int((values > factor * long**0.5).sum())
        known = int(optht(ratio, sv=values, sigma=1.0))
        whole = int(optht(matrix, sv=values, sigma=1.0))
        unknown = int(optht(ratio, sv=values))
        assert paper == 1 and unknown == 1
        assert known == whole == (1 if short == long else short)
    print(
        f"{rows} by {columns}: paper {paper}, sigma known {known}, sigma unknown {unknown}; "
        f"values {values[0]:.1f}, {values[1]:.1f} ... {values[-1]:.1f}, "
        f"threshold of the paper {factor * long**0.5:.1f}"
    )
PY
./env/bin/python try.py
echo "as seen before"
