"""A certificate says of all sequences what enumerating them says."""

import math

import pytest
import torch

from lib.decision_lists.attention import Rows, attention_margins, logit_margins
from lib.decision_lists.certificates import list_order_margin, logit_margin, longest_certified
from lib.decision_lists.lists import (
    cyclic_lists,
    determining_tokens,
    in_list_order,
    label_matrix,
    multisets,
    random_lists,
    random_permutation,
    subsets,
)


def random_weights(draw, lists, pi):
    L = len(lists)
    order = torch.zeros(L, L, dtype=torch.float64)
    for a, entries in enumerate(lists):
        order[list(entries), a] = torch.arange(len(entries), 0, -1).double()
    size, noise = torch.rand(2, generator=draw).tolist()
    W = 4 * size * order + noise * torch.randn(L, L, generator=draw, dtype=torch.float64)
    return W, label_matrix(pi) + 0.4 * noise * torch.randn(
        L, L, generator=draw, dtype=torch.float64
    )


def enumerated(L, n, lists, repeats):
    counts = (multisets if repeats else subsets)(L, n)
    law = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
    return Rows.of(counts, law, *determining_tokens(counts, lists))


@pytest.mark.parametrize("repeats", [False, True])
def test_both_certificates_equal_enumeration_on_random_cases(repeats):
    draw = torch.Generator().manual_seed(int(repeats))
    outcomes = {"V = cP": [], "any V": []}
    for L, n, m in [(3, 2, 2), (4, 2, 3), (5, 3, 2), (5, 4, 3), (4, 3, 4)]:
        for _ in range(50):
            lists, pi = random_lists(L, m, draw), random_permutation(L, draw)
            W, V = random_weights(draw, lists, pi)
            rows, labels = enumerated(L, n, lists, repeats), torch.tensor(pi)
            right = bool((attention_margins(W, rows) > 0).all())
            assert (list_order_margin(W, lists, n, repeats) > 0) == right
            outcomes["V = cP"].append(right)
            right = bool((logit_margins(W, V, rows, labels) > 0).all())
            assert (logit_margin(W, V, lists, pi, n, repeats) > 0) == right
            outcomes["any V"].append(right)
    for found in outcomes.values():
        assert 0.2 < sum(found) / len(found) < 0.8, (
            "one outcome is so rare that agreement says little"
        )


def test_triples_that_fit_into_no_sequence_are_left_out():
    """With n = 2 a list's head, its token and a rival never meet: W may order them wrongly and be
    right.
    """
    lists = ((1, 0), (1,), (1, 2))
    W = torch.tensor([[0.0, -1.0, -1.0], [1.0, 1.0, 1.0], [5.0, -1.0, 0.0]], dtype=torch.float64)
    W[2, 0] = -0.5
    assert list_order_margin(W, lists, 2, repeats=False) > 0
    W[2, 0] = (
        # the rival beats the head in a sequence with 0, 1 and 2 alone, and 0 in one with 0 and 2
        5.0
    )
    assert list_order_margin(W, lists, 2, repeats=False) < 0
    W[:, 0] = torch.tensor([2.0, 3.0, 1.0]).double()
    assert list_order_margin(W, lists, 2, repeats=False) > 0


def test_a_tie_is_refused():
    lists = cyclic_lists(4, 2)
    assert list_order_margin(torch.zeros(4, 4, dtype=torch.float64), lists, 3, repeats=False) == 0
    V = label_matrix(range(4))
    assert (
        logit_margin(torch.zeros(4, 4, dtype=torch.float64), V, lists, range(4), 2, repeats=False)
        == 0
    )


def test_thresholds_grow_with_the_length_of_the_sequences():
    """Pair margins of delta suffice for every n' < 1 + e^delta, and where only pairs compete, for
    no more.
    """
    lists = tuple((0, a) if a else (0,) for a in range(5))
    for margin in (0.5, 1.0, 2.0, 3.0):
        W = torch.zeros(5, 5, dtype=torch.float64)
        for a in range(5):
            W[a, a] = margin
            W[0, a] = 2 * margin
        found = longest_certified(W, lists, 60)
        assert list_order_margin(W, lists, found, repeats=True) > 0
        assert list_order_margin(W, lists, found + 1, repeats=True) <= 0
        assert found >= int(torch.exp(torch.tensor(margin)))


def test_large_weights_do_not_overflow():
    lists, V = cyclic_lists(4, 2), label_matrix(range(4))
    W = torch.zeros(4, 4, dtype=torch.float64)
    for a, entries in enumerate(lists):
        W[list(entries), a] = torch.tensor([2000.0, 1000.0], dtype=torch.float64)
    assert logit_margin(W, V, lists, range(4), 3, repeats=True) > 0
    assert list_order_margin(W, lists, 3, repeats=True) > 900


def test_attention_can_represent_any_list():
    """W = κ times the places of each list: over all sequences the least margin is κ - log(n - 1).

    So everything is right for κ > log(n - 1), and not below it.
    """
    draw = torch.Generator().manual_seed(5)
    for L, n, m in [(3, 2, 2), (4, 3, 1), (4, 4, 3), (5, 3, 2), (6, 5, 4)]:
        lists = random_lists(L, m, draw)
        rows = enumerated(L, n, lists, repeats=True)
        for kappa in (0.0, 0.5, 1.0, 3.0):
            margin = float(attention_margins(kappa * in_list_order(lists), rows).min())
            assert margin == pytest.approx(kappa - math.log(n - 1), abs=1e-12)
