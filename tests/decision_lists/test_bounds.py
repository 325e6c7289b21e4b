"""The constants of the theorems: in closed form where there is one, and refused where there is
none.
"""

import math
from dataclasses import replace

import pytest
import torch

from lib.decision_lists.attention import Rows
from lib.decision_lists.bounds import (
    closed_form_length,
    descent_along_list,
    descent_bound,
    first_failing_place,
    flow_bound,
    initial_loss,
    late_loss_constant,
    least_feasible_length,
    lemma_1_bound,
    rarest_conflict,
    rarest_conflict_of_uniform,
    with_noise,
)
from lib.decision_lists.lists import (
    cyclic_lists,
    determining_tokens,
    dirichlet_law,
    random_lists,
    subsets,
)


def test_the_rarest_conflict_of_a_uniform_law_in_closed_form():
    L, n = 7, 3
    counts, lists = subsets(L, n), cyclic_lists(L, 2)
    law = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
    place = determining_tokens(counts, lists)[1]
    # i = 1: a, its head and a third token; i = 2: a and another, without the head
    wanted = min(math.comb(4, 0), math.comb(4, 1)) / math.comb(L, n)
    assert rarest_conflict(counts, law, place, lists) == pytest.approx(wanted)


def test_the_rarest_conflict_is_the_least_over_all_triples():
    draw = torch.Generator().manual_seed(0)
    counts, lists = subsets(6, 3), random_lists(6, 3, draw)
    law = dirichlet_law(len(counts), draw)
    chances = []
    for a, entries in enumerate(lists):
        for i in range(3):
            for k in set(range(6)) - set(entries[: i + 1]):
                held = {a, entries[i], k}
                sets = [set(torch.nonzero(c)[:, 0].tolist()) for c in counts]
                inside = [held <= s and not s & set(entries[:i]) for s in sets]
                chances.append(float(law[torch.tensor(inside)].sum()))
    wanted = min(chance for chance in chances if chance > 0)
    assert rarest_conflict(
        counts, law, determining_tokens(counts, lists)[1], lists
    ) == pytest.approx(wanted)


def test_the_constants_of_part_1():
    bound = flow_bound(0.02, 10, 4, 3)
    assert bound.gamma == pytest.approx(9)
    assert bound.scale == pytest.approx(4 * 16 * math.log(10) / 0.02)
    assert bound.time == pytest.approx(4 * 3 / (9 * math.log(10)))
    assert flow_bound(0.02, 10, 4, 3, share=2).gamma == pytest.approx(1)


@pytest.mark.parametrize("share", [0, 4, -1])
def test_a_delta_without_a_bound_is_refused(share):
    with pytest.raises(ValueError, match=r"share must lie in \(0, 4\), got"):
        flow_bound(0.02, 10, 4, 3, share)


def test_the_initial_loss_lies_between_its_limits():
    assert initial_loss(10, 4, 0.0) == pytest.approx(math.log(10))
    assert initial_loss(10, 4, 1e6) == pytest.approx(math.log(4))
    assert math.log(4) < initial_loss(10, 4, 5.0) < math.log(10)


@pytest.mark.parametrize(("n_tokens", "seq_len"), [(20, 19), (8, 2), (31, 29)])
def test_the_constants_of_part_2_solve_their_equations(n_tokens, seq_len):
    bound = descent_bound(0.01, n_tokens, seq_len, 2)
    assert pytest.approx(initial_loss(n_tokens, seq_len, bound.scale), rel=1e-12) == bound.L_0
    wanted = 10 * seq_len**2 * bound.L_0 / 0.01 + 4 * bound.epsilon * seq_len
    assert bound.scale == pytest.approx(wanted, rel=1e-12)
    assert bound.A < bound.L_0 - 6 * bound.epsilon / seq_len == pytest.approx(2 / 3 * bound.L_0)


def test_the_least_feasible_lengths():
    assert [least_feasible_length(m) for m in (1, 2, 3, 4, 5, 8)] == [19, 29, 38, 45, 52, 72]
    with pytest.raises(ValueError, match="most: wanted more than 20 for lists of length 8"):
        least_feasible_length(8, 20)


def test_no_other_epsilon_is_feasible_where_the_best_is_not():
    """At n = 18, m = 1, whatever epsilon: A² ≤ 4 m L_0 / epsilon."""
    n = 18
    L_0 = descent_bound(1 / 19, n + 1, n, 1).L_0
    for epsilon in torch.linspace(0.01, n * L_0 / 6 - 0.01, 200).tolist():
        assert (L_0 - 6 * epsilon / n) ** 2 <= 4 * L_0 / epsilon


def test_another_loss_moves_what_follows_from_it_but_not_epsilon():
    plain = descent_bound(0.05, 20, 19, 1)
    other = replace(plain, L_0=plain.L_0 + 0.1)
    assert other.epsilon == plain.epsilon
    assert other.scale - plain.scale == pytest.approx(10 * 19**2 * 0.1 / 0.05)
    assert other.A > plain.A


