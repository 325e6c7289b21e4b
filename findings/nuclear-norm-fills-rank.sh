#!/usr/bin/env bash
# torch and jax: descent on the nuclear norm turns a zero matrix into one of full rank.
#
# Versions: torch 2.13.0 (CPU build), jax 0.10.2, numpy 2.4.6.
#
# The nuclear norm, the sum of singular values, is the penalty for a low rank, as the sum of sizes
# is that for zeros. At a rank below full it has a kink, with a gradient to be chosen.
#
# Expected: the choice is that of the absolute value and of the Frobenius norm in torch: the
# smallest one, zero in the directions that are zero. A step of descent on the penalty leaves a
# zero matrix alone and does not raise the rank of another one.
# Seen: the gradient has full rank at each matrix. It is the identity at the zero matrix and at
# diag(1, 1, 0, 0), in torch and in jax. One step at a rate of 0.01 makes -0.01 times the identity
# of a zero matrix. A matrix of 32 by 32 and rank 4 has rank 32 after one step, with 28 new
# singular values of 0.01 each, rank 4 after two, and so on: after 1001 steps the penalty, which
# could be zero, is 0.31, and after 1000 it is 0.014. At zero entries torch's gradient of the sum
# of sizes is zero, and so is that of the Frobenius norm at a zero matrix; jax's is NaN there.
#
# Why it matters: adapters begin as a zero matrix, and masked blocks are one. The penalty that is
# to keep the rank low is what raises it, by a spectrum that is flat and has no data in it.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 -m venv env
./env/bin/pip install --quiet torch==2.13.0 jax==0.10.2 numpy==2.4.6
export JAX_PLATFORMS=cpu

cat > try.py <<'PY'
import jax
import numpy as np
import torch
from jax import numpy as jnp

torch.set_num_threads(1)


def gradient(norm, matrix):
    """torch's gradient of a function at a matrix."""
    matrix = matrix.clone().requires_grad_()
    norm(matrix).backward()
    return matrix.grad


def nuclear(matrix):
    return torch.linalg.matrix_norm(matrix, "nuc")


zero = torch.zeros(4, 4)
half = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0]))
in_jax = jax.grad(lambda matrix: jnp.linalg.norm(matrix, "nuc"))
for name, matrix in (("zero", zero), ("diag(1, 1, 0, 0)", half)):
    ours = gradient(nuclear, matrix)
    theirs = np.asarray(in_jax(jnp.asarray(matrix.numpy())))
    print(f"{name}: torch {ours.diagonal().tolist()}, jax {theirs.diagonal().tolist()}")
    assert torch.equal(ours, torch.eye(4)) and np.array_equal(theirs, np.eye(4))
assert torch.equal(gradient(lambda matrix: matrix.abs().sum(), half), half)
assert torch.equal(gradient(lambda matrix: matrix.norm(), zero), zero)
frobenius = np.asarray(jax.grad(jnp.linalg.norm)(jnp.zeros((4, 4))))
print("jax, Frobenius norm at zero:", frobenius[0].tolist())
assert np.isnan(frobenius).all()


def descend(matrix, steps, rate=0.01):
    for _ in range(steps):
        matrix = matrix - rate * gradient(nuclear, matrix)
    return matrix


assert torch.allclose(descend(zero, 1), -0.01 * torch.eye(4))

torch.manual_seed(0)
low = torch.randn(32, 4).double() @ torch.randn(4, 32).double()
low = low / torch.linalg.matrix_norm(low, 2)
print("before: rank", torch.linalg.matrix_rank(low).item())
assert torch.linalg.matrix_rank(low) == 4
for steps, rank in ((1, 32), (2, 4), (3, 32), (4, 4)):
    values = torch.linalg.svdvals(descend(low, steps))
    count = int((values > 1e-6).sum())
    print(f"after {steps} steps: {count} values above 1e-6, the fifth is {values[4]:.4f}")
    assert count == rank
    if rank == 32:
        assert torch.allclose(values[4:], torch.full((28,), 0.01, dtype=torch.double), atol=1e-8)
even = descend(low, 1000)
odd = descend(even, 1)
print("penalty after 1000 and 1001 steps:", nuclear(even).item(), nuclear(odd).item())
assert nuclear(even) < 0.02 and nuclear(odd) > 0.28
PY
./env/bin/python try.py
echo "as seen before"
