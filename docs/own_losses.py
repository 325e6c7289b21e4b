"""Losses of one's own: functions of the products p = u ⊙ v, which a table of problems names.

The table beside this file, own_losses.tsv, names `regression` and its gradient.
"""

from functools import cache

import torch
from torch import Tensor

TEACHER = torch.tensor([2.0, -1.0, 0.5, 0.25, 0.0, 0.0], dtype=torch.float64)


@cache
def points(seed: int) -> tuple[Tensor, Tensor]:
    """40 Gaussian points [sample, feature], and their values by the teacher, of a seed."""
    draw = torch.Generator().manual_seed(seed)
    X = torch.randn(40, len(TEACHER), generator=draw, dtype=torch.float64)
    return X, X @ TEACHER


def regression(p: Tensor, seed: int) -> Tensor:
    """Half the mean squared error of a linear diagonal network, whose answer to x is ⟨x, p⟩."""
    X, y = points(seed)
    return (X @ p - y).square().mean() / 2


def regression_gradient(p: Tensor, seed: int) -> Tensor:
    """The gradient of `regression`; it may be left out, as autograd finds it."""
    X, y = points(seed)
    return (X @ p - y) @ X / len(X)
