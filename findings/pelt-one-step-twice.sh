#!/usr/bin/env bash
# ruptures' Pelt finds two steps in a curve that has one, wherever the step is off a grid of five.
#
# Versions: ruptures 1.1.10, numpy 2.4.6, scipy 1.17.1.
#
# Pelt minimises the cost of the pieces plus a penalty for each break, exactly, as its page says.
# Its parameter `jump`, 5 by default, leaves only every fifth place as a candidate for a break.
#
# Expected: a curve without noise, 0 up to some place and 1 from there on, has one break, off by
# two places at most where the place is no multiple of five.
# Seen: a step at 100 or 105 is one break. A step at 101, 102, 103 or 104 is two, at 100 and at 105,
# for a small penalty, as the five values between fit neither side. With jump=1 it is one break at
# its place. The methods that are told the number of breaks (Dynp, Binseg, BottomUp, Window) give
# one break, at the nearest multiple of five. A penalty above 0.2 (at 101 and 104) or 0.8 (at 102 and
# 103) times the square of the step hides it.
#
# Why it matters: who counts the plateaus of a training curve, of a loss or a rank that rises in
# steps, counts most of them twice.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet ruptures==1.1.10 numpy==2.4.6 scipy==1.17.1

cat > try.py <<'PY'
import numpy as np
import ruptures

for place in range(100, 106):
    curve = np.r_[np.zeros(place), np.ones(200 - place)]
    usual = ruptures.Pelt("l2").fit(curve).predict(pen=0.1)
    every = ruptures.Pelt("l2", jump=1).fit(curve).predict(pen=0.1)
    told = ruptures.Dynp("l2").fit(curve).predict(n_bkps=1)
    print(f"step at {place}: Pelt {usual}, with jump=1 {every}, told that it is one {told}")
    on_grid = place % 5 == 0
    assert usual == ([place, 200] if on_grid else [100, 105, 200])
    assert every == [place, 200]
    assert told == [100 if place < 103 else 105, 200]

for place, gain in ((101, 0.19), (102, 0.76), (103, 0.76), (104, 0.19)):
    curve = np.r_[np.zeros(place), np.ones(200 - place)]
    assert len(ruptures.Pelt("l2").fit(curve).predict(pen=0.9 * gain)) == 3
    assert len(ruptures.Pelt("l2").fit(curve).predict(pen=1.1 * gain)) == 2

# A staircase: four steps, at places that nobody chose for the grid.
places = [37, 81, 122, 168]
stairs = np.searchsorted(places, np.arange(200), side="right").astype(float)
usual = ruptures.Pelt("l2").fit(stairs).predict(pen=0.1)[:-1]
every = ruptures.Pelt("l2", jump=1).fit(stairs).predict(pen=0.1)[:-1]
print("four steps: Pelt", usual, "with jump=1", every)
assert len(usual) == 8 and every == places
PY
./env/bin/python try.py
echo "as seen before"
