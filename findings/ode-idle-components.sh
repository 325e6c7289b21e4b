#!/usr/bin/env bash
# scipy's solve_ivp is less exact on a component when idle components stand beside it.
#
# Versions: scipy 1.17.1, numpy 2.4.6.
#
# The documentation of rtol and atol says that the solver keeps the local error
# estimates less than atol + rtol * abs(y), which reads as a promise for each
# component.
#
# Expected: a state of one component that grows, and 9999 that are zero, have zero
# slope, and touch nothing, is solved as exactly as the one component alone.
# Seen: with RK45 the relative error of the growing component is about 100 times
# larger (1e-4 in place of 1e-6, at rtol=1e-6), and 17 steps are taken in place of 40.
# RK23 loses a factor of about 80 and DOP853 about 30. With only 99 idle components
# Radau and BDF lose a factor of more than 5 too. The step is judged by the root mean
# square of the scaled errors over all components, so n - 1 components without error
# loosen the tolerance of the last one by the root of n. LSODA takes the largest
# scaled error and is not touched: its steps are the same to the last bit. No warning
# is given.
#
# Why it matters: in a gradient flow from a small start a few modes move at a time and
# thousands wait. The same rtol then means another accuracy for each width of the
# layer, and the error falls on the modes that one looks at.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet scipy==1.17.1 numpy==2.4.6

cat > try.py <<'PY'
import numpy as np
from scipy.integrate import solve_ivp

START = 1e-3


def exact(time):
    """The logistic curve: one mode that is learned from a small start."""
    return 1 / (1 + (1 / START - 1) * np.exp(-time))


def slope(time, state):
    rate = np.zeros_like(state)
    rate[0] = state[0] * (1 - state[0])
    return rate


def solve(method, size):
    state = np.zeros(size)
    state[0] = START
    run = solve_ivp(slope, (0, 14), state, method=method, rtol=1e-6, atol=1e-9)
    assert run.success and not run.y[1:].any()
    return run.t, np.abs(run.y[0] / exact(run.t) - 1).max()


for method, size, least in (
    ("RK45", 10000, 30),
    ("RK23", 10000, 30),
    ("DOP853", 10000, 10),
    ("Radau", 100, 5),
    ("BDF", 100, 5),
):
    few, alone = solve(method, 1)
    many, beside = solve(method, size)
    print(
        f"{method}: alone {few.size} steps, error {alone:.1e}; "
        f"beside {size - 1} idle components {many.size} steps, error {beside:.1e}"
    )
    assert beside > least * alone
    assert many.size < few.size

few, alone = solve("LSODA", 1)
many, beside = solve("LSODA", 100)
print(f"LSODA: error {alone:.1e} and {beside:.1e}")
assert np.array_equal(few, many) and alone == beside
PY
./env/bin/python try.py
echo "as seen before"
