#!/usr/bin/env bash
# Past its last step, transformers' cosine schedule rises again to the full learning rate.
#
# Versions: transformers 5.23.0, torch 2.13.0, Python 3.11.
#
# get_scheduler(name, optimizer, num_warmup_steps, num_training_steps) makes schedules that
# fall over num_training_steps. A run that goes on past that number (an estimate of steps
# that was too low, a run that is continued with the old schedule) asks them for more.
#
# Expected: every schedule keeps its last, lowest rate, as the linear, polynomial and
# warmup-stable-decay ones do; or all raise.
# Seen: "cosine" climbs back: a half of the full rate after 150 of 100 steps, all of it after
# 200, zero again after 300. So do "cosine_with_min_lr" and "cosine_warmup_with_min_lr". Yet
# "cosine_with_restarts", whose name says that it returns, stays at zero. The one of
# "cosine_warmup_with_min_lr" has its lowest rate a step before the last, and at the last
# step it has begun to rise.
#
# Why it matters: weights move as far in the extra steps as in all before, at the rate at
# which training began, so that the update of a fine-tune is another one, of another rank,
# without a word; and two schedules that agree to the end are taken for equal.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 transformers==5.23.0

cat > try.py <<'PY'
import torch
from transformers import get_scheduler

N_STEPS = 100


def rates(name, **own):
    """The learning rate after each step, of which the first is 1."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = get_scheduler(
        name, optimizer, num_warmup_steps=0, num_training_steps=N_STEPS,
        scheduler_specific_kwargs=own,
    )
    found = [1.0]
    for _ in range(3 * N_STEPS):
        optimizer.step()
        schedule.step()
        found.append(schedule.get_last_lr()[0])
    print(name, [round(found[step], 4) for step in (99, 100, 110, 150, 200, 300)])
    return found


stay = {
    "linear": {},
    "polynomial": {},
    "warmup_stable_decay": {"num_decay_steps": 20},
    "cosine_with_restarts": {},
}
for name, own in stay.items():
    found = rates(name, **own)
    assert found[N_STEPS] == min(found) and max(found[N_STEPS:]) == found[N_STEPS]

rise = {
    "cosine": ({}, 0.0),
    "cosine_with_min_lr": ({"min_lr_rate": 0.1}, 0.1),
    "cosine_warmup_with_min_lr": ({"min_lr_rate": 0.1}, 0.1),
}
for name, (own, least) in rise.items():
    found = rates(name, **own)
    assert abs(found[N_STEPS] - least) < 3e-4
    assert 0.45 < found[150] < 0.6
    assert found[200] > 0.999
    assert abs(found[300] - least) < 3e-4

late = rates("cosine_warmup_with_min_lr", min_lr_rate=0.1)
assert late[N_STEPS - 1] == min(late) < late[N_STEPS]
PY
./env/bin/python try.py
echo "as seen before"
