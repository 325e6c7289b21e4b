"""W_K and W_Q apart: which lists few directions can order."""

from dataclasses import replace

import numpy as np
import pytest

from lib.decision_lists.keys_and_queries import StackedLoss, share_right
from lib.decision_lists.lists import Task, frequent_heads, product_law, subsets

C = 3.0


def heads(n_tokens, n_heads, ratio):
    """Frequent heads that share the other tokens evenly."""
    lists = [(a,) if a < n_heads else (a % n_heads, a) for a in range(n_tokens)]
    counts = subsets(n_tokens, 3)
    chances = product_law(counts, frequent_heads(n_tokens, n_heads, ratio))
    pi = tuple(range(n_tokens))
    return Task("heads", "any", n_tokens, 3, False, tuple(lists), pi, tuple(chances.tolist()))


def test_a_task_with_repeats_is_refused():
    with pytest.raises(ValueError, match="heads: wanted sequences of distinct tokens, got repeats"):
        StackedLoss(replace(heads(4, 1, 1.0), repeats=True), C)


def test_rank_one_orders_no_two_tokens_that_share_a_head():
    loss = StackedLoss(heads(5, 1, 1.0), C)
    draw = np.random.default_rng(0)
    keys, shift = draw.normal(size=(2, 2000, 1, 5))
    rank_one = keys.mT @ draw.normal(size=(2000, 1, 5)) + shift
    assert loss.margins(rank_one).min(1).max() <= 0


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
