#!/usr/bin/env bash
# HDF5's scale-offset filter stores NaN as the least value of its chunk, and one sees it too late.
#
# Versions: h5py 3.16.0 (HDF5 2.0.0), numpy 2.4.6.
#
# create_dataset(..., scaleoffset=3) keeps three decimals of a float, in as few bits as the
# range of a chunk needs. The documentation calls the filter lossy, by that number of decimals.
#
# Expected: a loss that falls from 2 to 0.1 in 60 steps and is NaN from then on comes back
# within 0.0005, and its 40 NaN as NaN. What is lost is seen where the data are read back from
# the dataset after writing, as one does to check.
# Seen: the 40 NaN come back as 0.1, the least loss before them: the run that failed stands at
# its best value to the end. In double and in single precision alike, with no error and no
# warning. An infinity in the place of NaN is kept, and then all else in the chunk is exact too.
# Read from the dataset that wrote them, flushed or not, all values are exact to the last bit
# and the 40 NaN are there: they come from a cache of chunks and not from the file. The dataset
# must be closed and opened to show what the file holds.
#
# Why it matters: curves of losses, norms and ranks are what the filter is made for, and a run
# that ends in NaN is the one to find among them. By its last loss it is now the best, and a
# check after writing has passed.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet h5py==3.16.0 numpy==2.4.6

cat > try.py <<'PY'
import h5py
import numpy as np

falling = np.linspace(2, 0.1, 60)
for kind in (np.float64, np.float32):
    for name, end in (("nan", np.nan), ("infinity", np.inf)):
        loss = np.r_[falling, np.full(40, end)].astype(kind)
        with h5py.File(f"{name}.h5", "w") as file:
            dataset = file.create_dataset("loss", data=loss, scaleoffset=3, chunks=(100,))
            before_flush = dataset[...]
            file.flush()
            after_flush = dataset[...]
        with h5py.File(f"{name}.h5") as file:
            reopened = file["loss"][...]
            n_bytes = file["loss"].id.get_storage_size()
        error = np.abs(reopened[:60] - loss[:60]).max()
        print(f"{kind.__name__}, {name} at the end, {n_bytes} bytes of {loss.nbytes}:")
        print(f"  last value {after_flush[-1]}, reopened {reopened[-1]}, error before {error:.2g}")
        assert np.array_equal(before_flush, loss, equal_nan=True)
        assert np.array_equal(after_flush, loss, equal_nan=True)
        if name == "nan":
            assert 1e-4 < error < 6e-4
            assert np.abs(reopened[60:] - 0.1).max() < 1e-3
        else:
            assert np.array_equal(reopened, loss)
PY
./env/bin/python try.py
echo "as seen before"
