"""Heads with normalised queries and keys: slopes, what no scale changes, and their flow."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from lib.files.files import InputError
from lib.gradual_rank.normalized_heads import Heads, Weights, flow, unit_tokens
from lib.gradual_rank.turn_looks import look

N_HEADS, N, T, D = 2, 5, 4, 3
GAIN = 1.7


def made(seed=0, scale=1.0):
    """Tokens, targets, and weights of two heads."""
    draw = np.random.default_rng(seed)
    X, Y = draw.normal(size=(2, N_HEADS, N, T, D))
    factors = scale * draw.normal(size=(4, N_HEADS, D, D))
    return X, Y, Weights(factors, np.array([GAIN, 0.6 * GAIN]))


def losses(X, Y, factors, gain, normalized, linear=False):
    """The losses by torch, from the formula."""
    X, Y = torch.from_numpy(X), torch.from_numpy(Y)
    W_K, W_Q, W_V, W_O = factors[:, :, None]
    K, Q = X @ W_K, X @ W_Q
    logits = K @ Q.mT
    if normalized:
        lengths = K.norm(dim=-1)[..., :, None] * Q.norm(dim=-1)[..., None, :]
        logits = gain[:, None, None, None] * logits / lengths
    Z = torch.softmax(logits, -1) @ X @ W_V @ W_O.mT
    off = Y.square() - 2 * Y * Z if linear else (Z - Y).square()
    return off.mean((1, 2, 3))


def by_autograd(X, Y, W, normalized, linear=False):
    factors = torch.tensor(W.factors, requires_grad=True)
    gain = torch.tensor(W.gain, requires_grad=True)
    value = losses(X, Y, factors, gain, normalized, linear)
    slopes = torch.autograd.grad(-value.sum(), (factors, gain), allow_unused=True)
    return value.detach().numpy(), slopes


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_losses_and_slopes_are_those_of_autograd(normalized, linear):
    X, Y, W = made()
    heads = Heads(X, Y, normalized, 10.0, learned=normalized, linear=linear)
    loss, slopes = heads.loss_and_slopes(W)
    wanted, (factors, gain) = by_autograd(X, Y, W, normalized, linear)
    np.testing.assert_allclose(loss, wanted, rtol=1e-12)
    np.testing.assert_allclose(slopes.factors, factors.numpy(), rtol=1e-9, atol=1e-13)
    if normalized:
        np.testing.assert_allclose(slopes.gain, gain.numpy(), rtol=1e-10)
    else:
        assert gain is None
        assert not slopes.gain.any()


def test_a_gain_that_is_not_learned_does_not_move():
    X, Y, W = made()
    _, slopes = Heads(X, Y, True, 10.0).loss_and_slopes(W)
    assert not slopes.gain.any()


def test_the_loss_has_degree_zero_in_keys_and_in_queries():
    X, Y, W = made()
    heads = Heads(X, Y, True, 10.0)
    sizes = np.array([1e-3, 20.0, 1.0, 1.0])[:, None, None, None]
    loss, slopes = heads.loss_and_slopes(W)
    scaled_loss, scaled = heads.loss_and_slopes(Weights(sizes * W.factors, W.gain))
    np.testing.assert_allclose(scaled_loss, loss, rtol=1e-12)
    np.testing.assert_allclose(scaled.factors * sizes, slopes.factors, rtol=1e-9, atol=1e-14)
    plain = Heads(X, Y, False, 10.0)
    changed, _ = plain.loss_and_slopes(Weights(sizes * W.factors, W.gain))
    assert np.abs(changed / plain.loss_and_slopes(W)[0] - 1).min() > 1e-3


def test_slopes_are_orthogonal_to_keys_and_queries_so_that_the_flow_keeps_their_norms():
    X, Y, W = made()
    sizes = {}
    for normalized in (True, False):
        _, slopes = Heads(X, Y, normalized, 10.0).loss_and_slopes(W)
        inner = (slopes.factors * W.factors).sum((-2, -1))
        sizes[normalized] = np.abs(inner[:2]).max()
    assert sizes[True] < 1e-15
    assert sizes[False] > 1e-2


def test_a_key_that_is_zero_has_no_direction():
    X, Y, W = made()
    X[1, 2, 0] = 0
    with pytest.raises(InputError, match="head 1: wanted keys and queries that have a direction"):
        Heads(X, Y, True, 10.0).loss_and_slopes(W)
    Heads(X, Y, False, 10.0).loss_and_slopes(W)


def test_the_rate_at_which_values_grow_is_the_largest_singular_value_of_the_slope_at_zero():
    X, Y, W = made()
    found = Heads(X, Y, True, 10.0).growth(W)
    zero = torch.zeros(N_HEADS, D, D, dtype=torch.float64, requires_grad=True)
    eye = torch.eye(D, dtype=torch.float64).expand(N_HEADS, D, D)
    factors = torch.stack([*torch.from_numpy(W.factors[:2]), zero, eye])
    value = losses(X, Y, factors, torch.from_numpy(W.gain), True)
    (slope,) = torch.autograd.grad(value.sum(), zero)
    np.testing.assert_allclose(found, torch.linalg.matrix_norm(slope, 2).numpy(), rtol=1e-10)


def followed(heads, start, longest, end):
    """The last moment of each head before the time at which it is over."""
    last = {}
    for moment in flow(heads, start, longest, lambda now: now.times >= end):
        for place, head in enumerate(moment.heads):
            last[head] = (moment.times[place], moment.weights.factors[:, place])
    return [last[head] for head in sorted(last)]


@pytest.mark.parametrize("normalized", [False, True])
def test_the_flow_is_that_of_scipy_with_an_error_of_the_square_of_steps(normalized):
    X, Y, W = made(scale=0.5)
    heads = Heads(X, Y, normalized, 1e6)
    errors = []
    for longest in (0.02, 0.01):
        worst = 0.0
        for head, (time, found) in enumerate(followed(heads, W, longest, 1.0)):
            own = heads.only(np.array([head]))
            gain = W.gain[[head]]

            def slope(_, y, own=own, gain=gain):
                moved = own.velocity(Weights(y.reshape(4, 1, D, D), gain))
                return moved.factors.ravel()

            exact = solve_ivp(slope, (0, time), W.factors[:, head].ravel(), rtol=1e-9, atol=1e-11)
            worst = max(worst, np.abs(exact.y[:, -1] - found.ravel()).max())
        errors.append(worst)
    assert errors[0] < 3e-3
    assert errors[1] < 0.4 * errors[0]


def test_no_scale_occurs_in_the_limit():
    """A start that is a thousandth has the same times, steps and turns."""
    X, Y, W = made()
    heads = Heads(X, Y, True, 10.0, linear=True)
    ends = [followed(heads, Weights(scale * W.factors, W.gain), 0.02, 3.0) for scale in (1.0, 1e-3)]
    for (time, factors), (small_time, small) in zip(*ends, strict=True):
        assert small_time == pytest.approx(time, rel=1e-9)
        np.testing.assert_allclose(1e3 * small, factors, rtol=1e-6, atol=1e-9)


def test_keys_are_slowed_where_values_are_large_and_keep_their_direction():
    X, Y, W = made()
    sizes = np.array([0.01, 0.01, 1.0, 1.0])[:, None, None, None]
    W = Weights(sizes * W.factors, W.gain)
    ratio = Heads(X, Y, True, 10.0).ratio(W)
    W_K, W_Q, W_V, W_O = W.factors
    by_torch = np.linalg.norm(W_V @ W_O.swapaxes(-1, -2), axis=(-2, -1))
    by_torch /= np.linalg.norm(W_K, axis=(-2, -1)) * np.linalg.norm(W_Q, axis=(-2, -1))
    np.testing.assert_allclose(ratio, by_torch)
    assert ratio.min() > 100
    fast = Heads(X, Y, True, 1e9).velocity(W).factors
    slow = Heads(X, Y, True, 10.0).velocity(W).factors
    np.testing.assert_allclose(slow[:2], fast[:2] * (10 / ratio)[:, None, None])
    np.testing.assert_array_equal(slow[2:], fast[2:])
    plain = Heads(X, Y, False, 10.0)
    np.testing.assert_array_equal(plain.velocity(W).factors, plain.loss_and_slopes(W)[1].factors)


def test_a_look_says_how_far_keys_are_from_their_start():
    _, _, start = made()
    turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    factors = start.factors.copy()
    factors[0] = 2 * start.factors[0] @ turn
    seen = look(Weights(factors, start.gain), start)
    for head in range(N_HEADS):
        K, Q, V, out = start.factors[:, head]
        update = 2 * K @ turn @ Q.T - K @ Q.T
        values = np.linalg.svd(update, compute_uv=False)
        cosine = np.trace(K.T @ K @ turn) / np.linalg.norm(K) ** 2
        assert seen.turned[head] == pytest.approx(np.linalg.norm(update) / np.linalg.norm(K @ Q.T))
        assert seen.angle[head] == pytest.approx(np.degrees(np.arccos(cosine)))
        assert seen.sigma[head] == pytest.approx(np.linalg.norm(V @ out.T, 2))
        assert seen.stable_rank[head] == pytest.approx((values**2).sum() / values[0] ** 2)
        assert seen.drift[head] == pytest.approx(1)


def test_tokens_of_pre_norm_have_a_mean_square_of_one():
    X, _, _ = made()
    Z = unit_tokens(X)
    np.testing.assert_allclose(np.square(Z).mean(-1), 1)
    np.testing.assert_allclose(Z * np.linalg.norm(X, axis=-1, keepdims=True), X * D**0.5)
