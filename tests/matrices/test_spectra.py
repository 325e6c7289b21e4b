"""The fast singular values are those of the dense product, to the last digits; the null has no
structure.
"""

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=150)
@given(
    st.integers(1, 24),
    st.integers(1, 24),
    st.integers(1, 24),
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(0, 24),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_singular_values_of_a_product_are_the_dense_ones(row, col, inner, batch, rank, dtype):
    A, B = matrix(0, *batch, row, inner), matrix(1, *batch, col, inner)
    A[..., rank:] = 0  # rank-deficient where rank < inner
    A, B = A.to(dtype), B.to(dtype)
    assert_close(product_singular_values(A, B), dense(A, B))


@pytest.mark.parametrize(
    ("row", "col", "inner"),
    [
        (64, 64, 8),
        (64, 9, 8),
        (9, 64, 8),
        (8, 64, 8),
        (7, 64, 8),
        (64, 7, 8),
        (3, 3, 8),
        (64, 64, 64),
        (1, 1, 1),
    ],
)
def test_tall_wide_and_square_factors_have_the_dense_singular_values(row, col, inner):
    A, B = matrix(0, 2, 3, row, inner), matrix(1, 2, 3, col, inner)
    assert_close(product_singular_values(A, B), dense(A, B))


def test_dependent_columns_and_zero_have_zero_singular_values():
    A, B = matrix(0, 20, 6), matrix(1, 15, 6)
    A[:, 3:] = A[:, :3]
    assert_close(product_singular_values(A, B), dense(A, B))
    sigma = product_singular_values(A, B)
    assert (sigma > 1e-12 * sigma[0]).sum() == 3
    assert torch.equal(product_singular_values(0 * A, B), torch.zeros(6, dtype=torch.float64))


def test_singular_values_are_taken_in_float64():
    W = matrix(0, 3, 5, 4, dtype=torch.float32)
    assert_close(
        singular_values(W), torch.from_numpy(np.linalg.svd(W.double().numpy(), compute_uv=False))
    )


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_update_factors_make_the_difference_of_the_products(batch):
    A, A_0 = matrix(0, *batch, 9, 3), matrix(1, *batch, 9, 3)
    B, B_0 = matrix(2, *batch, 7, 3), matrix(3, *batch, 7, 3)
    left, right = update_factors(A, B, A_0, B_0)
    assert left.shape == (*batch, 9, 6)
    torch.testing.assert_close(left @ right.mT, A @ B.mT - A_0 @ B_0.mT, rtol=1e-13, atol=1e-13)


def exact_update_singular_values(A, B, A_0, B_0):
    """Of A Bᵀ - A₀ B₀ᵀ, in fifty digits."""
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


def test_a_tiny_update_is_lost_where_products_are_taken_in_float32():
    A_0, B_0 = (matrix(seed, 8, 2, dtype=torch.float32) for seed in (0, 1))
    A, B = (W * (1 + 3e-7 * matrix(2, 8, 2, dtype=torch.float32)) for W in (A_0, B_0))
    wanted = exact_update_singular_values(A, B, A_0, B_0)
    careless = torch.linalg.svdvals(A @ B.T - A_0 @ B_0.T)
    assert (careless - wanted).abs().max() > 1e-3 * wanted[0]


def test_the_gaussian_null_has_the_norm_of_each_matrix_and_no_structure():
    W = matrix(0, 2, 3, 40, 1) @ matrix(1, 2, 3, 1, 30) * matrix(2, 2, 3, 1, 1)
    W[1, 2] = 0
    G = gaussian_of_equal_norm(W, torch.Generator().manual_seed(3))
    norm = torch.linalg.matrix_norm
    torch.testing.assert_close(norm(G), norm(W), rtol=1e-12, atol=0)
    moved = W[..., 0, 0] != 0
    shares = [
        sigma / sigma[..., :1] for sigma in (singular_values(W)[moved], singular_values(G)[moved])
    ]
    assert (shares[0].square().sum(-1) < 1.001).all()
    assert (shares[1].square().sum(-1) > 5).all()
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
