"""The preconditions of the theorem on W and V."""

from lib.decision_lists.bounds import descent_bound


def test_every_precondition_counts():
    bound = descent_bound(1 / 30, 30, 29, 2)
    near, curvature = bound.epsilon / 2, 4.0
    assert bound.feasible
    assert bound.met(0.0, near, 0.25, curvature)
    assert not bound.met(1e-6, near, 0.25, curvature)
    assert not bound.met(0.0, 1.001 * near, 0.25, curvature)
    assert not bound.met(0.0, near, 0.2501, curvature)
