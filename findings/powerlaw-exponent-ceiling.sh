#!/usr/bin/env bash
# powerlaw 2.0.0 fits no exponent above 3, and throws data away to stay below it.
#
# Versions: powerlaw 2.0.0, numpy 2.4.6, scipy 1.17.1, matplotlib 3.11.2, mpmath
# 1.3.0.
#
# powerlaw.Fit(data) looks for the xmin that fits best and the exponent alpha above
# it. For a sample that is a pure power law from 1 on, every choice of xmin is true,
# and most of the data should be used.
#
# Expected: a Pareto sample of 3000 with alpha = 4.5 is fitted as 4.5, to within about
# 0.2, with xmin near 1; and the same for 3.5.
# Seen: alpha = 1.5 and 2.5 come out within 0.1, from more than 2000 values. 3.5 comes
# out as 2.99, from 89 of the 3000 values, with nothing said about it. 4.5 comes out
# as 3.0, from 8 values in this draw; there a warning says that no valid xmin was
# found, and does not say why. The class of the distribution has 3 as its default
# upper bound of alpha, and the search for xmin goes on into the tail until noise
# brings the estimate under it. With parameter_ranges={"alpha": [1, 10]} both are
# right, so the data are not to blame.
#
# Why it matters: exponents of the spectra of trained weights are read with this
# package, and the values reported for them lie between 2 and 6. Under the defaults
# all layers above 3 come out as 3 or just under it, and look alike.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet powerlaw==2.0.0 numpy==2.4.6 scipy==1.17.1 \
    matplotlib==3.11.2 mpmath==1.3.0

cat > try.py <<'PY'
import warnings

import numpy as np
import powerlaw

warnings.simplefilter("ignore")
SIZE = 3000
rng = np.random.default_rng(0)


def fit(sample, **options):
    seen = powerlaw.Fit(sample, verbose=False, **options)
    return seen.alpha, int((sample >= seen.xmin).sum()), bool(seen.noise_flag)


for alpha in (1.5, 2.5, 3.5, 4.5):
    sample = (1 - rng.random(SIZE)) ** (-1 / (alpha - 1))
    # The estimate of greatest likelihood with xmin = 1, by hand.
    by_hand = 1 + SIZE / np.log(sample).sum()
    seen, used, warned = fit(sample)
    wide, wide_used, wide_warned = fit(sample, parameter_ranges={"alpha": [1, 10]})
    print(
        f"alpha {alpha}: by hand {by_hand:.2f}; defaults {seen:.3f} from {used} of {SIZE}, "
        f"warned of xmin: {warned}; "
        f"range to 10 {wide:.2f} from {wide_used}"
    )
    assert abs(by_hand - alpha) < 0.2
    assert abs(wide - alpha) < 0.3 and wide_used > 1000 and not wide_warned
    assert warned == (alpha == 4.5)
    if alpha < 3:
        assert abs(seen - alpha) < 0.1 and used > 2000
    else:
        assert seen < 3.001 and used < (300 if alpha == 3.5 else 30)
PY
./env/bin/python try.py
echo "as seen before"
