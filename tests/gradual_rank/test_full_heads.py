"""The head with full matrices is equation (1), its gradients are autograd's, and its first rise is
that of its flow.
"""

import math

import pytest
import torch
from scipy.integrate import solve_ivp

from lib.gradual_rank.diagonal_heads import diagonal_head
from lib.gradual_rank.full_heads import (
    FullHead,
    SharedTokensHead,
    first_rise,
    gaussian_factors,
    named,
    output,
    products_of_ranks,
    spectra,
)
from lib.training.devices import generator

NAMES = ("W_K", "W_Q", "W_V", "W_O")


def factors(W_K, W_Q, W_V, W_O):
    return {"factors": torch.stack([torch.stack([W_K, W_V]), torch.stack([W_Q, W_O])])}


def loss_of(X, Y, W):
    """The mean squared error of every training, by equation (1)."""
    A = torch.softmax(X[:, None] @ (W["W_K"] @ W["W_Q"].mT)[:, :, None] @ X[:, None].mT, -1)
    found = A @ X[:, None] @ (W["W_V"] @ W["W_O"].mT)[:, :, None]
    return (found - Y).square().mean((-3, -2, -1))


@pytest.fixture
def case():
    """Five trainings on each of two seeds' seven sequences of four tokens in R³: data, weights."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(2, 7, 4, 3, generator=g, dtype=torch.float64)
    Y = torch.randn(2, 5, 7, 4, 3, generator=g, dtype=torch.float64)
    W = dict(zip(NAMES, torch.randn(4, 2, 5, 3, 3, generator=g, dtype=torch.float64), strict=True))
    return X, Y, W


def test_the_output_is_the_formula_token_by_token(case):
    X, _, W = case
    W_KQ, W_VO = W["W_K"][:, 0], W["W_V"][:, 0]
    found = output(X, W_KQ, W_VO)
    for seed in range(2):
        for sample in range(7):
            one = X[seed, sample]
            wanted = torch.softmax(one @ W_KQ[seed] @ one.T, -1) @ one @ W_VO[seed]
            torch.testing.assert_close(found[seed, sample], wanted, rtol=1e-12, atol=1e-12)


def test_with_diagonal_matrices_it_is_the_diagonal_head(case):
    X, _, W = case
    a, b = (W[name][:, 0].diagonal(dim1=-2, dim2=-1) for name in ("W_K", "W_V"))
    found = output(X, torch.diag_embed(a), torch.diag_embed(b))
    torch.testing.assert_close(
        found, diagonal_head(X, torch.cat([a, b], -1)), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("together", [1, 1 << 16])
@pytest.mark.parametrize("size", [1.0, 1e-6, 40.0])
def test_losses_and_slopes_are_those_of_autograd(monkeypatch, case, together, size):
    """Logits of 40² times a few have no exponential in float64; there keys have slopes of rounding
    alone.
    """
    monkeypatch.setattr("lib.gradual_rank.full_heads.BLOCK", together)
    X, Y, W = case
    W = {name: (size * w).requires_grad_() for name, w in W.items()}
    value = loss_of(X, Y, W)
    wanted = torch.autograd.grad(value.sum(), list(W.values()))
    loss, slopes = SharedTokensHead(X, Y).loss_and_slopes(
        factors(*(w.detach() for w in W.values()))
    )
    found = named(slopes["factors"])
    torch.testing.assert_close(loss, value.detach(), rtol=1e-12, atol=0)
    most = max(float(slope.abs().max()) for slope in wanted)
    for name, slope in zip(W, wanted, strict=True):
        least = 1e-11 * (most if size > 1 else float(slope.abs().max()))
        torch.testing.assert_close(-found[name], slope, rtol=1e-8, atol=least)


@pytest.mark.parametrize("together", [1, 1 << 17])
def test_a_training_on_tokens_of_its_own_is_one_of_those_side_by_side(monkeypatch, case, together):
    monkeypatch.setattr("lib.gradual_rank.full_heads.BLOCK_OF_HEADS", together)
    X, Y, W = case
    products = W["W_K"] @ W["W_Q"].mT, W["W_V"] @ W["W_O"].mT
    wanted = SharedTokensHead(X, Y).loss_and_gradients(*products)
    found = FullHead(X, Y[:, 3]).loss_and_gradients(*(one[:, 3] for one in products))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other[:, 3], rtol=1e-9, atol=1e-14)


def test_what_is_not_finite_goes_on_as_such(case):
    X, Y, W = case
    W["W_K"][0, 0] = torch.inf
    loss, _ = SharedTokensHead(X, Y).loss_and_slopes(factors(*W.values()))
    assert not torch.isfinite(loss[0, 0])
    assert torch.isfinite(loss[1]).all()


def test_factors_have_their_names_and_their_products_spectra(case):
    W = case[2]
    both = factors(*W.values())["factors"]
    for name, w in named(both).items():
        assert torch.equal(w, W[name])
    keys, values = spectra(both)
    for found, (a, b) in ((keys, ("W_K", "W_Q")), (values, ("W_V", "W_O"))):
        wanted = torch.linalg.svdvals(W[a] @ W[b].mT)
        torch.testing.assert_close(torch.from_numpy(found), wanted, rtol=1e-10, atol=1e-12)


def test_factors_are_drawn_by_seed_the_keys_first():
    found = named(gaussian_factors(3, [7, 2], "start"))
    for k, seed in enumerate((7, 2)):
        drawn = torch.randn(4, 3, 3, generator=generator(seed, "start"), dtype=torch.float64)
        for name, w in zip(NAMES, drawn, strict=True):
            assert torch.equal(found[name][k], w)


def test_at_zero_the_keys_and_queries_have_no_gradient(case):
    X, Y, _ = case
    zero = torch.zeros(2, 5, 3, 3, dtype=torch.float64)
    _, g_KQ, G = SharedTokensHead(X, Y).loss_and_gradients(zero, zero)
    assert float(g_KQ.abs().max()) < 1e-15
    assert float(G.abs().min()) > 1e-6


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
        slopes = head.loss_and_slopes(factors(0 * P, 0 * Q, P, Q))[1]["factors"]
        P, Q = P + rate * slopes[0, 1], Q + rate * slopes[1, 1]
    size = torch.linalg.svdvals(P)[..., 0] / 1e-9
    torch.testing.assert_close(torch.log(size) / (rate * n_steps), growth, rtol=1e-6, atol=0)


def test_products_of_some_ranks_have_them_and_one_norm_on_average():
    g = torch.Generator().manual_seed(1)
    drawn = torch.randn(2, 2, 500, 6, 6, generator=g, dtype=torch.float64)
    whole, two = products_of_ranks(drawn, [6, 2])
    P, Q = drawn[:, 1, 3]
    torch.testing.assert_close(whole[1, 3], P @ Q.T / 6)
    torch.testing.assert_close(
        two[1, 3], (torch.outer(P[:, 0], Q[:, 0]) + torch.outer(P[:, 1], Q[:, 1])) / 12**0.5
    )
    for W, rank in ((whole, 6), (two, 2)):
        assert (torch.linalg.matrix_rank(W) == rank).all()
        assert float(W.square().mean()) == pytest.approx(1 / 6, rel=0.05)


def flow_to(G, W_V, W_O, time):
    """W_V and W_O of the linear flow near zero."""
    d = len(G)

    def rate(_, w):
        V, O = torch.from_numpy(w).view(2, d, d)  # noqa: E741
        return torch.stack([G @ O, G.T @ V]).flatten().numpy()

    found = solve_ivp(
        rate,
        (0, time),
        torch.stack([W_V, W_O]).flatten().numpy(),
        rtol=1e-10,
        atol=0,
        method="DOP853",
    )
    return torch.from_numpy(found.y[:, -1]).view(2, d, d)


def test_the_first_rise_is_when_the_linear_flow_reaches_the_threshold():
    g = torch.Generator().manual_seed(1)
    W_V, W_O = torch.randn(2, 3, 3, generator=g, dtype=torch.float64)
    U, _ = torch.linalg.qr(torch.randn(3, 3, generator=g, dtype=torch.float64))
    G = U @ torch.diag(torch.tensor([1.0, 0.3, 0.1], dtype=torch.float64))
    log_scale = -12 * math.log(10)
    scaled = (math.exp(log_scale) * W for W in (W_V, W_O))
    limit, finite, stepped = first_rise(G, W_V, W_O, log_scale, 0.05, 0.01).values()
    V, O = flow_to(G, *scaled, float(finite))  # noqa: E741
    assert float(torch.linalg.svdvals(V @ O.T)[0]) == pytest.approx(0.05, rel=1e-4)
    assert float(limit) == pytest.approx(-log_scale, rel=1e-12)
    assert float(stepped / finite) == pytest.approx(0.01 / math.log1p(0.01), rel=1e-9)
    assert abs(float(limit / finite) - 1) < 0.15


def test_descent_on_the_head_rises_when_the_formula_for_steps_says(case):
    X, Y, _ = case
    head = SharedTokensHead(X, Y[:, :1])
    zero = torch.zeros(2, 1, 3, 3, dtype=torch.float64)
    g = torch.Generator().manual_seed(2)
    start = torch.randn(2, 2, 2, 1, 3, 3, generator=g, dtype=torch.float64)
    log_scale, rate, threshold = -6 * math.log(10), 0.5, 1e-4
    G = head.loss_and_gradients(zero, zero)[2]
    stepped = first_rise(G, start[0, 1], start[1, 1], log_scale, threshold, rate)["stepped"]
    W = math.exp(log_scale) * start
    risen = torch.zeros(2)
    for step in range(2000):
        largest = torch.from_numpy(spectra(W)[1, :, 0, 0])
        risen = torch.where((risen == 0) & (largest >= threshold), step * rate, risen)
        if bool((risen > 0).all()):
            break
        W = W + rate * head.loss_and_slopes({"factors": W})[1]["factors"]
    torch.testing.assert_close(risen.double(), stepped[:, 0], rtol=0.02, atol=rate)
