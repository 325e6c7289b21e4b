"""W_K and W_Q apart: their loss against the one of all rows, their steps against autograd, and the
law of the first rise.
"""

import math

import numpy as np
import pytest
import torch

from lib.decision_lists.attention import PopulationLoss, attention_margins
from lib.decision_lists.keys_and_queries import (
    Factored,
    StackedLoss,
    Staircase,
    Whole,
    cut,
    fewest_directions,
    permuted,
    share_right,
    staircases,
)
from lib.decision_lists.lists import Task, frequent_heads, in_list_order, product_law, subsets
from lib.training.devices import generator

C = 3.0
LISTS = ((1, 0), (1,), (1, 2), (0, 1, 3), (4,))
CHANCES = tuple((torch.arange(1, 11).double() / 55).tolist())
TASK = Task("any", "any", 5, 3, False, LISTS, (2, 0, 3, 4, 1), CHANCES)


def random(*shape):
    draw = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def test_the_stacked_loss_has_the_gradient_and_margins_of_the_loss_on_all_rows():
    loss = StackedLoss(TASK, C)
    exact = PopulationLoss.of(TASK)
    stacked = 2 * random(4, 5, 5)
    ascents = loss.ascent(stacked.numpy())
    margins = loss.margins(stacked.numpy())
    for W, G, margin in zip(stacked, ascents, margins, strict=True):
        weights = {"W": W, "V": C * TASK.label_matrix}
        np.testing.assert_allclose(G, -exact(weights)[1]["W"].numpy(), atol=1e-15)
        wanted = attention_margins(W, exact.rows).numpy()
        np.testing.assert_allclose(np.sort(margin), np.sort(wanted), atol=1e-15)
        assert share_right(loss, W.numpy()) == pytest.approx(exact.accuracy(weights), abs=1e-14)


def test_a_task_with_repeats_is_refused():
    repeats = Task("some", "any", 2, 2, True, ((0,), (1,)), (0, 1), (0.5, 0.25, 0.25))
    with pytest.raises(ValueError, match="some: wanted sequences of distinct tokens, got repeats"):
        StackedLoss(repeats, C)


def test_a_step_of_the_factors_is_one_of_gradient_descent_on_both():
    W_K, W_Q = random(2, 5, 5).requires_grad_(), random(2, 5, 5).mT.clone().requires_grad_()
    exact = PopulationLoss.of(TASK)
    weights = Factored(W_K.detach().numpy(), W_Q.detach().numpy())
    moved = weights.moved(StackedLoss(TASK, C).ascent(weights.W), 0.7)
    value = sum(
        exact.value({"W": K.mT @ Q, "V": C * TASK.label_matrix})
        for K, Q in zip(W_K, W_Q, strict=True)
    )
    by_K, by_Q = torch.autograd.grad(value, [W_K, W_Q])
    np.testing.assert_allclose(moved.W_K, (W_K - 0.7 * by_K).detach().numpy(), atol=1e-14)
    np.testing.assert_allclose(moved.W_Q, (W_Q - 0.7 * by_Q).detach().numpy(), atol=1e-14)
    np.testing.assert_array_equal(moved.only(np.array([False, True])).W_K, moved.W_K[1:])


def test_gaussian_starts_are_those_of_their_seeds_times_their_scales():
    found = Factored.gaussian(3, [7, 7, 8], [1.0, 0.5, 1.0])
    for name, stacked in (("W_K", found.W_K), ("W_Q", found.W_Q)):
        np.testing.assert_array_equal(stacked[1], stacked[0] / 2)
        wanted = torch.randn(3, 3, generator=generator(8, name), dtype=torch.float64)
        np.testing.assert_array_equal(stacked[2], wanted.numpy())


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


def test_descent_goes_on_until_all_is_right_and_the_next_direction_has_risen():
    task = heads(6, 2, 20.0)
    start = Factored.gaussian(6, [0, 1], [1e-2, 1e-2])
    found = descents(task, start, until="next rise", risen=0.05)
    for one in found:
        looked = np.array([values[1] for values in one.singular_values])
        before = StackedLoss(task, 10.0).margins(one.W[None]).min()
        assert 0 < one.right <= one.times[-1] < 400
        assert one.margin == before > 0
        assert looked[-1] > 0.05
        assert not (looked[-2] > 0.05 and one.times[-2] >= one.right)  # and no longer
        assert one.rise(0) < one.rise(1) <= one.times[-1]
    alone = descents(task, start.only(np.array([False, True])), until="next rise", risen=0.05)
    assert alone[0].right == found[1].right
    assert alone[0].times == found[1].times


def test_a_rise_is_interpolated_in_the_logarithm():
    course = [np.array([v, 0.0]) for v in (1e-4, 1e-3, 1e-1, 1.0)]
    one = Staircase(1, 1e-2, "right", [0.0, 1.0, 2.0, 3.0], course)
    assert one.rise(0) == pytest.approx(1.5)
    assert math.isnan(one.rise(1))
    assert not one.over


def test_the_fewest_directions_are_those_of_the_first_cut_that_is_right():
    loss = StackedLoss(TASK, C)
    W = in_list_order(LISTS).numpy() + 5 * np.arange(5)  # a constant of each column
    fewest = fewest_directions(loss, W)
    right = [share_right(loss, cut(W, rank)) == 1 for rank in range(1, 6)]
    assert right.index(True) + 1 == fewest > 1
    U, sigma, V = np.linalg.svd(W - W.mean(0))
    np.testing.assert_allclose(cut(W, 2), (U * sigma * (np.arange(5) < 2)) @ V, atol=1e-13)


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


def test_permuted_lists_are_those_of_other_tokens_under_the_same_law():
    found = permuted(TASK, 2)
    assert found.lists == ((2, 3, 0), (1,), (3, 2), (3,), (3, 4))
    assert found.probability == TASK.probability
