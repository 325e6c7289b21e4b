"""Theorem 4.5 of Boix-Adserà et al. (2023) in numbers: the flow follows Algorithm 1 up to C / log(1
/ init_scale).
"""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.activation_times import order_agreement, relative_errors
from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogCoordinates, log_flow, staged_flow
from lib.gradual_rank.greedy import greedy, strong_minimum
from lib.training.stiff_flow import crossing_of

SEEDS = [2, 3]
LOG10_SCALES = [-16, -32, -64]
THRESHOLD = 1e-2
SOLVER = {"rtol": 1e-5, "atol": 1e-3}


class Toy:
    """A head of 4 + 4 products that learns a random teacher: its stages, and the flows to a little
    after the last.
    """

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        X, w = (
            torch.randn(*size, generator=g, dtype=torch.float64) for size in ((50, 5, 4), (4, 8))
        )
        self.loss, self.u, self.v = (
            DiagonalHead(X, diagonal_head(X, w[0] * w[1])),
            w[2].numpy(),
            w[3].numpy(),
        )
        self.stages = []
        for stage in greedy(self.loss, 8, kick=1e-5, stationary=1e-5, **SOLVER):
            self.stages.append(stage)
            if self.relative_loss(stage.p) < 1e-3 or stage.k == 12:
                break
        self.flows = {scale: self.flow(scale) for scale in LOG10_SCALES}

    def relative_loss(self, p):
        return float(
            self.loss.value(torch.from_numpy(p))
            / self.loss.value(torch.zeros(8, dtype=torch.float64))
        )

    def start(self, log10_scale):
        log_scale = log10_scale * math.log(10)
        return LogCoordinates.of(self.u, self.v, log_scale), -log_scale

    def end(self, log_scale):
        """Half way to the stage after the last, or long after the last."""
        last = self.stages[-1]
        return last.time * log_scale + min(
            60 * last.time, (last.next_time - last.time) / 2 * log_scale
        )

    def flow(self, log10_scale):
        """First activation times over log(1 / init_scale), and the last products."""
        start, log_scale = self.start(log10_scale)
        level, times = start.level(THRESHOLD), np.full(8, np.inf)
        for step in log_flow(self.loss, start, self.end(log_scale), **SOLVER):
            for i in np.flatnonzero((np.abs(step.origin) < level) & (np.abs(step.state) >= level)):
                root = crossing_of(step, int(i), float(np.copysign(level[i], step.state[i])))
                times[i] = min(times[i], root / log_scale)
            last = step.state
        return times, start.products(last)

    def predicted(self):
        """Coordinates whose product is ever above the threshold, and when Algorithm 1 says that
        they join.
        """
        large = np.max([np.abs(stage.p) for stage in self.stages], axis=0) > 2 * THRESHOLD
        first = {}
        for stage in self.stages[1:]:
            if large[stage.coordinate]:
                first.setdefault(stage.coordinate, stage.time)
        return np.array(list(first)), np.array(list(first.values()))

    def errors(self, log10_scale):
        which, times = self.predicted()
        return relative_errors(self.flows[log10_scale][0][which], times, times)


@pytest.fixture(scope="module")
def toys():
    return [Toy(seed) for seed in SEEDS]


def test_activation_times_are_those_of_algorithm_1_up_to_a_constant_over_the_logarithm(toys):
    constants = []
    for toy in toys:
        for scale in LOG10_SCALES:
            scaled = toy.errors(scale) * -scale * math.log(10)
            constants.append(np.median(scaled))
            assert np.median(scaled) < 2
            assert np.max(scaled) < 4
    assert np.median(constants) < 1


def test_the_error_halves_where_the_scale_is_squared(toys):
    median = {
        scale: np.median(np.concatenate([toy.errors(scale) for toy in toys]))
        for scale in LOG10_SCALES
    }
    for scale, squared in itertools.pairwise(LOG10_SCALES):
        assert 0.4 < median[squared] / median[scale] < 0.6


def test_coordinates_join_in_the_order_of_algorithm_1(toys):
    for toy in toys:
        which, times = toy.predicted()
        assert order_agreement(toy.flows[-64][0][which], times) >= 0.97


def test_the_flow_ends_where_algorithm_1_ends(toys):
    for toy in toys:
        np.testing.assert_allclose(toy.flows[-64][1], toy.stages[-1].p, atol=1e-3)
        assert toy.relative_loss(toy.flows[-64][1]) < 2e-3


def test_a_stage_adds_at_most_its_own_coordinate_to_the_support(toys):
    for toy in toys:
        for before, after in itertools.pairwise(toy.stages):
            gained = np.flatnonzero(after.support & ~before.support)
            assert set(gained.tolist()) <= {after.coordinate}
            assert after.support.sum() <= before.support.sum() + 1


def test_every_stage_is_a_strict_minimum_on_its_support_with_one_next_coordinate(toys):
    for toy in toys:
        for stage in toy.stages[1:]:
            on = np.flatnonzero(stage.support)
            H = toy.loss.hessian(torch.from_numpy(stage.p), torch.from_numpy(on)).numpy()[on]
            assert min(strong_minimum(H, stage.p[on])) > 0
            assert stage.residual < 1e-6
            assert stage.gap > 0


def test_the_finite_scale_algorithm_is_within_a_thousandth_from_the_start_alone(toys):
    toy = toys[0]
    which, _ = toy.predicted()
    start, log_scale = toy.start(-32)
    first = {}
    for event in staged_flow(
        toy.loss,
        start,
        toy.end(log_scale),
        threshold=THRESHOLD,
        stationary=1e-6,
        max_events=100,
        **SOLVER,
    ):
        if event.rises:
            first.setdefault(event.coordinate, event.time / log_scale)
    measured = toy.flows[-32][0][which]
    errors = relative_errors(np.array([first[i] for i in which]), measured, measured)
    assert np.median(errors) < 1e-3
    assert np.median(errors) < 0.1 * np.median(toy.errors(-32))


def test_with_the_sign_of_the_gradient_flipped_nothing_of_this_holds(toys):
    class Flipped(DiagonalHead):
        def gradient(self, p):
            return -super().gradient(p)

    toy = toys[0]
    start, log_scale = toy.start(-32)
    first_stage = toy.stages[1]
    level = start.level(THRESHOLD)
    *_, last = log_flow(
        Flipped(toy.loss.X, toy.loss.Y), start, 0.9 * first_stage.time * log_scale, **SOLVER
    )
    assert np.sign(last.state[first_stage.coordinate]) == -first_stage.sign
    assert np.abs(last.state[first_stage.coordinate]) < level[first_stage.coordinate]
