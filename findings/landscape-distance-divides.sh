#!/usr/bin/env bash
# loss-landscapes draws a smaller neighbourhood of a model for a larger distance.
#
# Versions: loss-landscapes 3.0.6, torch 2.13.0 (CPU build), numpy 2.4.6.
#
# random_line(model, metric, distance=, steps=) gives the loss at `steps` points in a random
# direction from a model. Its docstring calls `distance` the maximum distance from the model.
#
# Expected: distance=4 goes twice as far as distance=2, in the units of the weights or of their
# norm, with each of the normalizations.
# Seen: it goes half as far. The length is the norm of the weights divided by the distance: from
# weights of norm 20 the last point is 20 away at distance=1, 10 at 2 and 5 at 4. With the default
# of 0.1 it is 200 away, ten times as far as the origin. So it is for "filter", "layer", "model"
# and None, and in random_plane, whose square shrinks as the distance grows.
#
# Why it matters: sharp and flat minima, adapters against full fine-tunes, are compared by such
# plots. One that is made "ten times wider" and shows a flat valley is a hundred times closer
# than thought. The default looks at a model that is nearly all noise.
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

torch.manual_seed(0)
layer = torch.nn.Linear(20, 20, bias=False).double()
layer.weight.data *= 20 / layer.weight.data.norm()
start = layer.weight.detach().clone()


class Gone(Metric):
    """How far the weights are from where they began."""

    def __call__(self, wrapped):
        return float((wrapped.get_module_parameters().parameters[0] - start).norm())


for kind in ("filter", "layer", "model", None):
    for distance in (0.1, 1, 2, 4):
        line = loss_landscapes.random_line(
            layer, Gone(), distance=distance, steps=50, normalization=kind, deepcopy_model=True
        )
        print(f"normalization {kind}, distance {distance}: ends {line[-1]:.3f} away")
        assert abs(line[-1] - 20 / distance) < 1e-6 * line[-1]
usual = loss_landscapes.random_line(layer, Gone(), deepcopy_model=True)
assert abs(usual[-1] - 200) < 1e-3

widths = []
for distance in (1, 2, 4):
    plane = loss_landscapes.random_plane(layer, Gone(), distance=distance, deepcopy_model=True)
    widths.append(plane.max())
print("farthest point of a plane at distance 1, 2 and 4:", np.round(widths, 2))
assert widths[0] > 1.9 * widths[1] > 3.5 * widths[2]
PY
./env/bin/python try.py
echo "as seen before"