def test_the_first_failing_place_is_the_smallest():
    query, place = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 2, 3, 2])
    assert first_failing_place(torch.tensor([False, False, True, True]), query, place) == (1, 2)
    assert first_failing_place(torch.tensor([False, True, True, True]), query, place) == (0, 2)
    assert first_failing_place(torch.tensor([False] * 4), query, place) is None


def test_both_sides_of_lemma_1_are_what_it_says():
    gradient = torch.arange(9, dtype=torch.float64).view(3, 3)
    along = descent_along_list(gradient, ((0,), (2, 1), (2,)), (1, 2))
    assert along == -(gradient[2, 1] + gradient[1, 1])
    counts = torch.tensor([[9, 1, 0], [4, 1, 0], [0, 7, 3], [8, 2, 0]]).double()
    query, place = torch.tensor([1, 1, 2, 1]), torch.tensor([2, 2, 1, 1])
    weight = torch.tensor([0.5, 0.125, 0.25, 0.125]).double()
    rows = Rows(counts, query, torch.tensor([1, 1, 2, 1]), place, weight)
    wrong = torch.tensor([True, False, True, True])
    W = torch.zeros(3, 3, dtype=torch.float64)  # attention is uniform: 1 in 10 to the star
    assert lemma_1_bound(W, rows, wrong, 10.0, (1, 2)) == pytest.approx(5 * 0.5 * 0.1)


@pytest.mark.parametrize(
    ("L", "n", "m"), [(7, 3, 1), (7, 3, 2), (7, 3, 4), (5, 2, 1), (5, 2, 3), (6, 4, 2)]
)
def test_the_rarest_conflict_of_uniform_subsets_is_that_of_the_enumeration(L, n, m):
    counts, lists = subsets(L, n), cyclic_lists(L, m)
    law = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
    place = determining_tokens(counts, lists)[1]
    assert rarest_conflict_of_uniform(L, n, m) == pytest.approx(
        rarest_conflict(counts, law, place, lists), rel=1e-12
    )


def test_the_closed_form_says_the_least_feasible_lengths():
    assert [closed_form_length(m) for m in (1, 2, 3, 4, 5, 8)] == [19, 29, 38, 45, 52, 72]


def test_the_scale_with_noise_is_a_fixed_point():
    plain = descent_bound(0.1, 5, 4, 2)

    def loss_at(scale):
        return math.log(3) + math.exp(-scale / 1000)

    bound, residual = with_noise(plain, loss_at)
    assert residual < 1e-14
    assert pytest.approx(loss_at(bound.scale), rel=1e-12) == bound.L_0
    assert bound.scale == pytest.approx(10 * 16 * bound.L_0 / 0.1 + 16 * plain.epsilon, rel=1e-12)
    assert bound.epsilon == plain.epsilon


def test_every_precondition_counts():
    bound = descent_bound(1 / 30, 30, 29, 2)
    near, curvature = bound.epsilon / 2, 4.0
    assert bound.feasible
    assert bound.met(0.0, near, 0.25, curvature)
    assert not bound.met(1e-6, near, 0.25, curvature)
    assert not bound.met(0.0, 1.001 * near, 0.25, curvature)
    assert not bound.met(0.0, near, 0.2501, curvature)
    assert bound.earliest < bound.latest == near
    none = descent_bound(1 / 29, 29, 28, 2)
    assert none.earliest > none.latest  # by 4 %
    assert not none.feasible
    assert not none.met(0.0, 0.0, 0.25, curvature)


@pytest.mark.parametrize(("L", "n", "m"), [(5, 3, 2), (6, 3, 3), (5, 2, 2), (6, 2, 3)])
def test_the_late_loss_is_the_least_norm_with_margins_of_n(L, n, m):
    """Against a quadratic programme, by projected ascent on its dual: min |u|² with every order of
    a row apart by n.
    """
    lists = cyclic_lists(L, m)
    a, entries = 0, lists[0]
    pairs = set()
    for s in subsets(L, n).int().tolist():
        present = [b for b in range(L) if s[b]]
        if a in present:
            star = next(b for b in entries if b in present)
            pairs |= {(star, k) for k in present if k != star}
    D = torch.zeros(len(pairs), L, dtype=torch.float64)
    for row, (star, k) in zip(D, sorted(pairs), strict=True):
        row[star], row[k] = 1, -1
    dual = torch.zeros(len(pairs), dtype=torch.float64)
    for _ in range(40000):
        dual = (dual + 0.1 * (n - D @ (D.T @ dual))).clamp(min=0)
    least = float((D.T @ dual).square().sum())
    assert late_loss_constant(lists, L, n) == pytest.approx(L * least, rel=1e-4)
