"""The plateaus of learning by stages, on cases that can be worked out by hand."""

import math

import numpy as np
import pytest

from lib.gradual_rank.greedy import stability_limit, strong_minimum

INF = math.inf


def array(*values):
    return np.array(values, dtype=float)


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
    assert min(ratios) == pytest.approx(
        in_weights, rel=1e-3
    )  # the largest c of L >= L* + c |u - u*|²
    assert strong_minimum(np.empty((0, 0)), array()) == (INF, INF)
