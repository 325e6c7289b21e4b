"""What the flow and Algorithm 1 have in common on plateaus, on cases that can be worked out by
hand.
"""

import math

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.measures import (
    by_scale,
    charge_constants,
    departed,
    measures_by_scale,
    of_products,
    plateau_distances,
    same_supports,
    stage_measures,
)

KEY = ["seed", "log10_init_scale"]


def array(*values):
    return np.array(values, dtype=float)


# Stage, time, next time, p, g, charge, dropped. The second stage has no duration.
STAGES = pd.DataFrame(
    [
        (3, 0, 0.0, 2.0, array(0, 0, 0), array(-0.5, 0.25, 0.1), array(0, 0, 0), []),
        (3, 1, 2.0, 2.0, array(-0.5, 0, 0), array(0, 0.3, 0), array(-1, 0.5, 0.2), []),
        (3, 2, 2.0, 4.0, array(-0.5, 0.4, 0), array(0, 0, 0.2), array(-1, 1, 0.2), []),
        (3, 3, 4.0, math.inf, array(0, 0.6, 0.9), array(0.2, 0, 0), array(-1, 1, 0.6), [0]),
    ],
    columns=["seed", "stage", "time", "next_time", "p", "g", "charge", "dropped"],
)
STAGES = STAGES.assign(
    support=[p != 0 for p in STAGES["p"]],
    n_dropped=STAGES["dropped"].map(len),
    residual=[0, 3e-7, 1e-7, 2e-7],
    strictness_products=[math.inf, 0.5, 0.2, 0.3],
    strictness_weights=[math.inf, 0.1, 0.4, 0.3],
    loss=[1, 0.9, 0.5, 0.6],
)


def plateaus(scale, **columns):
    table = pd.DataFrame({"stage": range(4), "rescaled_time": [1.0, 2.0, 3.0, 5.0], **columns})
    return table.assign(seed=3, log10_init_scale=scale)


@pytest.fixture
def flow():
    """At 1e-8 the supports are Algorithm 1's on the third plateau, and its charges are off by
    halves of 1 / log.
    """
    L = 8 * math.log(10)
    p = [array(0, 0, 0), array(1, 0, 0), array(0.7, -0.3, 0), array(0.4, 0.5, 0.8)]
    theory = [array(-1, 0.8, 0.2), array(-1, 0.5, 0.2), array(-1, 1, 0.4), array(-0.8, 1, 0.6)]
    charge = [where + np.array([0.5, 1, 0.25]) / L for where in theory]
    return plateaus(-8.0, p=p, charge=charge)


def test_supports_are_compared_on_every_plateau_that_has_a_middle(flow):
    none = plateaus(-4.0, p=[array(0.5, 0.5, 0.5)] * 4)
    found = same_supports(STAGES, pd.concat([flow, none]), significant=0.25)
    assert found.to_dict("list") == {
        "seed": [3, 3],
        "log10_init_scale": [-8.0, -4.0],
        "same": [0.5, 0.0],
    }


def test_charges_move_at_g_off_the_support_and_stay_on_it(flow):
    assert charge_constants(STAGES, flow)["constant"].tolist() == pytest.approx([0.5])
    assert list(charge_constants(STAGES, flow.iloc[:1])) == [*KEY, "constant"]
    both = plateau_distances(STAGES, flow, 0.25)
    assert both.to_dict("list") == {
        "seed": [3],
        "log10_init_scale": [-8.0],
        "same": [0.5],
        "constant": [pytest.approx(0.5)],
    }


def test_what_leaves_is_pulled_back_by_g_over_the_first_gradient():
    [found] = departed(STAGES).to_dict("records")
    assert found == {"seed": 3, "stage": 3, "coordinate": 0, "pull": pytest.approx(0.2 / 0.5)}
    assert list(departed(STAGES.iloc[:3])) == ["seed", "stage", "coordinate", "pull"]


def test_the_measures_of_stages_leave_the_start_out_of_what_has_no_plateau():
    found = {name: values.to_dict() for name, values in stage_measures(STAGES).items()}
    assert found == {
        "last_loss": {3: 0.6},
        "coordinates_that_leave": {3: 1},
        "strictness_weights": {3: 0.1},
    }


def test_measures_are_by_scale_and_seed_where_they_were_taken():
    rows = [
        (2, -8.0, 0.5),
        (1, -8.0, 0.25),
        (1, -1.0, 0.75),
        (2, -1.0, math.nan),
        (1, -300.0, math.nan),
    ]
    table = pd.DataFrame(rows, columns=[*KEY, "same"])
    found = by_scale(table, "same")
    assert {scale: values.to_dict() for scale, values in found.items()} == {
        "1e-1": {1: 0.75},
        "1e-8": {1: 0.25, 2: 0.5},
    }
    assert list(found) == ["1e-1", "1e-8"]
    assert list(measures_by_scale(table)) == ["supports"]


def test_products_have_the_stable_ranks_of_their_updates_by_time():
    rows = [
        ("W_KQ", "update", 4, [2.0, 2.0]),
        ("W_VO", "initial", 4, [1.0, 1.0]),
        ("W_K", "update", 4, [1.0, 0.0]),
    ]
    rows += [("W_VO", "update", 8, [3.0, 0.0])]
    spectra = pd.DataFrame(rows, columns=["matrix", "of", "step", "singular_values"])
    spectra = spectra.assign(seed=1, log10_init_scale=-2.0, learning_rate=0.5)
    spectra["singular_values"] = spectra["singular_values"].map(np.array)
    found = of_products(spectra)
    assert found["matrix"].tolist() == ["W_KQ", "W_VO"]
    assert found["time"].tolist() == [2, 4]
    assert found["rescaled_time"].tolist() == pytest.approx([1 / math.log(10), 2 / math.log(10)])
    assert found["stable_rank"].tolist() == [2, 1]
