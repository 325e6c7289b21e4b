"""The head with full matrices is equation (1), its gradients are autograd's, and its first rise is
that of its flow.
"""

import math

import pytest
import torch
from scipy.integrate import solve_ivp

from lib.gradual_rank.diagonal_heads import diagonal_head
from lib.gradual_rank.full_heads import FullHead, first_rise


@pytest.fixture
def case():
    """Two seeds of seven sequences of four tokens in R³, targets, and a point."""
    g = torch.Generator().manual_seed(0)
    X, Y = torch.randn(2, 2, 7, 4, 3, generator=g, dtype=torch.float64)
    W_KQ, W_VO = torch.randn(2, 2, 3, 3, generator=g, dtype=torch.float64)
    return FullHead(X, Y), W_KQ, W_VO


def test_the_output_is_the_formula_token_by_token(case):
    head, W_KQ, W_VO = case
    found = head.output(W_KQ, W_VO)
    for seed in range(2):
        for sample in range(7):
            X = head.X[seed, sample]
            wanted = torch.softmax(X @ W_KQ[seed] @ X.T, -1) @ X @ W_VO[seed]
            torch.testing.assert_close(found[seed, sample], wanted, rtol=1e-12, atol=1e-12)


def test_with_diagonal_matrices_it_is_the_diagonal_head(case):
    head, W_KQ, W_VO = case
    a, b = W_KQ.diagonal(dim1=-2, dim2=-1), W_VO.diagonal(dim1=-2, dim2=-1)
    found = head.output(torch.diag_embed(a), torch.diag_embed(b))
    torch.testing.assert_close(
        found, diagonal_head(head.X, torch.cat([a, b], -1)), rtol=1e-12, atol=1e-12
    )


def test_the_gradients_are_those_of_autograd(case):
    head, W_KQ, W_VO = (case[0], *(W.requires_grad_() for W in case[1:]))
    value = (head.output(W_KQ, W_VO) - head.Y).square().mean((-3, -2, -1))
    wanted = torch.autograd.grad(value.sum(), (W_KQ, W_VO))
    loss, *found = head.loss_and_gradients(W_KQ.detach(), W_VO.detach())
    torch.testing.assert_close(loss, value.detach(), rtol=1e-12, atol=0)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(-ours, theirs, rtol=1e-9, atol=1e-14)


def test_the_slopes_of_the_four_matrices_are_those_of_autograd(case):
    head, g = case[0], torch.Generator().manual_seed(4)
    drawn = torch.randn(4, 2, 3, 3, generator=g, dtype=torch.float64)
    W = {
        name: w.requires_grad_()
        for name, w in zip(("W_K", "W_Q", "W_V", "W_O"), drawn, strict=True)
    }
    value = (
        (head.output(W["W_K"] @ W["W_Q"].mT, W["W_V"] @ W["W_O"].mT) - head.Y)
        .square()
        .mean((-3, -2, -1))
    )
    wanted = torch.autograd.grad(value.sum(), list(W.values()))
    loss, found = head.loss_and_slopes({name: w.detach() for name, w in W.items()})
    torch.testing.assert_close(loss, value.detach(), rtol=1e-12, atol=0)
    for name, theirs in zip(W, wanted, strict=True):
        torch.testing.assert_close(-found[name], theirs, rtol=1e-9, atol=1e-14)


def test_heads_that_do_not_fit_together_are_computed_one_after_another(monkeypatch, case):
    head, W_KQ, W_VO = case
    together = head.loss_and_gradients(W_KQ, W_VO)
    monkeypatch.setattr("lib.gradual_rank.full_heads.BLOCK", 1)
    for one, other in zip(together, head.loss_and_gradients(W_KQ, W_VO), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-15)


def test_at_zero_the_keys_and_queries_have_no_gradient(case):
    head, zero = case[0], torch.zeros(2, 3, 3, dtype=torch.float64)
    _, g_KQ, G = head.loss_and_gradients(zero, zero)
    assert float(g_KQ.abs().max()) == 0
    assert float(G.abs().min()) > 0


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
    limit, finite, stepped = first_rise(G, W_V, W_O, log_scale, 0.05, 0.01)
    V, O = flow_to(G, *scaled, float(finite))  # noqa: E741
    assert float(torch.linalg.svdvals(V @ O.T)[0]) == pytest.approx(0.05, rel=1e-4)
    assert float(limit) == pytest.approx(-log_scale, rel=1e-12)
    assert float(stepped / finite) == pytest.approx(0.01 / math.log1p(0.01), rel=1e-9)
    assert abs(float(limit / finite) - 1) < 0.15


def test_descent_on_the_head_rises_when_the_formula_for_steps_says(case):
    head = case[0]
    zero = torch.zeros(2, 3, 3, dtype=torch.float64)
    G = head.loss_and_gradients(zero, zero)[2]
    g = torch.Generator().manual_seed(2)
    start = dict(
        zip("KQVO", torch.randn(4, 2, 3, 3, generator=g, dtype=torch.float64), strict=True)
    )
    log_scale, rate, threshold = -6 * math.log(10), 0.5, 1e-4
    stepped = first_rise(G, start["V"], start["O"], log_scale, threshold, rate)[2]
    W = {name: math.exp(log_scale) * w for name, w in start.items()}
    risen = torch.zeros(2)
    for step in range(2000):
        largest = torch.linalg.svdvals(W["V"] @ W["O"].mT)[:, 0]
        risen = torch.where((risen == 0) & (largest >= threshold), step * rate, risen)
        if bool((risen > 0).all()):
            break
        _, g_KQ, g_VO = head.loss_and_gradients(W["K"] @ W["Q"].mT, W["V"] @ W["O"].mT)
        W = {
            "K": W["K"] + rate * g_KQ @ W["Q"],
            "Q": W["Q"] + rate * g_KQ.mT @ W["K"],
            "V": W["V"] + rate * g_VO @ W["O"],
            "O": W["O"] + rate * g_VO.mT @ W["V"],
        }
    torch.testing.assert_close(risen.double(), stepped, rtol=0.02, atol=rate)
