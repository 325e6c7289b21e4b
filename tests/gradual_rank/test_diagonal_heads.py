"""Networks with diagonal weights are what equation (1) says, and their derivatives are the
derivatives.
"""

import pytest
import torch

from lib.gradual_rank.diagonal_heads import (
    DiagonalHead,
    DiagonalLoss,
    DiagonalTransformer,
    Quadratic,
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


def transformer():
    draw = draws(2)
    frames = torch.linalg.qr(draw(2, 2, 3, 3)).Q
    X, W_1, W_2 = draw(2, 4, 3), draw(2, 3, 6), draw(2, 6, 3)
    return DiagonalTransformer(X, frames, W_1, W_2, draw(2, 4, 3))


LOSSES = {
    "head": head,
    "head on frozen products": lambda: head(base=True),
    "quadratic": quadratic,
    "transformer": transformer,
}


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


@pytest.mark.parametrize("logit", [1, 299, 301, 5000])
def test_the_gradient_of_a_head_is_the_same_however_large_its_logits_are(logit):
    """From 300 on, the largest logit of a row is subtracted before they are exponentiated."""
    loss, p = head(), draws(3)(6)
    p[:3] *= logit / ((loss.X * p[:3]) @ loss.X.mT).abs().max()
    torch.testing.assert_close(
        loss.gradient(p), DiagonalLoss.gradient(loss, p), rtol=1e-11, atol=1e-13
    )


def test_the_gradient_of_a_transformer_is_that_of_automatic_differentiation():
    loss, p = transformer(), draws(3)(2, 24)
    torch.testing.assert_close(
        loss.gradient(p), DiagonalLoss.gradient(loss, p), rtol=1e-11, atol=1e-13
    )


@pytest.mark.parametrize("support", [[4, 0, 3], [0, 1, 2, 3, 4, 5], [5, 1, 2, 3, 4, 0], [1], [5]])
@pytest.mark.parametrize("name", ["head", "head on frozen products", "transformer"])
def test_the_hessian_is_that_of_automatic_differentiation(name, support):
    """This holds whichever columns are wanted, and in whichever order."""
    loss = LOSSES[name]()
    p = draws(3)(loss.size)
    wanted = torch.tensor([*support, *range(6, loss.size)] if len(support) == 6 else support)
    expected = DiagonalLoss.hessian(loss, p, wanted)
    assert (loss.hessian(p, wanted) - expected).abs().max() < 1e-12 * expected.abs().max()


@pytest.mark.parametrize("support", [[0, 2, 3, 5], [1, 2], [4]])
def test_the_hessian_of_a_part_of_a_head_is_a_part_of_its_hessian(support):
    loss, on = head(), torch.tensor(support)
    q = draws(3)(len(support))
    p = torch.zeros(loss.size, dtype=torch.float64).index_copy(0, on, q)
    torch.testing.assert_close(
        loss.restricted(on).hessian(q, torch.arange(len(on))),
        DiagonalLoss.hessian(loss, p, on)[on],
        rtol=1e-11,
        atol=1e-13,
    )
