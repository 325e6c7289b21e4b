"""What tests of full matrices compare with: the head of equation (1) and its descent by autograd.

Weights are one tensor W_K, W_Q, W_V, W_O.
"""

import math

import numpy as np
import torch

from tests.stages.made import generator

NAMES = ("W_K", "W_Q", "W_V", "W_O")


def normal(seed, purpose, *shape):
    """What is drawn for a purpose of a seed."""
    return torch.randn(shape, generator=generator(seed, purpose), dtype=torch.float64)


def output(X, W_K, W_Q, W_V, W_O):
    """Equation (1): softmax(X W_K W_Qᵀ Xᵀ) X W_V W_Oᵀ."""
    return torch.softmax(X @ W_K @ W_Q.mT @ X.mT, -1) @ X @ W_V @ W_O.mT


def teacher(seed, d, rank):
    """The first columns of factors, whose products have entries of variance 1 / d."""
    return normal(seed, "full teacher", 4, d, d)[..., :rank] / (d * rank) ** 0.25


def taught(X, seed, rank=None):
    """The targets of a teacher, which has full rank where none is given."""
    d = X.shape[-1]
    return output(X, *teacher(seed, d, rank or d))


def descent(value, W, move):
    """The loss and the weights at every step, without end; `move(W, slope)` makes one."""
    while True:
        W = W.detach().requires_grad_()
        loss = value(W)
        (slope,) = torch.autograd.grad(loss, W)
        W = W.detach()
        yield float(loss.detach()), W
        W = move(W, slope)


def sigma(P, Q):
    """The singular values of a product."""
    return torch.linalg.svdvals(P @ Q.mT).numpy()


def reached(times, values, bar):
    """When values first come to a bar, on the straight line of their logarithm; infinite where
    never.
    """
    k = next((k for k, value in enumerate(values) if value >= bar), None)
    if not k:
        return math.inf if k is None else times[0]
    return float(np.interp(math.log(bar), np.log(values[k - 1 : k + 1]), times[k - 1 : k + 1]))


def growth_at_zero(X, Y):
    """σ₁ of minus the slope in W_VO at 0, where attention is uniform, and its singular vectors."""
    W_VO = torch.zeros(X.shape[-1], X.shape[-1], dtype=torch.float64, requires_grad=True)
    loss = (X.mean(-2, keepdim=True) @ W_VO - Y).square().mean()
    (slope,) = torch.autograd.grad(loss, W_VO)
    U, S, Vh = torch.linalg.svd(-slope)
    return float(S[0]), U[:, 0], Vh[0]


def first_rise(X, Y, start, threshold, rate, decay=0.0):
    """When σ₁(W_VO) comes to the threshold in the linear flow about 0, whose first direction grows
    as e^(σ t): from this start, and in steps of a rate.
    """
    growth, u, v = growth_at_zero(X, Y)
    joint = float((u @ start[2] + v @ start[3]).square().sum())
    wait = math.log(4 * threshold / joint) / 2
    speed = math.log1p(rate * (growth - decay)) / rate
    stepped = wait / speed if speed > 0 else math.inf
    return {"finite": wait / growth, "stepped": stepped}
