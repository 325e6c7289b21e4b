"""Trainings side by side do not touch each other."""

import torch

from lib.gradual_rank.full_heads import SharedTokensHead


def test_what_is_not_finite_goes_on_as_such():
    """The first of five trainings on each of two seeds' tokens."""
    g = torch.Generator().manual_seed(0)
    X, Y, W = (
        torch.randn(*size, generator=g, dtype=torch.float64)
        for size in ((2, 7, 4, 3), (2, 5, 7, 4, 3), (2, 2, 2, 5, 3, 3))
    )
    W[0, 0, 0, 0] = torch.inf
    loss, _ = SharedTokensHead(X, Y).loss_and_slopes({"factors": W})
    assert not torch.isfinite(loss[0, 0])
    assert torch.isfinite(loss[1]).all()
