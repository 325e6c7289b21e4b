"""What is proved in docs/decision_lists.md, on small tasks, in float64."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from lib.decision_lists.attention import PopulationLoss, attention_margins
from lib.decision_lists.bounds import descent_along_list, late_limit, lemma_1_bound
from lib.decision_lists.certificates import list_order_margin
from lib.decision_lists.flow import ScaledFlow
from lib.decision_lists.keys_and_queries import Factored, StackedLoss, Staircase, staircases
from lib.decision_lists.lists import (
    Law,
    Task,
    classes_of,
    cyclic_lists,
    dirichlet_law,
    in_list_order,
    log_normal_frequencies,
    product_law,
    random_lists,
)
from lib.training.stiff_flow import until_positive
from tests.decision_lists import decision_lists_made as made


def task(law, seq_len, lists, repeats=False):
    """A task whose law is called with its classes of sequences."""
    n_tokens = len(lists)
    chances = tuple(law(classes_of(n_tokens, seq_len, repeats)).tolist())
    return Task("", "", n_tokens, seq_len, repeats, lists, tuple(range(n_tokens)), chances)


def random(seed, seq_len=2, length=2, repeats=False):
    draw = torch.Generator().manual_seed(seed)
    lists = random_lists(6, length, draw)
    return task(lambda counts: dirichlet_law(len(counts), draw), seq_len, lists, repeats)


def evenly(counts):
    return torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)


@pytest.mark.parametrize(("n_tokens", "seq_len", "leads"), [(8, 3, False), (6, 4, True)])
def test_the_order_takes_time_where_sequences_are_short(n_tokens, seq_len, leads):
    """L > 2n, uniform: the velocity at 0 puts a above the head of its list, and so T > 0; at L < 2n
    the head leads.
    """
    one = task(evenly, seq_len, cyclic_lists(n_tokens, 2))
    assert ScaledFlow(one, 1e4).at_once() == leads


@pytest.mark.parametrize(("seq_len", "order"), [(2, 2), (3, 1)])
def test_the_time_falls_as_the_square_of_the_scale(seq_len, order):
    """T c² is its limit + O(1/c); with two tokens, whose softmax is odd about its middle, +
    O(1/c²).
    """
    theta = log_normal_frequencies(7, 1.0, torch.Generator().manual_seed(0))
    one = task(lambda counts: product_law(counts, theta), seq_len, cyclic_lists(7, 2))
    times = []
    for scale in (math.inf, 1e3, 1e4):
        flow = ScaledFlow(one, scale)
        times.append(until_positive(flow.steps(1e7, 1e-9), flow.margin)[0])
    limit, *others = times
    errors = [abs(time / limit - 1) for time in others]
    assert 0 < errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(10**order, rel=0.1)


def test_the_limit_is_convex():
    flow = ScaledFlow(random(3, 3, 3), math.inf)
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        u, v = 5 * torch.randn(2, 36, generator=draw, dtype=torch.float64).numpy()
        assert (flow.velocity(u) - flow.velocity(v)) @ (u - v) < 0


@pytest.mark.parametrize(("seq_len", "length"), [(3, 2), (2, 3)])
def test_long_after_all_is_right_the_loss_is_the_least_norm_over_the_rescaled_time(seq_len, length):
    one = random(2, seq_len, length)
    flow = ScaledFlow(one, 1e4)
    *_, last = flow.steps(1e7, 1e-7)
    assert flow.measured(last.state)["loss"] * 1e7 == pytest.approx(late_limit(one), rel=0.03)


def test_under_uniform_attention_the_minimum_has_every_label_on_top():
    """With W = 0 and V alone the problem is convex; gradient descent may be slow to near its
    minimum, which is partly at infinity.
    """
    one = random(0, 3, 3)
    loss = PopulationLoss.of(one)
    zero = torch.zeros_like(one.label_matrix)
    V = zero.clone().requires_grad_()
    tolerances = {"tolerance_grad": 1e-9, "tolerance_change": 0}
    search = torch.optim.LBFGS(
        [V], max_iter=4000, history_size=50, line_search_fn="strong_wolfe", **tolerances
    )

    def closure():
        value, gradients = loss({"W": zero, "V": V.detach()})
        V.grad = gradients["V"]
        return value

    search.step(closure)
    assert torch.equal(V.argmax(0), one.labels)


@pytest.mark.parametrize("repeats", [False, True])
def test_with_repeats_the_initial_loss_grows_with_the_scale(repeats):
    """Without repeats it is log(n + (L − n) e^{−c/n}), bounded: the reason to read the theorem for
    distinct tokens.
    """
    one = task(evenly, 3, cyclic_lists(5, 2), repeats)
    loss, P = PopulationLoss.of(one), one.label_matrix
    scales = np.array([30.0, 60.0, 120.0])
    losses = [float(loss({"W": 0 * P, "V": scale * P})[0]) for scale in scales]
    if repeats:
        assert losses[2] - losses[1] == pytest.approx(2 * (losses[1] - losses[0]), rel=1e-3)
        assert losses[1] > losses[0] + 1
    else:
        assert losses == pytest.approx(np.log(3 + 2 * np.exp(-scales / 3)), rel=1e-12)


@pytest.mark.parametrize("repeats", [False, True])
def test_under_uniform_attention_v_goes_along_p_at_a_rate_that_no_law_changes(repeats):
    one = random(5, 3, 3, repeats)
    loss, P = PopulationLoss.of(one), one.label_matrix
    rates, V = [], 0 * P
    for _ in range(5):
        gradient = loss({"W": 0 * P, "V": V})[1]["V"]
        rates.append(-float((gradient * P).sum()))
        V = V - 3 * gradient
    if repeats:
        assert rates[0] > 1 / 3 - 1 / 6
    else:
        assert rates[0] == pytest.approx(1 / 3 - 1 / 6, rel=1e-12)
    assert min(rates) > 0


def test_five_directions_order_lists_with_any_number_of_heads():
    n_heads, n_tokens = 5, 13
    turn = 2 * np.pi * np.arange(n_tokens)
    others, own = turn / (n_tokens - n_heads), turn / n_heads  # of token a, and of its head
    is_head = np.arange(n_tokens) < n_heads
    of_token = np.where(is_head, 0, [np.cos(others), np.sin(others)])
    of_head = np.array([np.cos(own), np.sin(own)])  # token a has the head a mod n_heads
    keys = np.vstack([of_token, np.where(is_head, 10 * of_head, 0), np.where(is_head, 0, 6)])
    queries = np.vstack([of_token, of_head, np.ones(n_tokens)])
    lists = tuple((a,) if a < n_heads else (a % n_heads, a) for a in range(n_tokens))
    assert list_order_margin(torch.from_numpy(keys.T @ queries), lists, 3, repeats=False) > 0


@pytest.mark.parametrize(("n_tokens", "seq_len", "length"), [(4, 2, 2), (4, 4, 3), (5, 3, 1)])
def test_attention_can_represent_any_list_with_a_margin_of_kappa_less_log_of_n_minus_1(
    n_tokens, seq_len, length
):
    lists = random_lists(n_tokens, length, torch.Generator().manual_seed(length))
    every = made.task("any", seq_len, lists, [*range(1, n_tokens), 0], [1], repeats=True)
    for kappa in (0.5, 1.5):
        W = kappa * in_list_order(lists)
        least = float(made.Brute(every).margins(W).min())
        assert least == pytest.approx(kappa - math.log(seq_len - 1))
        assert list_order_margin(W, lists, seq_len, repeats=True) == pytest.approx(least)


def test_lemma_1_holds_at_the_smallest_failing_place_and_not_at_the_largest():
    draw = torch.Generator().manual_seed(0)
    violations = {"smallest": 0, "largest": 0}
    for _ in range(600):
        one = Task.drawn(5, draw)
        loss = PopulationLoss.of(one)
        scale, size = (10 ** float(torch.rand((), generator=draw) * 3 - k) for k in (1, 2))
        W = size * torch.randn(one.n_tokens, one.n_tokens, generator=draw, dtype=torch.float64)
        wrong = attention_margins(W, loss.rows) <= 0
        for a in set(loss.rows.query[wrong].tolist()):
            gradient = loss({"W": W, "V": scale * one.label_matrix})[1]["W"]
            places = loss.rows.place[wrong & (loss.rows.query == a)]
            for name, i in (("smallest", int(places.min())), ("largest", int(places.max()))):
                least = lemma_1_bound(W, loss.rows, wrong, scale, (a, i))
                got = descent_along_list(gradient, one.lists, (a, i))
                violations[name] += got < least * (1 - 1e-9)
    assert violations["smallest"] == 0
    assert violations["largest"] > 0


@pytest.mark.parametrize(("seq_len", "length"), [(2, 3), (3, 3), (4, 2)])
def test_the_limit_of_the_late_loss_is_the_least_norm_of_a_quadratic_programme(seq_len, length):
    """In each column the entry that decides a row is ahead of every rival there by n."""
    one = random(4, seq_len, length)
    total = 0.0
    for a in range(one.n_tokens):
        ahead = []
        for tokens in made.classes(one.n_tokens, seq_len, False):
            if a in tokens:
                star = next(b for b in one.lists[a] if b in tokens)
                rivals = [np.eye(one.n_tokens)[star] - np.eye(one.n_tokens)[b] for b in tokens]
                ahead += [row for row in rivals if row.any()]
        A = np.unique(ahead, axis=0)
        found = minimize(
            lambda u: u @ u,
            np.zeros(one.n_tokens),
            jac=lambda u: 2 * u,
            method="SLSQP",
            constraints={"type": "ineq", "fun": lambda u, A=A: A @ u - one.seq_len},
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert found.success
        total += float(found.fun)
    assert late_limit(one) == pytest.approx(total, rel=1e-6)


def test_the_first_direction_rises_at_the_time_that_its_start_tells():
    """Steps of size η multiply p_1 by 1 + η σ_1, and q is where the direction has risen."""
    law = Law("frequent heads", 30)
    setting = {"group": "any", "n_tokens": 6, "seq_len": 3, "length": 2, "kind": "shared heads"}
    one = Task.of_setting(**setting, n_heads=1, law=law, seed=0)
    loss = StackedLoss(one, 10)
    start = Factored.gaussian(6, [0, 1], [1e-8, 1e-8])
    G = loss.ascent(np.zeros((1, 6, 6)))[0]
    U, sigma, V = np.linalg.svd(G)
    q, rate = 0.01, 0.1
    ends = [Staircase(1, q, "first rise") for _ in range(2)]
    for i, found in enumerate(staircases(loss, start, ends, rate, 10, 10_000)):
        p = start.W_K[i] @ U[:, 0] + start.W_Q[i] @ V[0]
        growth = np.log1p(rate * sigma[0]) / rate
        predicted = math.log(4 * q / (p @ p)) / (2 * growth)
        assert sigma[1] < 0.5 * sigma[0]
        assert found.rise(0) == pytest.approx(predicted, rel=0.005)
