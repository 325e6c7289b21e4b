"""Theorem 4.5 of Boix-Adserà et al. (2023) in numbers: the flow follows Algorithm 1 up to C / log(1
/ init_scale).
"""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogCoordinates, log_flow, staged_flow, with_events
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

    def start(self, log_scale):
        """The start and the end."""
        last = self.stages[-1]
        more = min(60 * last.time, (last.next_time - last.time) / 2 * log_scale)
        return LogCoordinates.of(*self.weights, -log_scale), last.time * log_scale + more

    def flow(self, log_scale):
        """When each coordinate first rises."""
        start, end = self.start(log_scale)
        events = []
        for step, found in with_events(log_flow(self.loss, start, end, **SOLVER), start, THRESHOLD):
            events += found
            self.ends[log_scale] = start.products(step.state)
        return rises(events, log_scale)

    def errors(self, found, of):
        """How far others' rises are from these, of the coordinates that Algorithm 1 makes large."""
        large = np.max([np.abs(stage.p) for stage in self.stages], axis=0) > 2 * THRESHOLD
        these = [i for i in of if large[i]]
        assert len(these) > 3
        return np.array([abs(found[i] - of[i]) / of[i] for i in these])

    @property
    def predicted(self):
        """When Algorithm 1 says that each coordinate first joins."""
        return {stage.coordinate: stage.time for stage in reversed(self.stages[1:])}


def rises(events, log_scale):
    return {event.coordinate: event.time / log_scale for event in reversed(events) if event.rises}


@pytest.fixture(scope="module")
def toys():
    return [Toy(seed) for seed in SEEDS]


def test_activation_times_are_algorithm_1s_up_to_a_constant_over_the_logarithm(toys):
    medians = []
    for log_scale in LOG_SCALES:
        errors = [toy.errors(toy.flows[log_scale], toy.predicted) for toy in toys]
        assert max(one.max() for one in errors) < 4 / log_scale
        medians.append(np.median(np.concatenate(errors)))
    for error, of_the_scale_squared in itertools.pairwise(medians):
        assert 0.4 < of_the_scale_squared / error < 0.6
    assert medians[0] < 1 / LOG_SCALES[0]


def test_the_flow_ends_where_algorithm_1_ends(toys):
    for toy in toys:
        np.testing.assert_allclose(toy.ends[LOG_SCALES[-1]], toy.stages[-1].p, atol=1e-3)


def test_the_finite_scale_algorithm_is_within_a_thousandth_from_the_start_alone(toys):
    toy, log_scale = toys[0], LOG_SCALES[1]
    numbers = {"threshold": THRESHOLD, "stationary": 1e-6, "max_events": 100, **SOLVER}
    finite = rises([*staged_flow(toy.loss, *toy.start(log_scale), **numbers)], log_scale)
    flow = toy.flows[log_scale]
    error = np.median(toy.errors(finite, flow))
    assert error < 1e-3
    assert error < 0.1 * np.median(toy.errors(toy.predicted, flow))
