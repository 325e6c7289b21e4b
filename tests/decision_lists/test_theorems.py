"""What is proved in docs/decision_lists.md, on small tasks, in float64."""

import math

import numpy as np
import pytest
import torch

from lib.decision_lists.attention import (
    Rows,
    attention_margins,
    loss_gradients,
)
from lib.decision_lists.bounds import (
    descent_along_list,
    first_failing_place,
    flow_bound,
    late_loss_constant,
    lemma_1_bound,
    rarest_conflict,
)
from lib.decision_lists.certificates import list_order_margin
from lib.decision_lists.flow import choice_gradient
from lib.decision_lists.lists import (
    cyclic_lists,
    determining_tokens,
    dirichlet_law,
    frequent_heads,
    label_matrix,
    log_normal_frequencies,
    multisets,
    product_law,
    random_lists,
    random_permutation,
    shared_heads_lists,
    subsets,
)
from lib.decision_lists.random_cases import lemma_2
from lib.training.stiff_flow import first_crossing, stiff_flow


class Flow:
    """Gradient flow on u = cW in tau = c² t, from 0, at V = cP."""

    def __init__(self, counts, law, lists, scale):
        self.L, self.scale = counts.shape[1], scale
        self.rows, self.seq_len = (
            Rows.of(counts, law, *determining_tokens(counts, lists)),
            counts[0].sum(),
        )

    def matrix(self, x):
        return torch.from_numpy(x).view(self.L, self.L)

    def of(self, u):
        """The loss; in the limit that of a choice among the tokens that are there, by u / n."""
        asked, held = u.T[self.rows.query], self.rows.counts.log()
        if math.isinf(self.scale):
            logits = asked / self.seq_len + held
        else:
            logits = self.scale * torch.softmax(asked / self.scale + held, 1)
        return (
            -self.rows.weight
            @ torch.log_softmax(logits, 1).gather(1, self.rows.star[:, None])[:, 0]
        )

    def velocity(self, x):
        u = self.matrix(x).clone().requires_grad_()
        return -torch.autograd.grad(self.of(u), u)[0].flatten().numpy()

    def loss(self, x):
        return float(self.of(self.matrix(x)))

    def margin(self, x):
        return float(attention_margins(self.matrix(x), self.rows).min())

    def steps(self, end, rtol=1e-9):
        return stiff_flow(self.velocity, None, np.zeros(self.L**2), end, rtol=rtol, atol=rtol)

    def first_time(self, end):
        """In tau."""
        for step in self.steps(end):
            if self.margin(step.state) > 0:
                return first_crossing(step, self.margin)
        return math.inf


def task(seed, n_tokens=6, seq_len=2, length=2):
    draw = torch.Generator().manual_seed(seed)
    counts, lists = subsets(n_tokens, seq_len), random_lists(n_tokens, length, draw)
    return counts, dirichlet_law(len(counts), draw), lists


@pytest.mark.parametrize("seed", range(4))
def test_the_flow_is_right_within_the_bound_and_its_loss_falls(seed):
    counts, law, lists = task(seed)
    P_min = rarest_conflict(counts, law, determining_tokens(counts, lists)[1], lists)
    bound = flow_bound(P_min, 6, 2, 2)
    flow = Flow(counts, law, lists, bound.scale)
    losses = [flow.loss(np.zeros(36))]
    for step in flow.steps(bound.time * bound.scale**2, rtol=1e-8):
        losses.append(flow.loss(step.state))
        if flow.margin(step.state) > 0:
            break
    assert flow.margin(step.state) > 0
    assert max(np.diff(losses)) < 1e-12
    assert list_order_margin(flow.matrix(step.state), lists, 2, repeats=False) > 0


def test_the_order_takes_time_where_sequences_are_short():
    """L > 2n, uniform: the velocity at 0 puts a above the head of its list, and so T > 0; at L < 2n
    the head leads.
    """
    for n_tokens, seq_len, leads in ((8, 3, False), (6, 4, True)):
        counts, lists = subsets(n_tokens, seq_len), cyclic_lists(n_tokens, 2)
        law = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
        flow = Flow(counts, law, lists, 1e4)
        assert (flow.margin(flow.velocity(np.zeros(n_tokens**2))) > 0) == leads


@pytest.mark.parametrize("scale", [0.5, 30.0, 1e5])
def test_the_first_velocity_is_exact_at_every_scale(scale):
    """−dL/dW[b, a] = (c/n³) [n P(E with * = b) − P(a, b in s)] at W = 0."""
    counts, law, lists = task(7, 6, 3, 3)
    star = determining_tokens(counts, lists)[0]
    rows, zero = (
        Rows.of(counts, law, *determining_tokens(counts, lists)),
        torch.zeros(6, 6, dtype=torch.float64),
    )
    gradient = loss_gradients(zero, scale * label_matrix(range(6)), rows, torch.arange(6))[1]
    present = counts > 0
    for a in range(6):
        for b in range(6):
            right = float(law[star[:, a] == b].sum())
            together = float(law[present[:, a] & present[:, b]].sum())
            assert -float(gradient[b, a]) == pytest.approx(
                scale / 27 * (3 * right - together), abs=1e-12 * scale
            )


