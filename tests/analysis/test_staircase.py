"""The measures of learning by stages, on cases that can be worked out by hand."""

import math

import numpy as np
import pytest

from lib.analysis.staircase import (
    grows_by_one,
    order_agreement,
    rank_at,
    relative_errors,
    stability_limit,
    strong_minimum,
)

INF = math.inf


def array(*values):
    return np.array(values, dtype=float)


def test_an_activation_that_never_came_has_an_error_of_1():
    found = relative_errors(array(1.1, INF, 1.5), array(1, 2, 3), array(1, 2, 3))
    np.testing.assert_allclose(found, [0.1, 1, 0.5], rtol=1e-12)


@pytest.mark.parametrize(
    ("measured", "wanted"),
    [
        ((1, 2, 3, 4), 1),
        ((4, 3, 2, 1), -1),
        ((2, 1, 3, 4), 2 / 3),
        ((1, 2, 3, INF), 1),
        ((INF, 2, 3, 4), 0),
        ((INF, INF, INF, INF), 0),
    ],
)
def test_the_agreement_of_orders_is_the_share_of_pairs_in_order_less_that_out_of_it(measured, wanted):
    assert order_agreement(array(*measured), array(1, 2, 3, 4)) == pytest.approx(wanted)


def test_a_single_activation_is_in_order():
    assert order_agreement(array(INF), array(1)) == 1


def test_the_rank_counts_those_that_joined_and_did_not_leave():
    found = rank_at(array(0, 1, 2.5, 3, 9), joins=array(3, 1, 2), leaves=array(4))
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 2])


def hessian_in_weights(H, u, v):
    """Of L(u ⊙ v) at a stationary point: J^T H J with J = (diag v, diag u)."""
    J = np.hstack([np.diag(v), np.diag(u)])
    return J.T @ H @ J


def test_the_stability_limit_is_2_over_the_sharpness_in_the_weights():
    H, p = np.array([[2.0, 0.3], [0.3, 1.0]]), array(0.5, -2)
    u = np.sqrt(np.abs(p))
    wanted = 2 / np.linalg.eigvalsh(hessian_in_weights(H, u, np.sign(p) * u))[-1]
    assert stability_limit(H, p) == pytest.approx(wanted, rel=1e-12)
    assert stability_limit(np.empty((0, 0)), array()) == INF
    assert stability_limit(-H, p) == INF


def test_a_strong_minimum_bounds_the_loss_from_below_by_its_constants():
    H, p = np.array([[2.0, 0.3], [0.3, 1.0]]), array(0.5, -2)
    in_products, in_weights = strong_minimum(H, p)
    assert in_products == pytest.approx(np.linalg.eigvalsh(H)[0])
    u, s = np.sqrt(np.abs(p)), np.sign(p)
    angles, step = np.linspace(0, 2 * math.pi, 3601), 1e-5
    ratios = []
    for angle in angles:
        d = step * array(math.cos(angle), math.sin(angle))
        off = s * (u + d) ** 2 - p
        ratios.append(off @ H @ off / 2 / step**2)
    assert min(ratios) == pytest.approx(in_weights, rel=1e-3)  # the largest c of L >= L* + c |u - u*|²
    assert strong_minimum(np.empty((0, 0)), array()) == (INF, INF)


@pytest.mark.parametrize(
    ("after", "grows"),
    [((1, 0, 1, 0), True), ((0, 0, 1, 0), True), ((1, 0, 0, 0), True), ((1, 0, 1, 1), False), ((1, 1, 0, 0), False)],
)
def test_a_support_may_gain_the_coordinate_that_joined_and_lose_any(after, grows):
    before = np.array([1, 0, 0, 0], bool)
    assert grows_by_one(before, np.array(after, bool), joined=2) == grows
