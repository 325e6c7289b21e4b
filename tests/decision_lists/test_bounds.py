"""The constants of both theorems, beside those derived by hand; the preconditions of part 2."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from lib.decision_lists.bounds import DescentBound, descent_bound_of, flow_bound_of
from lib.decision_lists.lists import Law, Task, own_lists, subsets

BY_HAND = pd.read_csv(Path(__file__).with_name("constants_by_hand.tsv"), sep="\t", comment="#")


@pytest.mark.parametrize("case", list(BY_HAND.itertuples()), ids=list(BY_HAND["name"]))
def test_the_constants_of_a_small_task_are_those_derived_by_hand(case):
    """The bounds are too loose for a run to notice a wrong factor, but this test would."""
    law = Law.named(case.law)
    chances = law.probabilities(subsets(case.n_tokens, case.seq_len), 1, torch.Generator())
    task = Task(
        name=case.name,
        group="by hand",
        n_tokens=case.n_tokens,
        seq_len=case.seq_len,
        repeats=False,
        lists=own_lists(case.lists, case.n_tokens),
        permutation=tuple(range(case.n_tokens)),
        probability=tuple(chances.tolist()),
        law=law.label,
    )
    flow = flow_bound_of(task)
    assert flow.gamma == pytest.approx(9)  # (4 P_min / (n delta) - 1)², as delta is P_min / n
    found = (flow.P_min, flow.delta, flow.scale, flow.time)
    assert found == pytest.approx((case.P_min, case.delta, case.c, case.bound), rel=1e-8)
    bound = descent_bound_of(task)
    assert (bound.delta, bound.epsilon) == pytest.approx((case.P_set, case.epsilon), rel=1e-8)
    found = (bound.scale, bound.earliest, bound.latest)
    assert found == pytest.approx((case.c_of_part_2, case.earliest, case.latest), rel=1e-8)


def test_every_precondition_counts():
    bound = DescentBound(1 / 30, 29 * math.log(29) / 18, math.log(29), 29, 2)
    near, curvature = bound.epsilon / 2, 4.0
    assert bound.feasible
    assert bound.met(0.0, near, 0.25, curvature)
    assert not bound.met(1e-6, near, 0.25, curvature)
    assert not bound.met(0.0, 1.001 * near, 0.25, curvature)
    assert not bound.met(0.0, near, 0.2501, curvature)
