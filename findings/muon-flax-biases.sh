#!/usr/bin/env bash
# optax's Muon on flax's attention makes the biases orthogonal and leaves the weights to Adam.
#
# Versions: optax 0.2.8, flax 0.12.8, jax 0.10.2, numpy 2.4.6.
#
# Muon replaces the update of a matrix by the nearest one with equal singular values. It is meant
# for hidden weights; biases and the like go to Adam. optax.contrib.muon tells them apart by their
# number of axes. flax keeps a projection of attention with an axis for heads: a kernel of (width,
# heads, width of a head) and a bias of (heads, width of a head).
#
# Expected: of a model of two Dense layers around MultiHeadDotProductAttention, the kernels of the
# Dense layers and of query, key, value and out are trained by Muon, all biases by Adam.
# Seen: the two Dense kernels are. The four kernels of attention have three axes and get Adam:
# each entry of the first update is 1.47 learning rates in size. The biases of query, key and
# value, of 4 by 4, have two axes and get Muon: an update with singular values of 0.68 to 1.12, as
# if heads by width of a head were a matrix of weights. No word is said. A
# muon_weight_dimension_numbers that names the axes of each leaf does what was expected.
#
# Why it matters: a comparison of Muon and Adam by the spectra of W_Q, W_K, W_V or W_O compares
# Adam with Adam here, while the feed-forward part of the same model differs.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet optax==0.2.8 flax==0.12.8 jax==0.10.2 numpy==2.4.6
export JAX_PLATFORMS=cpu

cat > try.py <<'PY'
import jax
import numpy as np
import optax
from flax import linen
from jax import numpy as jnp
from optax.contrib import MuonDimensionNumbers


class Net(linen.Module):
    @linen.compact
    def __call__(self, tokens):
        hidden = linen.Dense(16, name="into")(tokens)
        hidden = linen.MultiHeadDotProductAttention(num_heads=4, name="attention")(hidden, hidden)
        return linen.Dense(16, name="out_of")(hidden)


net = Net()
tokens = jax.random.normal(jax.random.key(1), (64, 5, 16))
targets = jax.random.normal(jax.random.key(2), (64, 5, 16))
params = net.init(jax.random.key(0), tokens)
gradients = jax.grad(lambda params: ((net.apply(params, tokens) - targets) ** 2).mean())(params)


def first_update(**options):
    """The first update, by the name of its leaf."""
    optimizer = optax.contrib.muon(1.0, **options)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    leaves = jax.tree_util.tree_leaves_with_path(updates["params"])
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def by_signs(leaf):
    """Whether nearly all entries have one size, as in Adam's first step."""
    sizes = abs(leaf)
    return np.mean(sizes > 0.99 * sizes.max()) > 0.95


for name, leaf in first_update().items():
    spectrum = np.linalg.svd(leaf.reshape(len(leaf), -1), compute_uv=False)
    print(
        f"{name} {leaf.shape}: sizes {abs(leaf).min():.3f} to {abs(leaf).max():.3f}, "
        f"singular values {spectrum.min():.3f} to {spectrum.max():.3f}"
    )
    dense_kernel = "attention" not in name and "kernel" in name
    head_bias = "attention" in name and "bias" in name and leaf.ndim == 2
    assert (leaf.ndim == 2) == (dense_kernel or head_bias)
    assert by_signs(leaf) == (leaf.ndim != 2)
    if leaf.ndim == 2:
        assert spectrum.max() < 1.3

AXES = {"query": (0, (1, 2)), "key": (0, (1, 2)), "value": (0, (1, 2)), "out": ((0, 1), 2)}


def axes(path, leaf):
    """The axes of a kernel that are rows and columns, and None for what Adam trains."""
    name = jax.tree_util.keystr(path)
    if "kernel" not in name:
        return None
    for part, (rows, columns) in AXES.items():
        if f"['{part}']" in name:
            return MuonDimensionNumbers(rows, columns)
    return MuonDimensionNumbers(0, 1)


told = jax.tree_util.tree_map_with_path(axes, params)
for name, leaf in first_update(muon_weight_dimension_numbers=told).items():
    if name == "['attention']['key']['bias']":
        continue  # softmax does not see it: its gradient is rounding
    print("told:", name, "by Adam" if by_signs(leaf) else "by Muon")
    assert by_signs(leaf) == ("kernel" not in name)
PY
./env/bin/python try.py
echo "as seen before"
