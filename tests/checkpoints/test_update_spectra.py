import numpy as np
import pytest
import torch

from lib.checkpoints import update_spectra
from lib.checkpoints.update_spectra import (
    chosen_method,
    decomposed,
    leading_triplets,
    rounding_variance,
    squared_norm,
)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def small_limit(monkeypatch):
    """Large matrices begin at 32, and blocks have 640 entries."""
    monkeypatch.setattr(update_spectra, "LARGEST_DIRECT", 16)
    monkeypatch.setattr(update_spectra, "LARGEST_FULL", 32)
    monkeypatch.setattr(update_spectra, "BLOCK", 640)


@pytest.mark.parametrize("shape", [(60, 40), (40, 60), (50, 50)])
@pytest.mark.parametrize("method", ["full", "gram"])
def test_all_singular_values_are_numpys(small_limit, shape, method):
    A = torch.randn(shape, generator=gen(), dtype=torch.float64)
    U, sigma, Vh = np.linalg.svd(A.numpy(), full_matrices=False)
    for kept in (0, 7):
        found, triplets = decomposed(A, method, 1, gen(), kept)
        np.testing.assert_allclose(found, sigma, rtol=1e-9)
        assert triplets.sigma.shape == (kept,)
        cut = (U[:, :kept] * sigma[:kept]) @ Vh[:kept]
        np.testing.assert_allclose(triplets.cut(kept), cut, atol=1e-5)


def test_two_passes_leave_a_tail_near_the_best(small_limit, monkeypatch):
    U, V = (torch.linalg.qr(torch.randn(n, 300, generator=gen()).double()).Q for n in (400, 300))
    sigma = torch.arange(1, 301).double() ** -0.7
    A = (U * sigma) @ V.mT
    found = leading_triplets(A, 64, gen())
    tail = squared_norm(A) - float(found.sigma.square().sum())
    assert 1 - 1e-9 <= tail / float(sigma[64:].square().sum()) <= 1.02
    assert float(found.sigma[0]) == pytest.approx(float(sigma[0]), rel=1e-6)
    monkeypatch.setattr(update_spectra, "PASSES", 0)
    none = leading_triplets(A, 64, gen())
    assert squared_norm(A) - float(none.sigma.square().sum()) > 1.02 * tail, "what passes are for"


@pytest.mark.parametrize(
    ("shape", "wanted", "method"),
    [
        ((9000, 9000), "auto", "randomised"),
        ((9000, 2), "auto", "full"),
        ((9000, 1000), "auto", "gram"),
        ((8, 8), "gram", "gram"),
    ],
)
def test_the_method_of_a_shape(shape, wanted, method):
    assert chosen_method(shape, wanted) == method


@pytest.mark.parametrize(
    ("dtype", "w", "spacing"),
    [
        (torch.bfloat16, 1.9921875, 2**-7),
        (torch.float16, 1.0, 2**-10),
        (torch.float32, -3.0, 2**-22),
        (torch.bfloat16, 0.0, 0.0),
    ],
)
def test_the_spacing_of_stored_weights(dtype, w, spacing):
    W = torch.tensor([[w]], dtype=dtype)
    assert float(rounding_variance(W)) == pytest.approx(spacing**2 / 12)