def test_all_right_can_be_lost_again():
    """Three sequences of weight 100 : 3.5 : 1: right until 1.2e-6, wrong, right again from 1.62e-5
    (bound 0.855).
    """
    supports = [{0, 3, 4, 5}, {0, 1, 2, 4}, {0, 2, 6, 7}]
    counts = torch.zeros(3, 8, dtype=torch.float64)
    for row, support in zip(counts, supports, strict=True):
        row[list(support)] = 1
    law = torch.tensor([100.0, 3.5, 1.0], dtype=torch.float64)
    law = law / law.sum()
    lists = ((1, 2, 3, 0), *((a,) for a in range(1, 8)))
    P_min = rarest_conflict(counts, law, determining_tokens(counts, lists)[1], lists)
    bound = flow_bound(P_min, 8, 4, 4)
    assert bound.scale == pytest.approx(1.39e4, rel=0.01)
    assert bound.time == pytest.approx(0.855, abs=1e-3)
    flow, times, right = Flow(counts, law, lists, bound.scale), [], True
    assert flow.margin(flow.velocity(np.zeros(64))) > 0, "right at every small time"
    for step in flow.steps(1e-4 * bound.scale**2):
        if (flow.margin(step.state) > 0) != right:
            sign = -1 if right else 1
            found = first_crossing(step, lambda x, sign=sign: sign * flow.margin(x))
            times.append(found / bound.scale**2)
            right = not right
    assert right
    assert times == pytest.approx([1.20e-6, 1.62e-5], rel=0.01)


@pytest.mark.parametrize(("seq_len", "order"), [(2, 2), (3, 1)])
def test_the_time_falls_as_the_square_of_the_scale(seq_len, order):
    """T c² is its limit + O(1/c); with two tokens, whose softmax is odd about its middle, +
    O(1/c²).
    """
    draw = torch.Generator().manual_seed(0)
    counts, lists = subsets(7, seq_len), cyclic_lists(7, 2)
    law = product_law(counts, log_normal_frequencies(7, 1.0, draw))
    limit = Flow(counts, law, lists, math.inf).first_time(1e7)
    errors = [
        abs(Flow(counts, law, lists, scale).first_time(1e7) / limit - 1) for scale in (1e3, 1e4)
    ]
    assert 0 < errors[0] < 0.01
    assert errors[0] / errors[1] == pytest.approx(10**order, rel=0.1)


def test_the_limit_is_convex():
    counts, law, lists = task(3, 6, 3, 3)
    rows = Rows.of(counts, law, *determining_tokens(counts, lists))
    draw = torch.Generator().manual_seed(0)
    for _ in range(20):
        u, v = 5 * torch.randn(2, 6, 6, generator=draw, dtype=torch.float64)
        assert float(((choice_gradient(u, rows) - choice_gradient(v, rows)) * (u - v)).sum()) > 0


@pytest.mark.parametrize("repeats", [False, True])
def test_lemma_1_holds_at_the_smallest_place(repeats):
    draw = torch.Generator().manual_seed(int(repeats))
    tested = 0
    for _ in range(60):
        counts = (multisets if repeats else subsets)(5, 3)
        lists, pi = random_lists(5, 3, draw), random_permutation(5, draw)
        rows = Rows.of(counts, dirichlet_law(len(counts), draw), *determining_tokens(counts, lists))
        W = torch.randn(5, 5, generator=draw, dtype=torch.float64)
        scale = 10 ** float(4 * torch.rand((), generator=draw) - 1)
        gradient = loss_gradients(W, scale * label_matrix(pi), rows, torch.tensor(pi))[1]
        wrong = attention_margins(W, rows) <= 0
        at = first_failing_place(wrong, rows.query, rows.place)
        if at is not None:
            bound = lemma_1_bound(W, rows, wrong, scale, at)
            assert descent_along_list(gradient, lists, at) >= bound * (1 - 1e-12) > 0
            tested += 1
    assert tested > 40


def test_lemma_2_bounds_the_descent_where_v_is_near_cp():
    draw = torch.Generator().manual_seed(0)
    cases = [case for _ in range(100) for case in lemma_2(draw, 5)]
    assert len(cases) > 100
    assert all(case["derivative"] >= case["bound"] >= case["abstract"] for case in cases)


