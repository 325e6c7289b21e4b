#!/usr/bin/env bash
# numcodecs' BitRound turns the NaN that a GPU writes into minus zero.
#
# Versions: numcodecs 0.16.6, numpy 2.4.6.
#
# BitRound rounds away the last bits of floats, so that they compress better. Its page says
# nothing of NaN. A NaN is a float with all bits of the exponent set and some bit of the
# mantissa. NumPy's own has one such bit. Single precision on NVIDIA's GPUs has one NaN alone,
# with every bit but the sign set: 0x7fffffff.
#
# Expected: a NaN comes back as a NaN, whichever it is, at every number of bits kept; an
# infinity as an infinity.
# Seen: NumPy's NaN and infinities do. 0x7fffffff comes back as -0.0, whatever number of bits is
# kept (short of all of them). So does the NaN with all those bits set in half and in double
# precision; with its sign set too, it comes back as 0.0. The rounding is an addition to the
# integer behind the float, which carries from the mantissa into the exponent and from there
# into the sign. A NaN that has low bits only, such as the missing value of R, comes back as an
# infinity. There is neither an error nor a warning.
#
# Why it matters: gradients and losses that failed on a GPU are stored as zeros, which is what
# one expects of a run that has converged or of a weight that has been pruned. The same failure
# computed by NumPy on the same machine stays a NaN.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet numcodecs==0.16.6 numpy==2.4.6

cat > try.py <<'PY'
import numpy as np
from numcodecs import BitRound


def stored(bits, whole, real, keep):
    """The float of these bits before and after a trip through the codec."""
    before = np.array([bits], whole).view(real)
    codec = BitRound(keepbits=keep)
    after = np.frombuffer(codec.decode(codec.encode(before.copy())), real)
    return before[0], after[0]


for whole, real in ((np.uint16, np.float16), (np.uint32, np.float32), (np.uint64, np.float64)):
    n_mantissa = np.finfo(real).nmant
    all_set = np.iinfo(whole).max >> 1
    for keep in range(1, n_mantissa):
        before, after = stored(all_set, whole, real, keep)
        assert np.isnan(before) and after == 0 and np.signbit(after)
        before, after = stored(np.iinfo(whole).max, whole, real, keep)
        assert np.isnan(before) and after == 0 and not np.signbit(after)
        usual = np.array([np.nan], real).view(whole)[0]
        assert np.isnan(stored(usual, whole, real, keep)[1])
        infinite = np.array([np.inf], real).view(whole)[0]
        assert stored(infinite, whole, real, keep)[1] == np.inf
    assert np.isnan(stored(all_set, whole, real, n_mantissa)[1])
    print(real.__name__, "all bits set:", stored(all_set, whole, real, 7), "at 7 bits")

missing = stored(0x7FF00000000007A2, np.uint64, np.float64, 10)
print("the missing value of R:", missing)
assert np.isnan(missing[0]) and missing[1] == np.inf
PY
./env/bin/python try.py
echo "as seen before"
