"""Part 2 with noise in V_0: the first loss that its conditions need, and steps below V's places."""

import math
from itertools import islice

import pytest
import torch

from lib.decision_lists.attention import PopulationLoss
from lib.decision_lists.bounds import DescentBound
from lib.decision_lists.lists import Task
from lib.decision_lists.noise import descent_beside, latest_over_earliest, least_share

LISTS = ((1, 0), (1,), (1, 2), (0, 1, 3))
TASK = Task("any", "any", 4, 2, False, LISTS, (2, 0, 3, 1), (0.1, 0.2, 0.3, 0.1, 0.2, 0.1))


@pytest.mark.parametrize(
    ("n", "m", "share"), [(29, 2, 1.0), (29, 2, 0.97), (38, 3, 1.3), (9, 1, 2)]
)
def test_the_interval_for_t_is_the_one_of_the_constants(n, m, share):
    log_n = math.log(n)
    bound = DescentBound(0.1, n * log_n / 18, share * log_n, n, m)
    wanted = bound.latest / bound.earliest
    assert latest_over_earliest(n, m, share) == pytest.approx(wanted, rel=1e-8)
    assert bound.feasible == (share > least_share(n, m)) == (wanted > 1)


def test_the_least_first_loss_leaves_an_empty_interval_and_any_larger_one_does_not():
    for n, m in ((19, 1), (29, 2), (38, 3), (200, 8)):
        least = least_share(n, m)
        assert least < 1  # the least n that is feasible at V = cP
        assert latest_over_earliest(n, m, least) == pytest.approx(1)
        assert (
            latest_over_earliest(n, m, least * 1.01) > 1 > latest_over_earliest(n, m, 0.99 * least)
        )
    assert least_share(28, 2) > 1


def test_steps_below_the_last_place_of_v_are_summed_up():
    loss = PopulationLoss.of(TASK)
    center = 2.0**40 * TASK.label_matrix
    at_P = center > 0
    steps = list(islice(descent_beside(loss, center, 1e-6), 5))
    wanted = sum(at.step for at in steps[:4])
    torch.testing.assert_close(steps[-1].moved, wanted, rtol=1e-15, atol=0)
    assert (steps[-1].moved[at_P] != 0).all()
    assert torch.equal(steps[-1].V[at_P], center[at_P])  # a step alone would be lost
