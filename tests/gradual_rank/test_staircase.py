"""The plateaus of learning by stages, on cases that can be worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.greedy import stability_limit, strong_minimum
from lib.gradual_rank.measures import plateau_errors, relative_gaps

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


def stages(rows):
    """Stages of one seed: time, what joins, products, loss, gap; the next stage's time follows."""
    columns = ["time", "coordinate", "p", "loss", "gap"]
    table = pd.DataFrame(rows, columns=columns).assign(seed=3, stage=range(len(rows)))
    supports = pd.Series([np.array(p) != 0 for p in table["p"]])
    return table.assign(
        next_time=[*table["time"][1:], INF], support=supports, p=table["p"].map(np.array)
    )


STAGES = [
    (0.0, -1, [0.0, 0, 0], 1.0, 0.5),
    (2.0, 1, [0, 0.5, 0], 0.7, 0.1),
    (2.5, 0, [0.3, 0.6, 0], 0.4, 1.0),
    (5.0, 2, [0, 0.6, 0.9], 0.1, INF),
]


def test_the_relative_gap_is_the_least_over_the_stages_that_something_follows():
    assert relative_gaps(stages(STAGES)).to_dict() == {3: pytest.approx(0.1 / 2.5)}


def plateaus(scale, losses, products):
    table = pd.DataFrame(
        {"stage": range(len(losses)), "loss": losses, "p": [array(*p) for p in products]}
    )
    return table.assign(seed=3, log10_init_scale=scale)


def test_the_errors_of_plateaus_are_those_in_loss_and_products_the_last_of_the_last_that_lasts():
    flow = plateaus(
        -8.0, [9.0, 0.72, 0.41, 0.5], [[0, 0, 0], [0, 0.5, 0.1], [0.3, 0.8, 0], [0, 0.6, 0.4]]
    )
    [found] = plateau_errors(stages(STAGES), flow, lasting=0.5).to_dict("records")
    assert found["plateau_loss_error"] == pytest.approx(0.02)  # of 0.02, 0.01 and 0.4
    assert found["plateau_product_error"] == pytest.approx(0.2)
    assert found["final_product_error"] == pytest.approx(0.5)  # of stage 3, which lasts for ever
    [found] = plateau_errors(stages(STAGES), flow.iloc[:2], lasting=0.5).to_dict("records")
    assert math.isnan(found["final_product_error"])  # stage 1 lasts a quarter of its time
