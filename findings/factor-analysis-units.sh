#!/usr/bin/env bash
# scikit-learn's FactorAnalysis finds no factor at all in data of small units.
#
# Versions: scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1.
#
# Factor analysis models the covariance as loadings plus one noise variance for each
# feature. Another unit of the data scales the loadings and the deviations of the
# noise, and changes nothing else.
#
# Expected: 2000 rows of 20 features, made of three factors and a noise of deviation
# 0.1, give the same model (up to the unit) when they are multiplied by 1e-3, 1e-6 or
# 1e-7.
# Seen: down to 1e-4 they do. At 1e-6 each noise variance comes out a hundred times
# too large, and at 1e-7 ten thousand times, there with all loadings exactly zero and
# all scores zero: no factor where there are three that carry 99% of the variance. A
# floor of 1e-12 is put on the noise variances in the units of the data, whatever the
# variance of the data. No warning is raised; the fit counts as converged. PCA, with
# its noise_variance_, gives the same numbers at each scale.
#
# Why it matters: updates of one step and gradients are of the size 1e-6 and 1e-7. The
# number of factors that is found in them then depends on the learning rate.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1

cat > try.py <<'PY'
import warnings

import numpy as np
from sklearn.decomposition import PCA, FactorAnalysis

warnings.simplefilter("error")
rng = np.random.default_rng(0)
loadings = rng.standard_normal((3, 20))
data = rng.standard_normal((2000, 3)) @ loadings + 0.1 * rng.standard_normal((2000, 20))
signal = (loadings**2).sum()
print(f"share of the factors in the variance: {signal / (signal + 20 * 0.01):.3f}")


def fit(unit):
    """The mean noise variance and the size of the loadings, in the first units, and the scores."""
    model = FactorAnalysis(3).fit(data * unit)
    noise = model.noise_variance_.mean() / unit**2
    size = np.linalg.norm(model.components_) / unit
    spread = model.transform(data * unit).std()
    plain = PCA(3, svd_solver="full").fit(data * unit).noise_variance_ / unit**2
    print(
        f"unit {unit:g}: noise variance {noise:.4g}, size of the loadings {size:.3f}, "
        f"spread of the scores {spread:.3f}, noise variance of PCA {plain:.5f}"
    )
    assert abs(plain - 0.01) < 0.001
    return noise, size, spread


noise, size, spread = fit(1.0)
assert abs(noise - 0.01) < 0.001 and abs(size / signal**0.5 - 1) < 0.1 and spread > 0.9
for unit in (1e-3, 1e-4):
    assert np.allclose(fit(unit), (noise, size, spread), rtol=1e-3)
assert fit(1e-6)[0] > 50 * noise
wrong_noise, wrong_size, wrong_spread = fit(1e-7)
assert wrong_noise > 5000 * noise and wrong_size == 0 and wrong_spread == 0
PY
./env/bin/python try.py
echo "as seen before"
