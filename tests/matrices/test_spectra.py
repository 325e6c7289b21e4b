"""The fast singular values are those of the dense product, to the last digits; the null has no
structure.
"""

import mpmath
import numpy as np
import pytest
import torch

from lib.matrices.spectra import (
    gaussian_of_equal_norm,
    initial_factor,
    product_singular_values,
    product_update_singular_values,
    singular_values,
    update_factors,
)


def matrix(seed, *shape, dtype=torch.float64):
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def dense(A, B):
    """The singular values of A Bᵀ by numpy, `inner` of them."""
    sigma = np.linalg.svd(
        A.double().numpy() @ B.double().numpy().swapaxes(-1, -2), compute_uv=False
    )
    inner = A.shape[-1]
    missing = [(0, 0)] * (sigma.ndim - 1) + [(0, max(0, inner - sigma.shape[-1]))]
    return torch.from_numpy(np.pad(sigma, missing)[..., :inner])


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    assert found.dtype == torch.float64
    assert ((found - wanted).abs() <= 1e-10 * wanted[..., :1]).all()


@pytest.mark.parametrize(
    ("row", "col", "inner"),
    [(64, 9, 8), (9, 64, 8), (8, 64, 8), (64, 7, 8), (3, 3, 8), (64, 64, 64), (1, 1, 1)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_singular_values_of_a_product_are_the_dense_ones(row, col, inner, dtype):
    A = matrix(0, 2, 3, row, inner, dtype=dtype)
    B = matrix(1, 2, 3, col, inner, dtype=dtype)
    A[1, 2, :, inner // 2 :] = A[1, 2, :, : inner - inner // 2]  # dependent columns
    A[0, 1] = 0
    assert_close(product_singular_values(A, B), dense(A, B))


def test_singular_values_are_taken_in_float64():
    W = matrix(0, 3, 5, 4, dtype=torch.float32)
    assert_close(
        singular_values(W), torch.from_numpy(np.linalg.svd(W.double().numpy(), compute_uv=False))
    )


def exact_update_singular_values(A, B, A_0, B_0):
    """The singular values of A Bᵀ - A₀ B₀ᵀ, in fifty digits."""
    with mpmath.workdps(50):
        A, B, A_0, B_0 = (mpmath.matrix(M.double().tolist()) for M in (A, B, A_0, B_0))
        sigma = mpmath.svd_r(A * B.T - A_0 * B_0.T, compute_uv=False)
        return torch.tensor(sorted(map(float, sigma), reverse=True), dtype=torch.float64)


@pytest.mark.parametrize(("row", "inner"), [(8, 2), (5, 3)])
@pytest.mark.parametrize("size", [3e-7, 1e-3, 1.0])
def test_an_update_of_float32_weights_has_float64_accuracy(row, inner, size):
    A_0, B_0 = (matrix(seed, row, inner, dtype=torch.float32) for seed in (0, 1))
    A, B = (W * (1 + size * matrix(2, row, inner, dtype=torch.float32)) for W in (A_0, B_0))
    wanted = exact_update_singular_values(A, B, A_0, B_0)[: 2 * inner]
    found = product_singular_values(*update_factors(A, B, A_0, B_0))[: len(wanted)]
    assert wanted[0] > 0
    assert ((found - wanted).abs() <= 1e-10 * wanted[0]).all()


def test_the_gaussian_null_has_the_norm_of_each_matrix_and_no_structure():
    W = matrix(0, 2, 3, 40, 1) @ matrix(1, 2, 3, 1, 30) * matrix(2, 2, 3, 1, 1)
    W[1, 2] = 0
    G = gaussian_of_equal_norm(W, torch.Generator().manual_seed(3))
    norm = torch.linalg.matrix_norm
    torch.testing.assert_close(norm(G), norm(W), rtol=1e-12, atol=0)
    sigma = singular_values(G)[0]
    assert (sigma.square().sum(-1) > 5 * sigma[..., 0] ** 2).all()
    assert torch.equal(G, gaussian_of_equal_norm(W, torch.Generator().manual_seed(3)))


@pytest.mark.parametrize(
    ("rows", "cols", "inner"), [(40, 30, 5), (12, 40, 6), (9, 9, 4), (8, 8, 8), (5, 7, 9)]
)
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_the_update_along_a_run_has_the_singular_values_of_the_dense_difference(
    rows, cols, inner, size
):
    source = torch.Generator().manual_seed(rows + cols)
    A_0, B_0 = (
        torch.randn(2, 3, n, inner, generator=source, dtype=torch.float64) for n in (rows, cols)
    )
    A, B = (
        W + size * torch.randn(W.shape, generator=source, dtype=torch.float64) for W in (A_0, B_0)
    )
    fast = product_update_singular_values(A, B, initial_factor(A_0), initial_factor(B_0))
    dense = torch.linalg.svdvals((A - A_0) @ B.mT + A_0 @ (B - B_0).mT)
    n = min(fast.shape[-1], dense.shape[-1])
    assert ((fast[..., :n] - dense[..., :n]).abs() <= 1e-10 * dense[..., :1]).all()
    assert (fast[..., n:].abs() <= 1e-10 * dense[..., :1]).all()


def test_an_update_within_the_initial_span_or_none_is_exact():
    source = torch.Generator().manual_seed(0)
    A_0, B_0 = (torch.randn(30, 4, generator=source, dtype=torch.float64) for _ in range(2))
    starts = initial_factor(A_0), initial_factor(B_0)
    assert product_update_singular_values(A_0, B_0, *starts).abs().max() == 0
    inside = A_0 + A_0 @ torch.randn(4, 4, generator=source, dtype=torch.float64)
    dense = torch.linalg.svdvals((inside - A_0) @ B_0.mT)
    fast = product_update_singular_values(inside, B_0, *starts)
    assert ((fast - dense[:8]).abs() <= 1e-10 * dense[0]).all()
