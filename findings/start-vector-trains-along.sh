#!/usr/bin/env bash
# torch: a saved start that is put back by vector_to_parameters trains along with the model.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# parameters_to_vector gives all parameters as one vector, and vector_to_parameters writes such
# a vector into the parameters. Rewinds of lottery tickets, lines between two minima and random
# subspaces are made with the pair. The docstring of the latter begins
# with "Copy slices of a vector into an iterable of parameters".
#
# Expected: both copy. A start that was saved, and put back for a second run, is the start ever
# after, and the way from it to the trained weights has the same length in both runs.
# Seen: parameters_to_vector copies, vector_to_parameters does not: each parameter becomes a
# window on the vector. In the second run the saved start follows each step of the optimizer, so
# that the distance from it is exactly 0 to the end, where the first run went 1.02. A third run
# "from the start" begins where the second one ended. The other way round, a vector that is
# scaled or shifted in place after it was written moves the model, without another call.
# Two models that were given the same vector are one model: a step of the first is a step of the
# second. A clone() in the call, or load_state_dict, which copies, does not do this.
#
# Why it matters: distance from the start, rank of the update and overlap with the first run are
# what rewound runs are compared by. They come out as zero, or as a comparison of a run with
# itself, only in the second run, and the first one, on which the code was tried, is right.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters

torch.set_num_threads(1)
torch.manual_seed(0)
INPUTS = torch.randn(32, 8)
TARGETS = torch.randn(32, 4)


def vector(model):
    """The parameters as a vector without a history."""
    return parameters_to_vector(model.parameters()).detach()


def trained(model):
    """Fifty steps of descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(50):
        optimizer.zero_grad()
        (model(INPUTS) - TARGETS).square().mean().backward()
        optimizer.step()


model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
start = vector(model)
exact = start.clone()

lengths = []
for run in range(3):
    if run > 0:
        vector_to_parameters(start, model.parameters())
    begun = vector(model)
    trained(model)
    lengths.append((vector(model) - start).norm().item())
    print(
        f"run {run + 1}: begins {(begun - exact).norm():.3f} from the first start, ends "
        f"{(vector(model) - begun).norm():.3f} from its own, {lengths[-1]:.3f} from the saved one"
    )
    assert (begun - exact).norm().item() == 0 if run < 2 else (begun - exact).norm() > 0.5
assert lengths[0] > 0.5 and lengths[1] == lengths[2] == 0
assert not torch.equal(start, exact)

start.mul_(2)
assert torch.equal(vector(model), start)

twin = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
vector_to_parameters(start, twin.parameters())
before = vector(twin)
trained(model)
print("the twin, which was not trained, has moved by", (vector(twin) - before).norm().item())
assert torch.equal(vector(twin), vector(model)) and not torch.equal(vector(twin), before)

saved = exact.clone()
vector_to_parameters(saved.clone(), model.parameters())
trained(model)
print("with a clone:", (vector(model) - saved).norm().item())
assert torch.equal(saved, exact) and abs((vector(model) - saved).norm().item() - lengths[0]) < 1e-5
PY
./env/bin/python try.py
echo "as seen before"
