"""The preconditions of the theorem on W and V."""

import math

from lib.decision_lists.bounds import DescentBound


def test_every_precondition_counts():
    bound = DescentBound(1 / 30, 29 * math.log(29) / 18, math.log(29), 29, 2)
    near, curvature = bound.epsilon / 2, 4.0
    assert bound.feasible
    assert bound.met(0.0, near, 0.25, curvature)
    assert not bound.met(1e-6, near, 0.25, curvature)
    assert not bound.met(0.0, 1.001 * near, 0.25, curvature)
    assert not bound.met(0.0, near, 0.2501, curvature)
