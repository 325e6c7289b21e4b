#!/usr/bin/env bash
# torch.optim.ASGD, averaged descent, averages nothing in a million steps, and shrinks idle weights.
#
# Versions: torch 2.13.0 (CPU build), numpy 2.4.6.
#
# Expected: after 1,000 steps the state `ax`, the average of the weights, is their mean over the
# steps, and a weight without a gradient stays where it is, as with SGD and no weight decay.
# Seen: `ax` is the last weight, to the bit, in every step. Averaging begins at step t0, a million by
# default, and there is no word of it before. A weight without a gradient shrinks by the factor
# 1 - lambd * eta in each step (eta falls slowly), with lambd = 1e-4 by default and beside weight_decay = 0: to 0.908 of
# itself in 1,000 steps at a learning rate of 1. With t0=0, lambd=0 and alpha=0 the state is the mean
# that was expected, and nothing shrinks.
#
# Why it matters: where averaged and plain descent are compared by their spectra, or by how many
# steps a head waits, the two runs differ by a hidden decay alone. Adapters whose B has not left zero
# yet lose their A to it.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import torch


def descended(n_steps, **settings):
    """The last weights, the state's average, and the mean over the steps."""
    weights = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    rule = torch.optim.ASGD([weights], lr=1.0, **settings)
    seen = []
    for step in range(n_steps):
        weights.grad = torch.tensor([0.01 * (-1) ** step, 0.0], dtype=torch.float64)
        rule.step()
        seen.append(weights.detach().clone())
    return weights.detach(), rule.state[weights]["ax"], torch.stack(seen).mean(0)


last, average, mean = descended(1000)
print("defaults: last", last, "average", average, "mean over steps", mean)
assert torch.equal(average, last) and not torch.allclose(average, mean)
assert 0.90 < float(last[1]) < 0.91

last, average, mean = descended(1000, t0=0, lambd=0, alpha=0)
print("t0=0, lambd=0, alpha=0: last", last, "average", average, "mean over steps", mean)
assert torch.allclose(average, mean) and float(last[1]) == 1
PY
./env/bin/python try.py
echo "as seen before"
