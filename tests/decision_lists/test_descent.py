"""A descent takes steps that fit the curvature of its own way, which is looked at where it is
large.
"""

import math
from itertools import pairwise

import pytest
import torch

from lib.decision_lists.descent import (
    WIDEST,
    Solver,
    compliant_descent,
    largest_between,
)


def quartic(weights):
    """x^4 / 4, whose curvature 3 x^2 is largest where |x| is."""
    x = weights["x"]
    return (x**4).sum() / 4, {"x": x**3}


def descend(curvature, loss=quartic, until=0.5, **changed):
    settings = {
        "spare": 0.01,
        "tolerance": 1e-3,
        "n_checked": 9,
        "max_steps": 1000,
        "max_repeats": 20,
        "lanczos_iterations": 2,
    } | changed
    start = {"x": torch.tensor([2.0], dtype=torch.float64)}

    def right(weights):
        return float(weights["x"]) < until

    return compliant_descent(loss, start, ["x"], right, curvature, Solver(**settings))


def bump(weights, _):
    """A curvature with a top of 40 at x = 1.6, within the first steps."""
    return 4 + 36 * math.exp(-(((float(weights["x"]) - 1.6) / 0.3) ** 2))


def test_a_descent_is_repeated_until_its_step_fits_the_top_of_the_curvature_on_its_way():
    found = descend(bump, until=1.2)
    assert found.largest == pytest.approx(40, rel=2e-3)
    assert found.on_a_finer_grid <= 40
    assert found.step_size * found.largest <= 1
    with pytest.raises(
        ArithmeticError, match="wanted a step size that fits the curvature, got none in 1 descents"
    ):
        descend(bump, until=1.2, max_repeats=1)


def test_a_top_that_the_finer_grid_alone_sees_is_fitted_too():
    def sharp(weights, known):
        return 40.0 if known == 0 and abs(float(weights["x"]) - 1.95) < 0.02 else 4.0

    found = descend(sharp, until=1.2, n_checked=200)
    assert found.step_size <= 1 / 40


def test_calm_segments_are_left_out_ever_more_and_no_more_once_the_curvature_moves():
    looks = []

    def curvature(weights, _):
        looks.append(float(weights["x"]))
        return 100.0 if looks[-1] > 1.999 else 1.0

    found = descend(curvature, loss=lambda w: ((w["x"] ** 2).sum() / 2, {"x": w["x"]}), until=0.05)
    seen = [i for i, value in enumerate(found.curvatures) if not math.isnan(value)]
    gaps = [b - a for a, b in pairwise(seen)]
    assert gaps[:7] == [1, 1, 2, 4, 8, 16, 32]
    assert max(gaps) == WIDEST
    assert len(found.curvatures) == len(found.steps)


def test_the_largest_between_two_points_is_found_where_both_ends_are_low():
    def value(share, known):
        return 1 + 5 * math.exp(-(((share - 0.4) / 0.1) ** 2))

    best, last = largest_between(value, value(0, 0), 1.0, 1e-3)
    assert best == pytest.approx(6, rel=1e-3)
    assert last == value(1, 0)
