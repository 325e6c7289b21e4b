#!/usr/bin/env bash
# scikit-rmt's Marchenko-Pastur law has three means when variables outnumber samples.
#
# Versions: scikit-rmt 2.1.1, scipy 1.12.0, numpy 1.26.4 (its limits), Python 3.11.
#
# MarchenkoPasturDistribution(ratio) is the law of the eigenvalues of a sample
# covariance matrix of white noise, with `ratio` variables a sample, as a continuous
# distribution of scipy. Its mean is the variance, 1, at every ratio. Above ratio 1 a
# share of 1 - 1/ratio of the eigenvalues is zero.
#
# Expected: at ratio 2 half of rvs() is zero, cdf() is 1/2 below the bulk (which begins
# at 0.17), and mean() and the mean of the draws are 1; or the law is that of the
# eigenvalues above zero alone, in all of its functions. At ratio 1 nothing is special
# but that the bulk begins at zero.
# Seen: at ratio 2 the integral of x * pdf(x) is 1, mean() says 1.086 and the draws have
# a mean of 2; at ratio 4 they are 1, 1.75 and 4. pdf() has an integral of 1/ratio;
# cdf() is zero below the bulk and jumps at its lower edge to 1 - 1/ratio, as if the
# zeros stood there, and has half of the jump at the edge itself; rvs() draws no zero
# at all. At ratio 1, a square matrix, every draw is NaN. At ratio 0.5 the three agree.
#
# Why it matters: weight matrices are wide or tall as it happens, so that ratio is above
# 1 for half of them; the edge of noise by a quantile of this law, or by draws from it,
# is another number for a matrix and for its transpose.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scikit-rmt==2.1.1 scipy==1.12.0 numpy==1.26.4

cat > try.py <<'PY'
import numpy as np
from skrmt.ensemble.spectral_law import MarchenkoPasturDistribution


def means(ratio):
    law = MarchenkoPasturDistribution(ratio=ratio)
    x = np.linspace(1e-9, 12.0, 400_001)
    density = law.pdf(x)
    np.random.seed(0)
    draws = law.rvs(size=4000)
    found = np.trapz(x * density, x), law.mean(), draws.mean()
    mass = np.trapz(density, x)
    print(f"ratio {ratio}: means {np.round(found, 3)}, mass of the density {mass:.3f}")
    return *found, mass, draws


def measured(ratio, n=300):
    """Eigenvalues of a sample covariance of noise."""
    noise = np.random.default_rng(0).normal(size=(int(ratio * n), n))
    return np.linalg.eigvalsh(noise @ noise.T / n)


density, said, drawn, mass, _ = means(0.5)
assert abs(density - 1) < 0.01 and abs(said - 1) < 0.01 and abs(drawn - 1) < 0.03
assert abs(mass - 1) < 0.01

for ratio, wrong in ((2.0, 1.086), (4.0, 1.75)):
    eigenvalues = measured(ratio)
    assert abs(eigenvalues.mean() - 1) < 0.02
    assert abs((eigenvalues < 1e-9).mean() - (1 - 1 / ratio)) < 0.01
    density, said, drawn, mass, draws = means(ratio)
    assert abs(density - 1) < 0.01 and abs(mass - 1 / ratio) < 0.01
    assert abs(said - wrong) < 0.01
    assert abs(drawn - ratio) < 0.1 and draws.min() > 0.1
    edge = (1 - ratio**0.5) ** 2
    below, at, above = MarchenkoPasturDistribution(ratio=ratio).cdf(
        np.array([0.9 * edge, edge, edge + 1e-6])
    )
    print(f"cdf below, at and above the edge: {below}, {at:.3f}, {above:.3f}")
    assert below == 0
    assert abs(at - (1 - 1 / ratio) / 2) < 1e-3 and abs(above - (1 - 1 / ratio)) < 1e-3

with np.errstate(invalid="ignore", divide="ignore"):
    assert np.isnan(MarchenkoPasturDistribution(ratio=1.0).rvs(size=100)).all()
PY
./env/bin/python try.py
echo "as seen before"
