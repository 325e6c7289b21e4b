#!/usr/bin/env bash
# torch's ReduceLROnPlateau takes a negative loss that stands still or rises for progress.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# ReduceLROnPlateau lowers the learning rate when the metric has not improved for
# `patience` epochs. By default an improvement has to be relative, by 1e-4 of the best
# value.
#
# Expected: a loss that is constant at -1 is a plateau like one that is constant at
# +1, and a loss that gets worse by 0.005% each epoch even more so: the rate falls for
# both.
# Seen: at +1 the rate falls to a millionth within 40 epochs. At -1 it never falls,
# over 1000 epochs: the value to beat is best * (1 - 1e-4), which for a negative best
# lies above it, so that an equal value counts as better. Also a loss that rises
# slowly from -1 counts as better each time, and the rate is still the first one when
# the loss has gone from -1 to -0.78; the "best" value that the scheduler keeps, and
# writes to its state, has risen with it. The mode "max" does the same to negative
# values, as a log-likelihood has them. With threshold_mode="abs" all four cases are
# right. The formula is in the documentation, what it does below zero is not.
#
# Why it matters: log-likelihoods of continuous data, lower bounds, rewards and
# energies are negative. The schedule that should react to them is silently the
# constant one.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

torch.set_num_threads(1)


def run(losses, **options):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = ReduceLROnPlateau(optimizer, patience=5, **options)
    for loss in losses:
        scheduler.step(loss)
    rate = optimizer.param_groups[0]["lr"]
    print(
        f"from {losses[0]} to {losses[-1]:.3f} in {len(losses)} epochs, {options}: "
        f"rate {rate:.0e}, best {scheduler.best:.3f}"
    )
    return rate, scheduler.best


def rising(start):
    losses = [start]
    for _ in range(4999):
        losses.append(losses[-1] + 0.00005 * abs(losses[-1]))
    return losses


assert run([1.0] * 40)[0] < 1e-5
assert run([-1.0] * 1000)[0] == 1.0
assert run(rising(1.0))[0] < 1e-5
rate, best = run(rising(-1.0))
assert rate == 1.0 and best > -0.8

# A log-likelihood is to be made large; here it stands still, or falls.
falling = [-loss for loss in rising(1.0)]
assert run([-1.0] * 1000, mode="max")[0] == 1.0
rate, best = run(falling, mode="max")
assert rate == 1.0 and best < -1.2

still = [-1.0] * 1000
for losses, mode in ((still, "min"), (rising(-1.0), "min"), (still, "max"), (falling, "max")):
    assert run(losses, mode=mode, threshold_mode="abs")[0] < 1e-5
PY
./env/bin/python try.py
echo "as seen before"
