#!/usr/bin/env bash
# datasets: in the "numpy" format a slice of a float64 column is float32, and a single row is not.
#
# Versions: datasets 5.2.0, numpy 2.4.6, pyarrow 26.0.1, pandas 3.1.1.
#
# A Dataset keeps typed columns in Arrow and hands them out in a chosen format.
#
# Expected: with_format("numpy") gives each column in the type that its features say.
# Seen: features say float64, float16 and int8, and the arrays of a slice are float32, float32 and
# int64. 1e-60 is 0 in them, 1e60 is infinity, and 1 + 1e-12 is 1; numpy warns of the infinity,
# nothing of the zero. Row by row the same column gives float64, and a column of lists float32.
# The formats "arrow" and "pandas", and no format, give the numbers as they are. What is asked for
# (with_format("numpy", dtype=numpy.float64)) is given.
#
# Why it matters: times, losses and singular values of runs from a small start need double range.
# A table that is written and read through one library has zeros in the place of its smallest
# numbers, which an axis of logarithms drops; a loop over the rows shows them.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet datasets==5.2.0 numpy==2.4.6 pyarrow==26.0.1 pandas==3.1.1
export HF_HUB_OFFLINE=1 HF_HOME="$work"

cat > try.py <<'PY'
import warnings

import numpy as np
from datasets import Dataset

VALUES = np.array([1e-60, 1 + 1e-12, 1e60])
table = Dataset.from_dict(
    {
        "value": VALUES,
        "list": [[one, one] for one in VALUES.tolist()],
        "half": np.array([1, 2, 3], dtype=np.float16),
        "count": np.array([1, 2, 3], dtype=np.int8),
    }
)
print(table.features)
assert table.features["value"].dtype == "float64"
assert table.features["half"].dtype == "float16" and table.features["count"].dtype == "int8"

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    arrays = table.with_format("numpy")[:]
print({name: array.dtype for name, array in arrays.items()}, arrays["value"])
print("warnings:", {str(one.message) for one in said})
assert {str(one.message) for one in said} == {"overflow encountered in cast"}
for name in ("value", "list"):
    assert arrays[name].dtype == np.float32
    assert (arrays[name][0] == 0).all() and (arrays[name][1] == 1).all()
    assert np.isinf(arrays[name][2]).all()
assert arrays["half"].dtype == np.float32 and arrays["count"].dtype == np.int64
first = next(iter(table.with_format("numpy")))
print("row by row:", first)
assert first["value"] == 1e-60 and first["value"].dtype == np.float64
assert (first["list"] == 0).all()

assert table[:]["value"] == VALUES.tolist()
assert (table.with_format("pandas")[:]["value"] == VALUES).all()
assert table.with_format("arrow")[:]["value"].to_pylist() == VALUES.tolist()
asked = table.with_format("numpy", columns=["value", "list"], dtype=np.float64)[:]
assert asked["value"].dtype == np.float64 and (asked["value"] == VALUES).all()
PY
./env/bin/python try.py
echo "as seen before"