def test_lemma_1_would_be_false_with_the_largest_place():
    draw = torch.Generator().manual_seed(0)
    violated = 0
    for _ in range(300):
        counts, lists = subsets(5, 3), random_lists(5, 4, draw)
        rows = Rows.of(counts, dirichlet_law(len(counts), draw), *determining_tokens(counts, lists))
        W = torch.randn(5, 5, generator=draw, dtype=torch.float64)
        gradient = loss_gradients(W, 100 * label_matrix(range(5)), rows, torch.arange(5))[1]
        wrong = attention_margins(W, rows) <= 0
        if not wrong.any():
            continue
        a = int(rows.query[wrong].min())
        largest = int(rows.place[wrong & (rows.query == a)].max())
        bound = lemma_1_bound(W, rows, wrong, 100.0, (a, largest))
        violated += descent_along_list(gradient, lists, (a, largest)) < bound
    assert violated > 0


def test_the_permutation_drops_out_of_training_attention_alone():
    counts, law, lists = task(1, 5, 3, 2)
    rows = Rows.of(counts, law, *determining_tokens(counts, lists))
    W = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    pi = (2, 0, 3, 4, 1)
    one = loss_gradients(W, 4 * label_matrix(pi), rows, torch.tensor(pi))[1]
    other = loss_gradients(W, 4 * label_matrix(range(5)), rows, torch.arange(5))[1]
    torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-15)


def test_with_repeats_the_initial_loss_grows_with_the_scale():
    """Without repeats it is log(n + (L − n) e^{−c/n}), bounded: the reason to read the theorem for
    distinct tokens.
    """
    for repeats in (False, True):
        counts, lists = (multisets if repeats else subsets)(5, 3), cyclic_lists(5, 2)
        law = product_law(counts, torch.ones(5, dtype=torch.float64))
        rows = Rows.of(counts, law, *determining_tokens(counts, lists))
        zero, eye = torch.zeros(5, 5, dtype=torch.float64), torch.eye(5, dtype=torch.float64)
        losses = [
            float(loss_gradients(zero, scale * eye, rows, torch.arange(5))[0])
            for scale in (30.0, 60.0, 120.0)
        ]
        if repeats:
            assert losses[2] - losses[1] == pytest.approx(2 * (losses[1] - losses[0]), rel=1e-3)
            assert losses[1] > losses[0] + 1
        else:
            wanted = [math.log(3 + 2 * math.exp(-scale / 3)) for scale in (30.0, 60.0, 120.0)]
            assert losses == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("heads", [False, True])
def test_under_uniform_attention_the_minimum_has_every_label_on_top(heads):
    """W = 0, V alone: a convex problem, whose minimum (partly at infinity) gradient descent may be
    slow to near.
    """
    draw = torch.Generator().manual_seed(0)
    if heads:
        counts, lists = subsets(8, 4), shared_heads_lists(8, 3, 2, draw)
        law = product_law(counts, frequent_heads(8, 2, 30.0))
    else:
        counts, lists = subsets(6, 3), random_lists(6, 3, draw)
        law = dirichlet_law(len(counts), draw)
    rows = Rows.of(counts, law, *determining_tokens(counts, lists))
    L = counts.shape[1]
    zero, pi = torch.zeros(L, L, dtype=torch.float64), torch.tensor(random_permutation(L, draw))
    V = torch.zeros(L, L, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [V],
        max_iter=4000,
        history_size=50,
        tolerance_grad=1e-9,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        search.zero_grad()
        loss, _, gradient = loss_gradients(zero, V.detach(), rows, pi)
        V.grad = gradient
        return loss

    search.step(closure)
    assert torch.equal(V.detach().argmax(0), pi)


@pytest.mark.parametrize("repeats", [False, True])
def test_under_uniform_attention_v_goes_along_p_at_a_rate_that_no_law_changes(repeats):
    draw = torch.Generator().manual_seed(5)
    counts, lists, pi = (
        (multisets if repeats else subsets)(6, 3),
        random_lists(6, 3, draw),
        random_permutation(6, draw),
    )
    rows = Rows.of(counts, dirichlet_law(len(counts), draw), *determining_tokens(counts, lists))
    zero, rates = torch.zeros(6, 6, dtype=torch.float64), []
    V = zero
    for _ in range(5):
        gradient = loss_gradients(zero, V, rows, torch.tensor(pi))[2]
        rates.append(-float((gradient * label_matrix(pi)).sum()))
        V = V - 3 * gradient
    if repeats:
        assert rates[0] > 1 / 3 - 1 / 6
    else:
        assert rates[0] == pytest.approx(1 / 3 - 1 / 6, rel=1e-12)
    assert min(rates) > 0


def test_long_after_all_is_right_the_loss_is_the_least_norm_over_the_rescaled_time():
    counts, law, lists = task(2, 6, 3, 2)
    flow, end = Flow(counts, law, lists, math.inf), 1e7
    *_, last = flow.steps(end, rtol=1e-7)
    assert flow.loss(last.state) * end == pytest.approx(late_loss_constant(lists, 6, 3), rel=0.03)
