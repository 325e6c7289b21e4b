"""Heads side by side on the same tokens are the head of full matrices, one after another."""

import pytest
import torch

from lib.models.full_attention import FullHead
from lib.models.shared_tokens import SharedTokensHead, named, side_by_side, spectra

NAMES = ("W_K", "W_Q", "W_V", "W_O")


@pytest.fixture
def case():
    """Five trainings on each of two seeds' seven sequences of four tokens in R³: a head, its data, and weights."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(2, 7, 4, 3, generator=g, dtype=torch.float64)
    Y = torch.randn(2, 5, 7, 4, 3, generator=g, dtype=torch.float64)
    W = dict(zip(NAMES, torch.randn(4, 2, 5, 3, 3, generator=g, dtype=torch.float64), strict=True))
    return X, Y, W


@pytest.mark.parametrize("together", [1, 1 << 16])
@pytest.mark.parametrize("size", [1.0, 1e-6, 40.0])
def test_losses_and_slopes_are_those_of_each_training_alone(monkeypatch, case, together, size):
    """Logits of 40² times a few have no exponential in float64; there keys have slopes of rounding alone."""
    monkeypatch.setattr("lib.models.shared_tokens.BLOCK", together)
    X, Y, W = case
    W = {name: size * w for name, w in W.items()}
    loss, slopes = SharedTokensHead(X, Y).loss_and_slopes(side_by_side(*(W[name] for name in NAMES)))
    found = named(slopes)
    assert torch.isfinite(slopes["factors"]).all()
    for k in range(5):
        own = {name: w[:, k] for name, w in W.items()}
        one, wanted = FullHead(X, Y[:, k]).loss_and_slopes(own)
        torch.testing.assert_close(loss[:, k], one, rtol=1e-12, atol=0)
        for name, slope in wanted.items():
            most = max(float(one.abs().max()) for one in (slope, *(wanted.values() if size > 1 else ())))
            torch.testing.assert_close(found[name][:, k], slope, rtol=1e-8, atol=1e-11 * most)


def test_what_is_not_finite_goes_on_as_such(case):
    X, Y, W = case
    W["W_K"][0, 0] = torch.inf
    loss, _ = SharedTokensHead(X, Y).loss_and_slopes(side_by_side(*(W[name] for name in NAMES)))
    assert not torch.isfinite(loss[0, 0])
    assert torch.isfinite(loss[1]).all()


def test_factors_have_their_names_and_their_products_spectra(case):
    W = case[2]
    factors = side_by_side(*(W[name] for name in NAMES))
    for name, w in named(factors).items():
        assert torch.equal(w, W[name])
    keys, values = spectra(factors)
    for found, (a, b) in ((keys, ("W_K", "W_Q")), (values, ("W_V", "W_O"))):
        wanted = torch.linalg.svdvals(W[a] @ W[b].mT)
        torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-10, atol=1e-12)
