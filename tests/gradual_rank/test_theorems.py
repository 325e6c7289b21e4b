"""Theorem 4.5 of Boix-Adserà et al. (2023) in numbers: the flow follows Algorithm 1 up to C / log(1
/ init_scale).
"""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogCoordinates, log_flow, with_events
from lib.gradual_rank.greedy import greedy

SEEDS = [2, 3]
LOG_SCALES = [scale * math.log(10) for scale in (16, 32, 64)]
THRESHOLD = 1e-2
SOLVER = {"rtol": 1e-5, "atol": 1e-3}


class Toy:
    """A head of 4 + 4 products that learns a random teacher: its stages, and the flows to half way
    from the last stage to the next, or long after it.
    """

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        X = torch.randn(50, 5, 4, generator=g, dtype=torch.float64)
        w = torch.randn(4, 8, generator=g, dtype=torch.float64)
        self.loss = DiagonalHead(X, diagonal_head(X, w[0] * w[1]))
        self.weights = w[2:].numpy()
        self.stages = []
        at_rest = 1e-3 * self.loss.value(torch.zeros(8).double())
        for stage in greedy(self.loss, 8, kick=1e-5, stationary=1e-5, **SOLVER):
            self.stages.append(stage)
            if self.loss.value(torch.from_numpy(stage.p)) < at_rest:
                break
        self.ends = {}
        self.flows = {log_scale: self.flow(log_scale) for log_scale in LOG_SCALES}

    def flow(self, log_scale):
        """When each coordinate first rises."""
        last = self.stages[-1]
        end = last.time * log_scale
        end += min(60 * last.time, (last.next_time - last.time) / 2 * log_scale)
        start = LogCoordinates.of(*self.weights, -log_scale)
        events = []
        for step, found in with_events(log_flow(self.loss, start, end, **SOLVER), start, THRESHOLD):
            events += found
            self.ends[log_scale] = start.products(step.state)
        return {e.coordinate: e.time / log_scale for e in reversed(events) if e.rises}

    def errors(self, log_scale):
        """How far the rises are from Algorithm 1's, of the coordinates that it makes large."""
        large = np.max([np.abs(stage.p) for stage in self.stages], axis=0) > 2 * THRESHOLD
        joins = {stage.coordinate: stage.time for stage in reversed(self.stages[1:])}
        these = [i for i in joins if large[i]]
        assert len(these) > 3
        rises = self.flows[log_scale]
        return np.array([abs(rises[i] - joins[i]) / joins[i] for i in these])


@pytest.fixture(scope="module")
def toys():
    return [Toy(seed) for seed in SEEDS]


def test_activation_times_are_algorithm_1s_up_to_a_constant_over_the_logarithm(toys):
    medians = []
    for log_scale in LOG_SCALES:
        errors = [toy.errors(log_scale) for toy in toys]
        assert max(one.max() for one in errors) < 4 / log_scale
        medians.append(np.median(np.concatenate(errors)))
    for error, of_the_scale_squared in itertools.pairwise(medians):
        assert 0.4 < of_the_scale_squared / error < 0.6
    assert medians[0] < 1 / LOG_SCALES[0]


def test_the_flow_ends_where_algorithm_1_ends(toys):
    for toy in toys:
        np.testing.assert_allclose(toy.ends[LOG_SCALES[-1]], toy.stages[-1].p, atol=1e-3)
