"""Networks with diagonal weights are what equation (1) says, and their derivatives are the
derivatives.
"""

import pytest
import torch

from lib.gradual_rank import diagonal_heads as diagonal_attention
from lib.gradual_rank.diagonal_heads import (
    DiagonalHead,
    DiagonalLoss,
    DiagonalTransformer,
    Quadratic,
    diagonal_head,
    head_matrices,
    same_entry,
)


def draws(seed=0):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    return draw


def head(base=False, n_samples=7):
    draw = draws()
    X, Y = draw(n_samples, 4, 3), draw(n_samples, 4, 3)
    return DiagonalHead(X, Y, draw(6) if base else None)


def quadratic():
    draw = draws(1)
    A = draw(5, 5)
    return Quadratic(A @ A.T, draw(5))


def transformer(common_frame=False):
    draw = draws(2)
    frames = torch.linalg.qr(draw(2, 2, 3, 3)).Q
    if common_frame:
        frames = frames[:, :1].expand(-1, 2, -1, -1)
    X, W_1, W_2 = draw(2, 4, 3), draw(2, 3, 6), draw(2, 6, 3)
    return DiagonalTransformer(X, frames, W_1, W_2, draw(2, 4, 3))


LOSSES = {
    "head": head,
    "head on frozen products": lambda: head(base=True),
    "quadratic": quadratic,
    "transformer": transformer,
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_minus_the_slope_of_the_loss(name):
    loss = LOSSES[name]()
    p, step = draws(3)(loss.size), 1e-5
    steps = step * torch.eye(loss.size, dtype=torch.float64)
    slope = torch.stack([(loss.value(p + h) - loss.value(p - h)) / (2 * step) for h in steps])
    found = loss.gradient(p)
    assert (found + slope).abs().max() < 1e-6 * slope.abs().max()
    assert not found.requires_grad


@pytest.mark.parametrize("name", LOSSES)
def test_the_hessian_is_minus_the_slope_of_the_gradient(name):
    loss = LOSSES[name]()
    p, step = draws(3)(loss.size), 1e-5
    steps = step * torch.eye(loss.size, dtype=torch.float64)
    slope = torch.stack(
        [(loss.gradient(p - h) - loss.gradient(p + h)) / (2 * step) for h in steps], -1
    )
    support = torch.tensor([4, 0, 3])
    assert (loss.hessian(p, support) - slope[:, support]).abs().max() < 1e-6 * slope.abs().max()
    assert loss.hessian(p, torch.tensor([], dtype=torch.int64)).shape == (loss.size, 0)


@pytest.mark.parametrize("support", [[0, 1, 4], [0, 1, 2], [2, 3, 4]])
@pytest.mark.parametrize("name", LOSSES)
def test_a_restricted_loss_is_the_loss_with_the_other_products_zero(name, support):
    loss, support = LOSSES[name](), torch.tensor(support)
    here, q = loss.restricted(support), draws(3)(3)
    p = torch.zeros(loss.size, dtype=torch.float64).index_copy(0, support, q)
    torch.testing.assert_close(here.value(q), loss.value(p), rtol=1e-13, atol=0)
    torch.testing.assert_close(
        here.gradient(q), DiagonalLoss.gradient(loss, p)[support], rtol=1e-12, atol=1e-14
    )
    columns = DiagonalLoss.hessian(loss, p, support[[2, 0]])[support]
    torch.testing.assert_close(
        here.hessian(q, torch.tensor([2, 0])), columns, rtol=1e-11, atol=1e-14
    )


@pytest.mark.parametrize("base", [False, True])
def test_the_closed_forms_of_a_head_are_those_of_automatic_differentiation(base, monkeypatch):
    monkeypatch.setattr(diagonal_attention, "BLOCK", 3 * 4 * 3)  # 7 samples in blocks of 3, 3 and 1
    loss, p, support = head(base), draws(3)(6), torch.tensor([5, 1, 2])
    assert len(loss._blocks) == 3
    torch.testing.assert_close(
        loss.gradient(p), DiagonalLoss.gradient(loss, p), rtol=1e-11, atol=1e-13
    )
    torch.testing.assert_close(
        loss.hessian(p, support), DiagonalLoss.hessian(loss, p, support), rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("logit", [1, 299, 301, 5000])
def test_the_gradient_of_a_head_is_the_same_however_large_its_logits_are(logit):
    """From 300 on, the largest of a row is taken off all before they are exponentiated."""
    loss, p = head(), draws(3)(6)
    p[:3] *= logit / ((loss.X * p[:3]) @ loss.X.mT).abs().max()
    torch.testing.assert_close(
        loss.gradient(p), DiagonalLoss.gradient(loss, p), rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("common_frame", [False, True])
def test_the_gradient_of_a_transformer_is_that_of_automatic_differentiation(common_frame):
    loss, p = transformer(common_frame), draws(3)(2, 24)
    torch.testing.assert_close(
        loss.gradient(p), DiagonalLoss.gradient(loss, p), rtol=1e-11, atol=1e-13
    )


def test_a_diagonal_head_is_equation_1_with_diagonal_matrices():
    draw = draws()
    X, w_K, w_Q, w_V, w_O = draw(5, 4, 3), *draw(4, 3)
    W_K, W_Q, W_V, W_O = (torch.diag(w) for w in (w_K, w_Q, w_V, w_O))
    wanted = torch.softmax(X @ W_K @ W_Q.T @ X.mT, -1) @ X @ W_V @ W_O.T
    p = torch.cat([w_K * w_Q, w_V * w_O])
    torch.testing.assert_close(diagonal_head(X, p), wanted, rtol=1e-12, atol=1e-12)
    assert DiagonalHead(X, wanted).value(p) < 1e-25
    assert DiagonalHead(X, wanted).gradient(p).abs().max() < 1e-12


def test_heads_side_by_side_are_heads_alone():
    draw = draws()
    X, Y, p = draw(2, 5, 4, 3), draw(2, 5, 4, 3), draw(2, 6)
    both = DiagonalHead(X, Y)
    for k in range(2):
        alone = DiagonalHead(X[k], Y[k])
        torch.testing.assert_close(both.value(p)[k], alone.value(p[k]), rtol=1e-13, atol=0)
        torch.testing.assert_close(
            both.gradient(p)[k], alone.gradient(p[k]), rtol=1e-12, atol=1e-14
        )


def test_at_p_0_the_key_query_products_of_a_head_have_no_gradient():
    g = head().gradient(torch.zeros(6, dtype=torch.float64))
    assert (g[:3] == 0).all()
    assert (g[3:] != 0).all()


def test_large_logits_do_not_overflow():
    loss = head()
    p = torch.full((6,), 1e6, dtype=torch.float64)
    assert loss.gradient(p).isfinite().all()
    assert loss.value(p).isfinite()


def test_heads_in_one_frame_are_tied_and_heads_in_frames_of_their_own_are_not():
    p = torch.zeros(24, dtype=torch.float64)
    tied = transformer(common_frame=True).gradient(p).reshape(2, 2, 6)
    torch.testing.assert_close(tied[:, 0], tied[:, 1], rtol=1e-12, atol=1e-15)
    free = transformer().gradient(p).reshape(2, 2, 6)
    assert ((free[:, 0] - free[:, 1])[..., 3:].abs() > 1e-3).all()


def test_a_transformer_without_targets_has_an_output_but_no_loss():
    one = transformer()
    teacher = DiagonalTransformer(one.X, one.frames, one.W_1, one.W_2)
    p = draws(3)(24)
    learner = DiagonalTransformer(one.X, one.frames, one.W_1, one.W_2, teacher.output(p))
    assert learner.value(p) == 0
    with pytest.raises(ValueError, match="wanted the targets"):
        teacher.value(p)


@pytest.mark.parametrize(("share", "n"), [(0.5, 4), (0.01, 1), (1, 7)])
def test_the_loss_on_a_share_of_the_samples_is_that_of_the_first_of_them(share, n):
    whole, p = head(base=True), draws(3)(6)
    first = DiagonalHead(whole.X[:n], whole.Y[:n], whole.base)
    assert torch.equal(whole.on_share(share).value(p), first.value(p))


def test_the_matrices_of_a_head_are_diagonal_halves_of_u_and_v():
    u, v = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[5.0, 6.0, 7.0, 8.0]])
    found = {name: W.tolist() for name, W in head_matrices(u, v).items()}
    assert found == {
        "W_K": [[[1, 0], [0, 2]]],
        "W_Q": [[[5, 0], [0, 6]]],
        "W_V": [[[3, 0], [0, 4]]],
        "W_O": [[[7, 0], [0, 8]]],
    }


def test_the_same_entry_of_every_head_is_one_of_its_layer():
    """Two layers of three heads of d = 2: 4 products a head, 12 a layer."""
    frames = torch.zeros(2, 3, 2, 2)
    assert same_entry(frames, 1).tolist() == [1, 5, 9]
    assert same_entry(frames, 18).tolist() == [14, 18, 22]
