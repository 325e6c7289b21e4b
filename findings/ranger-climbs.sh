#!/usr/bin/env bash
# pytorch_optimizer's Ranger climbs the loss in its first five steps.
#
# Versions: pytorch_optimizer 4.1.0, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# Ranger is RAdam with Lookahead. RAdam has no estimate of the variance of the gradient in its
# first steps; it then takes plain steps of momentum, or none (degenerated_to_sgd=False, the
# default of this package).
#
# Expected: on the bowl w^2 / 2, w falls from the first step, or waits for five steps and falls.
# Seen: RAdam of the same package waits for five steps. Ranger goes uphill in each of them, by
# the learning rate times the average of the raw gradients: from 1 to 1.55 at a rate of 0.1.
# At the sixth step Lookahead takes back half of that, and only then does it turn round, in
# steps of 0.003 to 0.006. The loss is above its start until step 53. Five
# gradients of 1 take the weight from 1 to 1.5, five gradients of 1000 take it to 501. Its own
# maximize=True goes downhill in these steps. With degenerated_to_sgd=True it falls from the
# first step. The place in the code that says "no step" in RAdam is a step size of -1, which
# Ranger multiplies on.
#
# Why it matters: a peak of the loss in the first steps is read as a too large rate, or as the
# catapult of the large-rate phase. A fine-tune leaves its checkpoint against the gradient, an
# adapter's first direction is the opposite of the one that the theory of small starts gives,
# and a random start hides it.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet pytorch_optimizer==4.1.0 torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch
from pytorch_optimizer import RAdam, Ranger

torch.set_num_threads(1)


def path(kind, n_steps=200, scale=1.0, **options):
    """The weight after each step on the bowl scale * w^2 / 2, begun at 1."""
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = kind([weight], lr=0.1, **options)
    found = [1.0]
    for _ in range(n_steps):
        optimizer.zero_grad()
        (scale * weight.square().sum() / 2).backward()
        optimizer.step()
        found.append(weight.item())
    print(kind.__name__, scale, options, [round(one, 3) for one in found[:8]], "...", found[-1])
    return found


waits = path(RAdam)
assert waits[:6] == [1.0] * 6 and waits[7] < waits[6] < 1

climbs = path(Ranger)
assert all(later > one for one, later in zip(climbs[:5], climbs[1:6])) and 1.5 < climbs[5] < 1.6
assert 1.2 < climbs[6] < 1.3 and climbs[20] < climbs[7]
below = next(step for step in range(6, 200) if climbs[step] < 1)
print("below its start at step", below)
assert 45 < below < 60
growth = climbs[1] - 1
assert abs(growth - 0.1) < 1e-6

fixed = torch.nn.Parameter(torch.ones(1))
for scale in (1.0, 1000.0):
    torch.nn.init.ones_(fixed)
    optimizer = Ranger([fixed], lr=0.1)
    for _ in range(5):
        fixed.grad = torch.full((1,), scale)
        optimizer.step()
    print("five gradients of", scale, "lead to", fixed.item())
    assert abs((fixed.item() - 1) / scale - 0.5) < 1e-3

down = path(Ranger, n_steps=5, maximize=True)
assert down[5] < down[1] < 1
sgd = path(Ranger, n_steps=5, degenerated_to_sgd=True)
assert sgd[5] < sgd[1] < 1
PY
./env/bin/python try.py
echo "as seen before"
