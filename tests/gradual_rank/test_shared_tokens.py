"""Heads side by side on the same tokens are the head of full matrices, one after another."""

import pytest
import torch

from lib.gradual_rank.full_heads import FullHead
from lib.gradual_rank.shared_tokens import (
    SharedTokensHead,
    named,
    products_of_ranks,
    side_by_side,
    spectra,
)

NAMES = ("W_K", "W_Q", "W_V", "W_O")


@pytest.fixture
def case():
    """Five trainings on each of two seeds' seven sequences of four tokens in R³: a head, its data,
    and weights.
    """
    g = torch.Generator().manual_seed(0)
    X = torch.randn(2, 7, 4, 3, generator=g, dtype=torch.float64)
    Y = torch.randn(2, 5, 7, 4, 3, generator=g, dtype=torch.float64)
    W = dict(zip(NAMES, torch.randn(4, 2, 5, 3, 3, generator=g, dtype=torch.float64), strict=True))
    return X, Y, W


@pytest.mark.parametrize("together", [1, 1 << 16])
@pytest.mark.parametrize("size", [1.0, 1e-6, 40.0])
def test_losses_and_slopes_are_those_of_each_training_alone(monkeypatch, case, together, size):
    """Logits of 40² times a few have no exponential in float64; there keys have slopes of rounding
    alone.
    """
    monkeypatch.setattr("lib.gradual_rank.shared_tokens.BLOCK", together)
    X, Y, W = case
    W = {name: size * w for name, w in W.items()}
    loss, slopes = SharedTokensHead(X, Y).loss_and_slopes(
        side_by_side(*(W[name] for name in NAMES))
    )
    found = named(slopes)
    assert torch.isfinite(slopes["factors"]).all()
    for k in range(5):
        own = {name: w[:, k] for name, w in W.items()}
        one, wanted = FullHead(X, Y[:, k]).loss_and_slopes(own)
        torch.testing.assert_close(loss[:, k], one, rtol=1e-12, atol=0)
        for name, slope in wanted.items():
            most = max(
                float(one.abs().max()) for one in (slope, *(wanted.values() if size > 1 else ()))
            )
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


def test_from_almost_nothing_the_values_grow_as_the_slope_at_zero_says(case):
    """Keys of zero leave uniform attention, and the values follow their slope alone while they are
    tiny.
    """
    X, Y, _ = case
    head, rate, n_steps = SharedTokensHead(X, Y), 0.05, 40
    growth = head.growth_at_zero(rate)
    W_VO = torch.zeros(2, 5, 3, 3, dtype=torch.float64)
    U, sigma, Vh = torch.linalg.svd(head.loss_and_gradients(W_VO, W_VO)[2])
    torch.testing.assert_close(torch.exp(rate * growth), 1 + rate * sigma[..., 0])
    u, v = U[..., 0], Vh[..., 0, :]
    P, Q = (
        1e-9 * u[..., None] * torch.eye(3)[0],
        1e-9 * v[..., None] * torch.eye(3)[0],
    )  # along the leading pair
    for _ in range(n_steps):
        slopes = head.loss_and_slopes(side_by_side(0 * P, 0 * Q, P, Q))[1]["factors"]
        P, Q = P + rate * slopes[0, 1], Q + rate * slopes[1, 1]
    size = torch.linalg.svdvals(P)[..., 0] / 1e-9
    torch.testing.assert_close(torch.log(size) / (rate * n_steps), growth, rtol=1e-6, atol=0)


def test_products_of_some_ranks_have_them_and_one_norm_on_average():
    g = torch.Generator().manual_seed(1)
    factors = torch.randn(2, 2, 500, 6, 6, generator=g, dtype=torch.float64)
    whole, two = products_of_ranks(factors, [6, 2])
    P, Q = factors[:, 1, 3]
    torch.testing.assert_close(whole[1, 3], P @ Q.T / 6)
    torch.testing.assert_close(
        two[1, 3], (torch.outer(P[:, 0], Q[:, 0]) + torch.outer(P[:, 1], Q[:, 1])) / 12**0.5
    )
    for W, rank in ((whole, 6), (two, 2)):
        assert (torch.linalg.matrix_rank(W) == rank).all()
        assert float(W.square().mean()) == pytest.approx(1 / 6, rel=0.05)
