"""The constants of the theorems: in closed form where there is one, and refused where there is
none.
"""

import pytest
import torch

from lib.decision_lists.bounds import (
    descent_bound,
    flow_bound,
    late_loss_constant,
    least_feasible_length,
)
from lib.decision_lists.lists import (
    cyclic_lists,
    subsets,
)


@pytest.mark.parametrize("share", [0, 4, -1])
def test_a_delta_without_a_bound_is_refused(share):
    with pytest.raises(ValueError, match=r"share must lie in \(0, 4\), got"):
        flow_bound(0.02, 10, 4, 3, share)


def test_no_other_epsilon_is_feasible_where_the_best_is_not():
    """At n = 18, m = 1, whatever epsilon: A² ≤ 4 m L_0 / epsilon."""
    n = 18
    L_0 = descent_bound(1 / 19, n + 1, n, 1).L_0
    for epsilon in torch.linspace(0.01, n * L_0 / 6 - 0.01, 200).tolist():
        assert (L_0 - 6 * epsilon / n) ** 2 <= 4 * L_0 / epsilon


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


def test_a_search_that_finds_no_length_says_so():
    with pytest.raises(ValueError, match="most: wanted more than 20 for lists of length 8"):
        least_feasible_length(8, 20)


@pytest.mark.parametrize(("L", "n", "m"), [(5, 3, 2), (6, 2, 3)])
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
    for _ in range(8000):
        dual = (dual + 0.1 * (n - D @ (D.T @ dual))).clamp(min=0)
    least = float((D.T @ dual).square().sum())
    assert late_loss_constant(lists, L, n) == pytest.approx(L * least, rel=1e-4)
