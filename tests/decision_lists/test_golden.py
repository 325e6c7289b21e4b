"""One tiny flow and one tiny training of the decision lists, number by number: a change is noticed
here first.
"""

import math

import pytest
import torch

from lib.decision_lists.attention import PopulationLoss
from lib.decision_lists.bounds import flow_bound_of
from lib.decision_lists.flow import ScaledFlow
from lib.decision_lists.lists import Task, frequent_heads, product_law, shared_heads_lists, subsets
from lib.matrices.ranks import stable_rank
from lib.matrices.spectra import singular_values
from lib.training.devices import generator
from lib.training.gradient_descent import gradient_descent
from lib.training.stiff_flow import until_positive


@pytest.fixture(scope="module")
def task():
    counts = subsets(6, 3)
    law = tuple(product_law(counts, frequent_heads(6, 2, 10.0)).tolist())
    lists = shared_heads_lists(6, 2, 2, generator(0, "golden"))
    return Task(
        "golden", "golden", 6, 3, False, lists, (1, 2, 3, 4, 5, 0), law, "frequent heads 10"
    )


def test_the_times_are_as_they_were(task):
    assert flow_bound_of(task).P_min == pytest.approx(P_MIN, rel=1e-5)
    for scale, wanted in TIMES.items():
        flow = ScaledFlow.of(task, scale)
        found = until_positive(flow.steps(1e6, 1e-8), flow.margin)
        assert found is not None
        assert found[0] == pytest.approx(wanted, rel=1e-4)


def test_the_trained_weights_are_as_they_were(task):
    draw = generator(0, "golden start")
    start = {
        name: 0.01 * torch.randn(6, 6, generator=draw, dtype=torch.float64) for name in ("W", "V")
    }
    for step in gradient_descent(PopulationLoss.of(task), start, {"W": 3.0, "V": 3.0}):
        if step.number == 100:
            break
    assert float(step.loss) == pytest.approx(LOSS, rel=1e-4)
    ranks = [
        float(stable_rank(singular_values(step.weights[name])[None].numpy())[0])
        for name in ("W", "V")
    ]
    assert ranks == pytest.approx(RANKS, rel=1e-3)


P_MIN = 0.0190840
TIMES = {10.0: 414.320180, math.inf: 411.002410}
LOSS = 0.0906826
RANKS = [1.153433, 2.086501]
