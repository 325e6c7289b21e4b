"""The head with full matrices is equation (1), its gradients are autograd's, and its first rise is
that of its flow.
"""

import math

import pytest
import torch

from lib.gradual_rank.full_heads import (
    SharedTokensHead,
    first_rise,
    spectra,
)

NAMES = ("W_K", "W_Q", "W_V", "W_O")


def factors(W_K, W_Q, W_V, W_O):
    return {"factors": torch.stack([torch.stack([W_K, W_V]), torch.stack([W_Q, W_O])])}


@pytest.fixture
def case():
    """Five trainings on each of two seeds' seven sequences of four tokens in R³: data, weights."""
    g = torch.Generator().manual_seed(0)
    X = torch.randn(2, 7, 4, 3, generator=g, dtype=torch.float64)
    Y = torch.randn(2, 5, 7, 4, 3, generator=g, dtype=torch.float64)
    W = dict(zip(NAMES, torch.randn(4, 2, 5, 3, 3, generator=g, dtype=torch.float64), strict=True))
    return X, Y, W


def test_what_is_not_finite_goes_on_as_such(case):
    X, Y, W = case
    W["W_K"][0, 0] = torch.inf
    loss, _ = SharedTokensHead(X, Y).loss_and_slopes(factors(*W.values()))
    assert not torch.isfinite(loss[0, 0])
    assert torch.isfinite(loss[1]).all()


def test_at_zero_the_keys_and_queries_have_no_gradient(case):
    X, Y, _ = case
    zero = torch.zeros(2, 5, 3, 3, dtype=torch.float64)
    _, g_KQ, G = SharedTokensHead(X, Y).loss_and_gradients(zero, zero)
    assert float(g_KQ.abs().max()) < 1e-15
    assert float(G.abs().min()) > 1e-6


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
