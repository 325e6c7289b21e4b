#!/usr/bin/env bash
# One of scikit-dimension's estimators says another dimension of the same points in smaller units.
#
# Versions: scikit-dimension 0.5.0, numpy 2.4.6, scikit-learn 1.9.1, Python 3.11.
#
# An intrinsic dimension is a ratio of distances, or of counts of neighbours: points in metres
# and the same points in micrometres have one dimension. skdim.id has some fifteen estimators,
# all called as fit(X).dimension_. Here 500 normal points lie in a space of three dimensions
# within one of six.
#
# Expected: each estimator says the same, near 3, whatever the points are multiplied by.
# Seen: MLE, MOM, TwoNN, lPCA and CorrInt do, to the last digits. TLE (tight localities) says
# 3.25 of points of size one and above, 5.7 of the same points times 1e-4, and 0 of them times
# 1e-6: no error and no NaN, and numpy's warnings of divisions are there at every size. An
# absolute limit on distances stands in its way.
#
# Why it matters: what a fine-tune adds to weights, and steps between checkpoints, have entries
# of 1e-4 to 1e-6. Taken as they are, their "dimension" is twice too large or zero, and it
# falls where a learning rate falls. Divide by the largest distance before.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scikit-dimension==0.5.0 numpy==2.4.6 scikit-learn==1.9.1

cat > try.py <<'PY'
import warnings

import numpy as np
import skdim

POINTS = np.zeros((500, 6))
POINTS[:, :3] = np.random.default_rng(0).normal(size=(500, 3))


def dimensions(name):
    """The dimension of the points in four units, from the largest to the smallest."""
    units = (1.0, 1e-2, 1e-4, 1e-6)
    found = [float(getattr(skdim.id, name)().fit(POINTS * unit).dimension_) for unit in units]
    print(name, [round(one, 4) for one in found])
    return found


for name in ("MLE", "MOM", "TwoNN", "lPCA", "CorrInt"):
    found = dimensions(name)
    assert np.allclose(found, found[0], rtol=1e-4) and 2.7 < found[0] < 3.3

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of numpy, at every size
    one, hundredth, small, smallest = dimensions("TLE")
assert 3 < one < 3.5 and abs(hundredth - one) < 1e-2
assert small > 5
assert smallest == 0
PY
./env/bin/python try.py
echo "as seen before"
