#!/usr/bin/env bash
# numcodecs' Delta filter loses all float values that stand behind a NaN or a large one.
#
# Versions: numcodecs 0.16.6, numpy 2.4.6.
#
# Delta stores the differences of neighbours, and gives the values back as a running
# sum. It takes float types; its documentation warns of the overflow of small integer
# types alone.
#
# Expected: float data come back up to a rounding in the last digit of each value, a
# NaN comes back as one NaN.
# Seen: all values behind a NaN are NaN, to the end of the chunk, and so are those
# behind an infinity. In single precision 1e8, 1, 2, 3 comes back as 1e8, 0, 1, 2: the
# first difference is rounded to the digits of 1e8, and its error of 1 stays in all
# that follows. Behind 1e20 the values 1, 0.5, 0.25 come back as 0, -0.5, -0.75 in
# double precision too, so that what is positive turns negative. How wrong a value is
# does not depend on the value but on the largest one before it in its chunk: another
# size of the chunk gives other data. For a NaN and for large values there is no error
# and no warning.
#
# Why it matters: Delta is what one reaches for to store smooth curves (losses, norms,
# steps) well. A run with one NaN, or with a spike at its start, is read back as a run
# that failed from there on, or as one with a loss below zero.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet numcodecs==0.16.6 numpy==2.4.6

cat > try.py <<'PY'
import warnings

import numpy as np
from numcodecs import Delta

warnings.simplefilter("error")


def through(values, dtype, chunk=None):
    values = np.asarray(values, dtype)
    codec = Delta(dtype=dtype)
    step = chunk or len(values)
    pieces = [values[start : start + step] for start in range(0, len(values), step)]
    back = np.concatenate([codec.decode(codec.encode(piece)) for piece in pieces])
    print(f"{dtype}, chunks of {step}: {values} -> {back}")
    return back


for dtype in ("f4", "f8"):
    back = through([3.0, 2.0, np.nan, 1.0, 0.5], dtype)
    assert np.array_equal(np.isnan(back), [False, False, True, True, True])
    back = through([1e20, 1.0, 0.5, 0.25], dtype)
    assert back[0] == np.array(1e20, dtype)
    assert np.array_equal(back[1:], [0.0, -0.5, -0.75])

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    back = through([3.0, np.inf, 1.0, 0.5], "f8")
assert np.isinf(back[1]) and np.isnan(back[2:]).all()

assert np.array_equal(through([1e8, 1.0, 2.0, 3.0], "f4"), [1e8, 0.0, 1.0, 2.0])
assert np.array_equal(through([1e8, 1.0, 2.0, 3.0], "f4", chunk=2), [1e8, 0.0, 2.0, 3.0])
assert np.array_equal(through([10**8, 1, 2, 3], "i4"), [10**8, 1, 2, 3])
PY
./env/bin/python try.py
echo "as seen before"
