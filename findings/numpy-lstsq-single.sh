#!/usr/bin/env bash
# numpy's lstsq and pinv take float32 data of low rank for data of full rank.
#
# Versions: numpy 2.4.6, scipy 1.17.1.
#
# numpy.linalg.lstsq is said to treat singular values below the machine precision
# times max(M, N) as zero, and to return the rank that it found.
#
# Expected: 200 by 20 data in float32, a product of factors of rank 5, have rank 5 for
# numpy.linalg.matrix_rank and lstsq alike, and the shortest solution has a norm of a
# few units, as the true coefficients have.
# Seen: matrix_rank gives 5 and lstsq 20. The solution is of type float32 and has a
# norm of 5e5 and more in place of 1 to 3. The precision that lstsq takes is that of
# float64, in which it computes; the data carry the noise of float32, some 1e-7, which
# is far above. numpy.linalg.pinv has a fixed cut-off of 1e-15 by default, and does
# the same: X @ (pinv(X) @ y) misses y by about 100 times the least residual.
# scipy.linalg (lstsq and pinv) takes the precision of the data, finds 5 and the short
# solution; so does numpy's lstsq when rcond is given as the float32 precision times
# 200. There is no warning.
#
# Why it matters: activations and weights come as float32. A linear readout of a
# low-rank layer fits well on its own rows, reports full rank, and has coefficients
# that are a hundred thousand times too large: their size means nothing, and a row
# slightly outside the low-rank space gets a wild prediction.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet numpy==2.4.6 scipy==1.17.1

cat > try.py <<'PY'
import warnings

import numpy as np
import scipy.linalg

warnings.simplefilter("error")
RANK = 5

for seed in range(3):
    rng = np.random.default_rng(seed)
    data = (rng.standard_normal((200, RANK)) @ rng.standard_normal((RANK, 20))).astype(np.float32)
    target = data @ rng.standard_normal(20) + 0.1 * rng.standard_normal(200)
    target = target.astype(np.float32)
    given = np.finfo(np.float32).eps * 200

    solution, _, rank, _ = np.linalg.lstsq(data, target)
    short, _, short_rank, _ = scipy.linalg.lstsq(data, target)
    cut, _, cut_rank, _ = np.linalg.lstsq(data, target, rcond=given)
    inverse = np.linalg.pinv(data) @ target
    short_inverse = scipy.linalg.pinv(data) @ target
    assert solution.dtype == np.float32

    norm = np.linalg.norm
    best, missed = norm(data @ short - target), norm(data @ inverse - target)
    print(
        f"matrix_rank {np.linalg.matrix_rank(data)}, lstsq: numpy {rank}, scipy {short_rank}, "
        f"numpy with rcond {cut_rank}; norm of the solution: {norm(solution):.2g}, "
        f"{norm(short):.2f}, {norm(cut):.2f}; pinv: numpy {norm(inverse):.2g}, "
        f"scipy {norm(short_inverse):.2f}; residual {best:.2f}, with numpy's pinv {missed:.0f}"
    )
    assert np.linalg.matrix_rank(data) == short_rank == cut_rank == RANK
    assert rank == 20
    assert norm(solution) > 1e5 and norm(inverse) > 1e5
    assert max(norm(short), norm(cut), norm(short_inverse)) < 10
    assert missed > 10 * best
PY
./env/bin/python try.py
echo "as seen before"
