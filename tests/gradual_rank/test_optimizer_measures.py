"""Measures of optimisers, by hand from made tables."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.comparison import (
    diagonal_measures,
    few_measures,
    flow_distances,
    training_measures,
)

SCALES = (-2.0, -8.0, -4.0)


def made_runs():
    rows = []
    for seed, rank, scale in itertools.product((3, 9), (12, 3), SCALES):
        shared = {
            "seed": seed,
            "teacher_rank": rank,
            "log10_init_scale": scale,
            "growth": 0.05 * seed,
        }
        gd = {
            "optimizer": "gd",
            "first_rise": 10 - scale * math.log(10) / (0.05 * seed) * 1.01,
            "order": 0.9,
        }
        muon = {"optimizer": "muon", "first_rise": 0.25 + 0.01 * (scale == -8), "order": -1.0}
        for own in (gd, muon):
            numbers = {"separate": 0.1 * seed}
            rows.append(
                shared
                | own
                | numbers
                | {"slope_least": -scale, "slope_most": math.nan if rank == 3 else 1.0}
            )
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_delays_shares_and_orders_by_optimiser_teacher_and_scale():
    found = training_measures(made_runs())
    assert found["gd_delay_full"].to_dict() == pytest.approx({3: 1.01, 9: 1.01})
    assert found["muon_delay_change_low"].to_dict() == pytest.approx({3: 0.04, 9: 0.04})
    late = [10 + k * math.log(10) / 0.15 * 1.01 for k in (4, 8)]
    assert found["gd_delay_change_full"][3] == pytest.approx(late[1] / late[0] - 1)
    assert list(found["gd_order_full"]) == ["1e-2", "1e-4", "1e-8"]
    assert found["muon_order_low"]["1e-8"].to_dict() == {3: -1.0, 9: -1.0}
    assert found["gd_separate_low"]["1e-2"].to_dict() == pytest.approx({3: 0.3, 9: 0.9})
    assert found["muon_slope_least_full"]["1e-4"].to_dict() == {3: 4.0, 9: 4.0}
    assert found["muon_slope_most_low"] == {}


def test_few_tokens_and_noise():
    rows = [
        {
            "optimizer": name,
            "seed": seed,
            "n_samples": n,
            "noise": noise,
            "effective_rank_KQ": n + seed,
            "best_test_loss": {"gd": 0.1, "muon": 0.3}[name] * seed,
        }
        for name, seed, (n, noise) in itertools.product(
            ("muon", "gd"), (1, 2), ((1, 0.0), (20, 0.5))
        )
    ]
    found = few_measures(pd.DataFrame(rows))
    assert found["muon_effective_rank_KQ_1"].to_dict() == {1: 2, 2: 3}
    assert found["muon_best_over_gd"].to_dict() == pytest.approx({1: 3, 2: 3})
    assert "muon_best_over_gd_1" not in found


def test_the_orders_of_the_diagonal_head():
    diagonal = pd.DataFrame(
        {
            "optimizer": ["gd", "gd", "adam", "adam", "gradient flow", "gradient flow"],
            "seed": [1, 2, 1, 2, 1, 2],
            "log10_init_scale": -4.0,
            "order": [math.nan, math.nan, -0.5, -0.6, 0.2, 0.3],
        }
    )
    found = diagonal_measures(diagonal)
    assert found["adam_order_diagonal"].to_dict() == {1: -0.5, 2: -0.6}
    assert found["flow_order_diagonal"]["1e-4"].to_dict() == {1: 0.2, 2: 0.3}


def test_distances_from_sign_flow_before_and_after_a_product_passes_zero():
    paths = [
        {
            "method": method,
            "log10_init_scale": scale,
            "seed": seed,
            "time": time,
            "p": np.array([time, -time]) + off,
        }
        for (method, scale, off), seed, time in itertools.product(
            (
                ("flow", -math.inf, 0.0),
                ("roots", -math.inf, 0.01),
                ("weights", -4.0, 9.0),
                ("weights", -8.0, 0.5),
            ),
            (1, 2),
            (0.0, 1.0, 2.0),
        )
    ]
    paths = [
        row | {"p": row["p"] * (1 + row["time"] * (row["method"] == "weights"))} for row in paths
    ]
    events = pd.DataFrame(
        {
            "seed": [1, 1, 1, 2],
            "time": [3.0, 0.2, 2.0, 0.1],
            "coordinate": [0, 1, 1, 0],
            "kind": ["passes", "slides", "passes", "turns"],
        }
    )
    distances = flow_distances(pd.DataFrame(paths), events)
    assert set(distances["method"]) == {"roots", "weights"}
    assert distances[distances["passed"]][["seed", "time"]].drop_duplicates().values.tolist() == [
        [1, 2.0]
    ]
    far = distances.groupby(["method", "log10_init_scale", "seed"])["distance"].max()
    assert far["roots"].tolist() == pytest.approx([0.01, 0.01])
    at = [
        max(abs((time + 0.5) * (1 + time) - time), abs((0.5 - time) * (1 + time) + time))
        for time in (0, 1, 2)
    ]
    assert far["weights", -8.0].tolist() == pytest.approx([max(at)] * 2)
