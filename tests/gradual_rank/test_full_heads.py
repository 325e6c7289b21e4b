"""Trainings side by side do not touch each other."""

import pytest
import torch

from lib.gradual_rank.full_heads import SharedTokensHead


def test_what_is_not_finite_goes_on_as_such():
    """It is the first of five trainings on each of two seeds' tokens."""
    g = torch.Generator().manual_seed(0)
    X, Y, W = (
        torch.randn(*size, generator=g, dtype=torch.float64)
        for size in ((2, 7, 4, 3), (2, 5, 7, 4, 3), (2, 2, 2, 5, 3, 3))
    )
    W[0, 0, 0, 0] = torch.inf
    loss, _ = SharedTokensHead(X, Y).loss_and_slopes({"factors": W})
    assert not torch.isfinite(loss[0, 0])
    assert torch.isfinite(loss[1]).all()


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_losses_are_mean_squares_of_each_training(n_seeds):
    """The loss at zero weights, where the output is zero, and at others by torch."""
    g = torch.Generator().manual_seed(1)
    X = torch.randn(n_seeds, 7, 4, 3, generator=g, dtype=torch.float64)
    Y = torch.randn(n_seeds, 2, 7, 4, 3, generator=g, dtype=torch.float64)
    W = torch.randn(2, n_seeds, 2, 3, 3, generator=g, dtype=torch.float64)
    head = SharedTokensHead(X, Y)
    loss, *_ = head.loss_and_gradients(*torch.zeros_like(W))
    torch.testing.assert_close(loss, Y.square().mean((-3, -2, -1)))
    loss, *_ = head.loss_and_gradients(*W)
    shared = X[:, None]
    logits = shared @ W[0][:, :, None] @ shared.mT
    off = torch.softmax(logits, -1) @ shared @ W[1][:, :, None] - Y
    torch.testing.assert_close(loss, off.square().mean((-3, -2, -1)))
