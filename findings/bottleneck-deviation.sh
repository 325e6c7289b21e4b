#!/usr/bin/env bash
# pandas' deviation of many float32 numbers is another one as soon as Bottleneck is installed.
#
# Versions: pandas 3.1.1, Bottleneck 1.6.0, numpy 2.4.6.
#
# Bottleneck is an optional package that makes some functions of pandas faster. pandas takes it
# by itself where it is found; other packages bring it along. Its mean is left out by pandas.
#
# Expected: the deviation of float32 weights, normal with mean 1 and deviation 0.1, is 0.1 to
# four digits, for a million of them and for forty million, with Bottleneck and without.
# Seen: without it, it is. With it the deviation is 0.0979 of twenty million and 0.178 of forty
# million, in a Series and in a DataFrame; the variance is three times too large there. The
# mean is right, and so is the standard error, so that the two formulas of the deviation
# disagree by 78% on one column. Bottleneck adds float32 numbers one after another in float32:
# its sum rounds to even numbers from 2^24 on, and stands still at 2^25 for numbers near 1, so
# that the mean inside the variance is 0.84.
# Its own nanmean says the same 0.84. In float64 all is right. There is no warning.
#
# Why it matters: the weights or gradients of a layer are a column of so many float32. The error
# is a jump between layers, by their size; and two environments that have the same pandas, and
# differ in a package that no script imports, do not agree on a number that is plotted.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet pandas==3.1.1 numpy==2.4.6

cat > try.py <<'PY'
import importlib.util
import sys

import numpy as np
import pandas as pd

has_bottleneck = importlib.util.find_spec("bottleneck") is not None
assert has_bottleneck == (sys.argv[1] == "with")
generator = np.random.default_rng(0)
for millions, low, high in ((1, 0.0999, 0.1001), (20, 0.095, 0.099), (40, 0.15, 0.2)):
    n = millions * 10**6
    weights = pd.Series(generator.standard_normal(n, dtype=np.float32) / 10 + 1)
    assert weights.dtype == np.float32
    by_series = float(weights.std())
    by_frame = float(weights.to_frame("weight").std()["weight"])
    by_error = float(weights.sem()) * n**0.5
    mean = float(weights.mean())
    print(
        f"{sys.argv[1]} Bottleneck, {millions} million: deviation {by_series:.5f}, in a frame "
        f"{by_frame:.5f}, by the standard error {by_error:.5f}, mean {mean:.5f}"
    )
    assert abs(mean - 1) < 3e-4 and abs(by_error - 0.1) < 1e-4
    assert abs(by_frame - by_series) < 1e-6
    if has_bottleneck:
        assert low < by_series < high
        assert abs(float(weights.astype(np.float64).std()) - 0.1) < 1e-4
    else:
        assert abs(by_series - 0.1) < 1e-4
if has_bottleneck:
    import bottleneck

    mean = float(bottleneck.nanmean(weights.to_numpy()))
    print("Bottleneck's own mean:", mean)
    assert 0.8 < mean < 0.9
PY
./env/bin/python try.py without
./env/bin/pip install --quiet Bottleneck==1.6.0
./env/bin/python try.py with
echo "as seen before"
