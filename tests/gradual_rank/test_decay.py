"""Weight decay: the halves of products against u and v themselves, Algorithm 1 with decay against
hand-made cases, and rest against the problems that it solves.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.decay import (
    Decayed,
    balance,
    rest_error,
    ridge_error,
    spectral_rest,
)
from lib.gradual_rank.diagonal_heads import Quadratic
from lib.gradual_rank.greedy import greedy

NUMBERS = {"kick": 1e-5, "stationary": 1e-5, "rtol": 1e-5, "atol": 1e-4}
H = torch.tensor([[1, 0, 0.65], [0, 1, 0.65], [0.65, 0.65, 1]], dtype=torch.float64)
MINIMUM = torch.tensor([1, 0.8, -0.2], dtype=torch.float64)
LAMBDA = 0.04


def stages(loss, decay, at_most=20):
    """What joins by Algorithm 1 with decay: product, sign, time and plateau; and the last next
    time.
    """
    every = greedy(Decayed(loss, decay), 2 * loss.size, lowest=-math.inf, **NUMBERS)
    found = list(itertools.islice(every, at_most))
    n = loss.size
    rows = [
        (s.coordinate % n, 1 if s.coordinate < n else -1, s.time, s.p[:n] - s.p[n:])
        for s in found[1:]
    ]
    return rows, found[-1].next_time


def test_without_decay_the_stages_of_halves_are_those_of_products():
    plain = list(itertools.islice(greedy(Quadratic(H, MINIMUM), 3, **NUMBERS), 20))
    rows, last = stages(Quadratic(H, MINIMUM), 0.0)
    assert [row[:2] for row in rows] == [(s.coordinate, s.sign) for s in plain[1:]]
    np.testing.assert_allclose([row[2] for row in rows], [s.time for s in plain[1:]], rtol=1e-7)
    np.testing.assert_allclose([row[3] for row in rows], [s.p for s in plain[1:]], atol=1e-7)
    assert last == math.inf


def test_each_product_alone_joins_at_1_over_its_slope_less_the_decay_and_rests_below_its_minimum():
    minimum = torch.tensor([0.5, -2, 1, 0.03, 0], dtype=torch.float64)
    rows, last = stages(Quadratic(torch.eye(5, dtype=torch.float64), minimum), LAMBDA)
    assert [row[:2] for row in rows] == [(1, -1), (2, 1), (0, 1)]
    np.testing.assert_allclose([row[2] for row in rows], [1 / 1.96, 1 / 0.96, 1 / 0.46])
    np.testing.assert_allclose(rows[-1][3], [0.46, -1.96, 0.96, 0, 0], atol=1e-9)
    assert last == math.inf
    assert stages(Quadratic(torch.eye(5, dtype=torch.float64), minimum), 2.01) == ([], math.inf)


def test_the_last_plateau_is_the_minimum_with_the_1_norm():
    """Of a random convex quadratic, by many steps of soft thresholding."""
    draw = np.random.default_rng(5)
    A = draw.normal(size=(6, 6))
    M = A @ A.T / 6 + 0.2 * np.eye(6)
    target = draw.normal(size=6)
    decay = 0.4 * np.abs(M @ target).max()
    p = np.zeros(6)
    rate = 1 / np.linalg.eigvalsh(M)[-1]
    for _ in range(5000):
        moved = p + rate * M @ (target - p)
        p = np.sign(moved) * np.maximum(np.abs(moved) - rate * decay, 0)
    assert 0 < (p != 0).sum() < 6
    rows, _ = stages(Quadratic(torch.from_numpy(M), torch.from_numpy(target)), decay)
    np.testing.assert_allclose(rows[-1][3], p, atol=1e-8)
    g = M @ (target - p)
    assert rest_error(g, p, decay) < 1e-9
    assert rest_error(g, target, decay) > 0.1
    assert rest_error(1.5 * g, p, decay) == pytest.approx(0.5)
    assert ridge_error(decay * p, p, decay) == 0
    assert ridge_error(g, p, decay) == pytest.approx(np.abs(g / decay - p).max())


def test_a_product_at_rest_has_the_gradient_of_the_nuclear_norm_and_balanced_factors():
    draw = torch.Generator().manual_seed(2)
    U, V, R = (
        torch.linalg.qr(torch.randn(4, 4, generator=draw, dtype=torch.float64)).Q for _ in range(3)
    )
    sigma = torch.tensor([3.0, 1.0, 0, 0], dtype=torch.float64)
    W = (U * sigma) @ V.mT
    values = torch.tensor([0.5, 0.5, 0.3, -0.1], dtype=torch.float64)
    G = (U * values) @ V.mT
    on, off = spectral_rest(W, G, torch.tensor(0.5, dtype=torch.float64), 0.1)
    assert float(on) == pytest.approx(0, abs=1e-12)
    assert float(off) == pytest.approx(0, abs=1e-12)
    on, off = spectral_rest(W, 1.2 * G, torch.tensor(0.5, dtype=torch.float64), 0.1)
    assert (float(on), float(off)) == (pytest.approx(0.2), pytest.approx(0.2))
    on, _ = spectral_rest(W, 1.2 * G, torch.tensor(0.5, dtype=torch.float64), 5.0)
    assert float(on) == 0  # nothing has risen
    P, Q = (U * sigma.sqrt()) @ R, (V * sigma.sqrt()) @ R
    assert float(balance(torch.stack([P, Q]))) == pytest.approx(1)
    # (‖P‖² + ‖Q‖²)/2 = (8 · 4 + 4/2)/2 with P twice as large and Q half as large
    assert float(balance(torch.stack([2 * P, Q / 2]))) == pytest.approx((4 + 1 / 4) / 2)
