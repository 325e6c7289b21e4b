"""The constants of the theorems: in closed form where there is one, and refused where there is
none.
"""

import pytest

from lib.decision_lists.bounds import descent_bound, flow_bound, least_feasible_length


@pytest.mark.parametrize("share", [0, 4])
def test_a_delta_without_a_bound_is_refused(share):
    with pytest.raises(ValueError, match=r"share must lie in \(0, 4\), got"):
        flow_bound(0.02, 10, 4, 3, share)


def test_every_precondition_counts():
    bound = descent_bound(1 / 30, 30, 29, 2)
    near, curvature = bound.epsilon / 2, 4.0
    assert bound.feasible
    assert bound.met(0.0, near, 0.25, curvature)
    assert not bound.met(1e-6, near, 0.25, curvature)
    assert not bound.met(0.0, 1.001 * near, 0.25, curvature)
    assert not bound.met(0.0, near, 0.2501, curvature)


def test_a_search_that_finds_no_length_says_so():
    with pytest.raises(ValueError, match="most: wanted more than 5 for lists of length 8"):
        least_feasible_length(8, 5)
