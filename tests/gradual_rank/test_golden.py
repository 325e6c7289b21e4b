"""One tiny head: its stages, its finite-scale prediction and its flow, number by number: a change
shows here first.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogCoordinates, log_flow, staged_flow, with_events
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.tasks import gaussian_pair, gaussian_sequences
from lib.training.devices import generator

SOLVER = {"rtol": 1e-5, "atol": 1e-3}
THRESHOLD = 1e-2


@pytest.fixture(scope="module")
def task():
    """A head of 3 + 3 products on 30 sequences of 4 tokens, from seed 0, and its start at 1e-16."""
    X = gaussian_sequences(30, 4, 3, generator(0, "tokens"))
    w_u, w_v = gaussian_pair(6, generator(0, "teacher"))
    u, v = gaussian_pair(6, generator(0, "start"))
    start = LogCoordinates.of(u.numpy(), v.numpy(), -16 * math.log(10))
    return DiagonalHead(X, diagonal_head(X, w_u * w_v)), start


def test_the_stages_are_as_they_were(task):
    found = list(itertools.islice(greedy(task[0], 6, kick=1e-4, stationary=1e-4, **SOLVER), 5))
    assert [(stage.coordinate, stage.sign) for stage in found[1:]] == JOINED
    np.testing.assert_allclose([stage.time for stage in found[1:]], TIMES, rtol=1e-4)
    losses = [float(task[0].value(torch.from_numpy(stage.p))) for stage in found]
    np.testing.assert_allclose(losses, LOSSES, rtol=1e-4)


def test_the_prediction_and_the_flow_are_as_they_were(task):
    loss, start = task
    end = 1.1 * TIMES[-1] * 16 * math.log(10)
    predicted = staged_flow(
        loss, start, end, threshold=THRESHOLD, stationary=1e-4, max_events=50, **SOLVER
    )
    flow = with_events(log_flow(loss, start, end, **SOLVER), start, THRESHOLD)
    measured = [event for _, events in flow for event in events]
    for events, wanted in ((list(predicted), PREDICTED), (measured, MEASURED)):
        assert [(e.coordinate, e.sign, e.rises) for e in events] == [
            (i, s, True) for i, s in EVENTS
        ]
        np.testing.assert_allclose([e.time for e in events], wanted, rtol=1e-3)


JOINED = [(5, 1), (2, -1), (0, -1), (3, -1)]
TIMES = [12.67357, 25.92955, 37.60993, 44.46438]
LOSSES = [0.0575169, 0.0405705, 0.024981, 0.0106827, 0.00454779]
EVENTS = [(5, 1), (2, -1), (0, -1), (3, -1)]
PREDICTED = [445.622, 928.473, 1376.192, 1657.582]
MEASURED = [445.852, 928.564, 1376.23, 1657.908]
