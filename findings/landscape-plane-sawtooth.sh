#!/usr/bin/env bash
# loss-landscapes shifts every other row of its planes by a step, so that smooth valleys look rough.
#
# Versions: loss-landscapes 3.0.6, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# planar_interpolation gives a loss over the plane of three models, random_plane over two random
# directions with the model in the centre, linear_interpolation over the line of two models.
#
# Expected: over the plane of models with coordinates (0, 0), (1, 0) and (0, 1), each coordinate
# is the same along one axis of the grid, in equal steps along the other. The line of five points
# from 0 to 1 has both ends.
# Seen: of a grid of four by four, rows 0 and 2 have the second coordinates 1/4, 1/2, 3/4 and 1,
# rows 1 and 3 have 0, 1/4, 1/2 and 3/4: every other row stands a step aside. A loss that depends
# on this coordinate alone goes up and down from row to row, like the teeth of a saw. The first
# coordinate is as expected. Around a random_plane's centre the bottom of a round bowl lies in
# column 9 in even rows and in column 10 in odd ones. The line of five points has 0.2, 0.4, 0.6,
# 0.8 and 1: the first of its models is not on it.
#
# Why it matters: how rough a landscape is, and how high the barrier between two seeds, is read
# from such grids. The teeth are there for every model and grow with the slope and the step, along
# one of two axes, of which the user does not see which. A barrier above the mean of both ends is
# measured against a point on its slope.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet loss-landscapes==3.0.6 torch==2.13.0 numpy==2.4.6

cat > try.py <<'PY'
import loss_landscapes
import numpy as np
import torch
from loss_landscapes.metrics import Metric


class Reading(Metric):
    """Whatever a function says of the weights of a layer."""

    def __init__(self, function):
        self.function = function

    def __call__(self, wrapped):
        return float(self.function(wrapped.get_module_parameters().parameters[0]))


def layer(*weights):
    """A layer without bias that has these two weights."""
    made = torch.nn.Linear(2, 1, bias=False).double()
    made.weight.data = torch.tensor([weights], dtype=torch.float64)
    return made


def plane(axis):
    """A coordinate over the plane of (0, 0), (1, 0) and (0, 1)."""
    reading = Reading(lambda weights: weights[0, axis])
    ends = (layer(0, 0), layer(1, 0), layer(0, 1))
    return loss_landscapes.planar_interpolation(*ends, reading, steps=4, deepcopy_model=True)


print("first coordinate:", plane(0), "second coordinate:", plane(1), sep="\n")
quarters = np.arange(4) / 4
assert np.allclose(plane(0), quarters[:, None])
assert np.allclose(plane(1)[::2], quarters + 0.25)
assert np.allclose(plane(1)[1::2], quarters)

reading = Reading(lambda weights: weights[0, 0])
line = loss_landscapes.linear_interpolation(
    layer(0, 0), layer(1, 0), reading, steps=5, deepcopy_model=True
)
print("five points from 0 to 1:", line)
assert np.allclose(line, [0.2, 0.4, 0.6, 0.8, 1.0])

torch.manual_seed(0)
start = layer(3, 4).weight.detach().clone()
bowl = loss_landscapes.random_plane(
    layer(3, 4), Reading(lambda weights: (weights - start).norm()), steps=20, deepcopy_model=True
)
bottoms = bowl.argmin(1)[6:14]
print("random_plane: the lowest column of rows 6 to 13:", bottoms)
assert (bottoms == [9, 10, 9, 10, 9, 10, 9, 10]).all()
PY
./env/bin/python try.py
echo "as seen before"
