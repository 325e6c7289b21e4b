"""W_K and W_Q apart: their loss against the one of all rows, their steps against autograd, and the
law of the first rise.
"""

import math

import numpy as np
import pytest
import torch

from lib.decision_lists.keys_and_queries import (
    Factored,
    StackedLoss,
    Staircase,
    Whole,
    share_right,
    staircases,
)
from lib.decision_lists.lists import Task, frequent_heads, product_law, subsets

C = 3.0


def random(*shape):
    draw = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def test_a_task_with_repeats_is_refused():
    repeats = Task("some", "any", 2, 2, True, ((0,), (1,)), (0, 1), (0.5, 0.25, 0.25))
    with pytest.raises(ValueError, match="some: wanted sequences of distinct tokens, got repeats"):
        StackedLoss(repeats, C)


def heads(n_tokens, n_heads, ratio):
    """Frequent heads that share the other tokens evenly."""
    lists = [(a,) if a < n_heads else (a % n_heads, a) for a in range(n_tokens)]
    counts = subsets(n_tokens, 3)
    chances = product_law(counts, frequent_heads(n_tokens, n_heads, ratio))
    return Task(
        "heads",
        "any",
        n_tokens,
        3,
        False,
        tuple(lists),
        tuple(range(n_tokens)),
        tuple(chances.tolist()),
    )


def descents(task, weights, **starts):
    one = {"n_large": 1, "risen": 0.001, "until": "first rise"} | starts
    many = [Staircase(**one) for _ in range(len(weights.W))]
    return staircases(StackedLoss(task, 10.0), weights, many, 0.1, 2, 4000)


def test_the_first_direction_rises_when_the_start_and_the_gradient_at_zero_say():
    task = heads(6, 1, 20.0)
    scales = [1e-3, 1e-6, 1e-12]
    start = Factored.gaussian(6, [0, 0, 0], scales)
    G = StackedLoss(task, 10.0).ascent(np.zeros((1, 6, 6)))[0]
    U, sigma, V = np.linalg.svd(G)
    growth = math.log1p(0.1 * sigma[0]) / 0.1
    unscaled = Factored.gaussian(6, [0], [1.0])
    p = unscaled.W_K[0] @ U[:, 0] + unscaled.W_Q[0] @ V[0]
    for scale, found in zip(scales, descents(task, start), strict=True):
        wanted = math.log(4 * 0.001 / (scale**2 * p @ p)) / (2 * growth)
        assert found.rise(0) == pytest.approx(wanted, abs=0.03)
    for found in descents(task, Whole(start.W)):
        assert found.rise(0) < 0.2  # a look comes each 0.2


def test_rank_one_orders_no_two_tokens_that_share_a_head():
    loss = StackedLoss(heads(5, 1, 1.0), C)
    rank_one = random(2000, 5, 1) @ random(2000, 1, 5) + random(2000, 1, 5)
    assert loss.margins(rank_one.numpy()).min(1).max() <= 0


def test_five_directions_order_lists_with_any_number_of_heads():
    n_heads, n_tokens = 5, 13
    turn = 2 * np.pi * np.arange(n_tokens)
    others, own = turn / (n_tokens - n_heads), turn / n_heads  # of token a, and of its head
    token = np.arange(n_tokens)
    is_head = token < n_heads
    of_token = np.where(is_head, 0, [np.cos(others), np.sin(others)])
    of_head = np.array([np.cos(own), np.sin(own)])  # token a has the head a mod n_heads
    keys = np.vstack([of_token, np.where(is_head, 10 * of_head, 0), np.where(is_head, 0, 6)])
    queries = np.vstack([of_token, of_head, np.ones(n_tokens)])
    loss = StackedLoss(heads(n_tokens, n_heads, 1.0), C)
    assert share_right(loss, keys.T @ queries) == 1
