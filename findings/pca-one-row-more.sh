#!/usr/bin/env bash
# scikit-learn's PCA sees rank 20 in 999 rows of data, and rank 58 once there are 1000.
#
# Versions: scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1.
#
# With its defaults PCA decomposes the data themselves, or their covariance where
# there are ten times as many rows as columns. The documentation of the second way
# says that it is less stable where singular values have a large range.
#
# Expected: less stable means fewer digits. The numerical rank of data of rank 20 in
# 100 columns (singular values above 1e-12 of the first) is 20 at 999 rows and at
# 1000.
# Seen: at 999 rows it is 20, and the singular values beyond lie near 1e-15 of the
# first. At 1000 rows it is from 50 to 70: those beyond have a floor near 3e-8 of the
# first, which is the root of the rounding unit, and the rest are exactly zero, as
# negative eigenvalues are set to zero. Data of full rank whose principal directions
# fall evenly over twelve decades lose some of them: at 999 rows all 100 singular
# values are there, down to 1e-12 of the first; at 1000 rows more than ten are exactly
# zero.
#
# Why it matters: an effective dimension "by step" or "by number of tokens" jumps
# where the count of rows passes ten times the width, and the tail of a spectrum on a
# logarithmic axis ends there or grows a shelf.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1

cat > try.py <<'PY'
import warnings

import numpy as np
from sklearn.decomposition import PCA

warnings.simplefilter("error")


def spectrum(data):
    values = PCA().fit(data).singular_values_
    return values / values[0]


for seed in range(3):
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((1000, 20)) @ rng.standard_normal((20, 100))
    turn, _ = np.linalg.qr(rng.standard_normal((100, 100)))
    graded = (rng.standard_normal((1000, 100)) * np.logspace(0, -12, 100)) @ turn
    for rows in (999, 1000):
        values = spectrum(low[:rows])
        rank = int((values > 1e-12).sum())
        tail = spectrum(graded[:rows])
        zeros = int((tail == 0).sum())
        print(
            f"{rows} rows: rank of the data of rank 20 is {rank}, value 21 {values[20]:.1e}, "
            f"exact zeros {int((values == 0).sum())}; "
            f"graded data: {zeros} zeros, smallest {tail[-1]:.1e}"
        )
        if rows == 999:
            assert rank == 20 and values[20] < 1e-14
            assert zeros == 0 and 1e-14 < tail[-1] < 1e-11
        else:
            assert rank > 30 and values[20] > 1e-9 and (values == 0).any()
            assert zeros > 5
PY
./env/bin/python try.py
echo "as seen before"
