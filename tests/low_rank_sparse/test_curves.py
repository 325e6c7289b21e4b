"""Exponents of power laws come back, and curves are summed up as their definitions say."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.low_rank_sparse.measures import (
    by_value,
    exponents,
    least_rise,
    log_log_slope,
    nearest,
    needed,
    numbers_needed,
    one_sweep,
)


def test_the_exponent_of_a_power_law_comes_back():
    x = [0.3, 1.0, 2.0, 7.0]
    assert log_log_slope(x, [5 * value**-1.5 for value in x]) == pytest.approx(-1.5)


def test_it_is_numpys_least_squares_fit():
    rng = np.random.default_rng(0)
    x, y = np.exp(rng.normal(size=(2, 20)))
    assert log_log_slope(x.tolist(), y.tolist()) == pytest.approx(
        np.polyfit(np.log(x), np.log(y), 1)[0]
    )


@pytest.mark.parametrize(
    ("x", "y"), [([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 2.0]), ([-1.0, 2.0], [1.0, 2.0])]
)
def test_what_has_no_slope_is_refused(x, y):
    with pytest.raises(ValueError, match="wanted positive values at two different x or more, got"):
        log_log_slope(x, y)


def test_of_values_as_near_the_lower_is_nearest():
    assert nearest([0.75, 0.25, 0.5], 0.3) == 0.25
    assert nearest([0.75, 0.25, 0.5], 0.625) == 0.5


def test_each_seed_has_its_exponent_or_none():
    rows = [
        {"seed": seed, "x": x, "y": 3 * x**power}
        for seed, power in ((4, 2), (1, -1))
        for x in (1.0, 2.0, 5.0)
    ]
    rows += [
        {"seed": 2, "x": 1.0, "y": 1.0},
        {"seed": 3, "x": 1.0, "y": 1.0},
        {"seed": 3, "x": 2.0, "y": -1.0},
    ]
    found = exponents(pd.DataFrame(rows), "x", "y").to_dict()
    assert found == pytest.approx({1: -1, 2: math.nan, 3: math.nan, 4: 2}, nan_ok=True)


def test_a_loss_of_order_r_rises_by_a_constant_times_r_and_one_that_is_high_at_once_does_not():
    hinge = pd.DataFrame(
        {0.0: [0.0, 0.97], 0.1: [0.0, 0.97], 0.3: [0.2, 0.98], 0.9: [0.9, 1.0]}, index=[4, 1]
    )
    assert least_rise(hinge, 0.3).to_dict() == pytest.approx({4: 0.2 / 0.3, 1: 0.01 / 0.3})
    assert least_rise(hinge, 0.0).to_dict() == pytest.approx({4: 0.0, 1: 0.0})


def test_small_and_large_neurons_that_change_places_break_both_halves_of_corollary_1():
    """Without the large ones in their stead the loss is high at once, and the small ones then add
    nothing.
    """
    added = np.array([0.0] * 4 + [0.3] * 4)  # what each neuron adds to the margin of 1.2

    def losses(first, then):
        margin = added.sum() - added[first].sum()
        return {n / 4: max(0, 1 - (margin - added[then[:n]].sum())) for n in range(4)}

    right, swapped = losses(range(4), list(range(4, 8))), losses(range(4, 8), list(range(4)))
    table = pd.DataFrame([right, swapped], index=["right", "swapped"])
    assert table[0.0].to_dict() == {"right": 0, "swapped": 1}
    rises = least_rise(table, 0.3)
    assert rises["right"] > 0.5
    assert rises["swapped"] == 0


@pytest.mark.parametrize(
    ("losses", "number"),
    [
        ([0.4, 0.1, 0.025], 2 * 2**0.5 * 2**0.5),  # at a number that was tried
        ([0.4, 0.2, 0.05], 4 * 2**0.5),  # halfway between 0.2 and 0.05, in logarithms
        ([0.1, 0.05, 0.0], 2),
        ([0.05, 0.2, 0.05], 4 * 2**0.5),
        ([0.4, 0.2, 0.11], math.nan),
        ([0.4, 1.0, 0.0], 4 * 2 ** (1 / 3)),  # no loss counts as a hundredth of the threshold
    ],
)
def test_so_many_samples_are_needed_from_which_on_the_loss_is_low(losses, number):
    assert needed([2, 4, 8], losses, 0.1) == pytest.approx(number, nan_ok=True)


def test_each_seed_and_share_needs_its_number_of_samples():
    rows = [
        {
            "sweep": "a",
            "n_relevant": share,
            "seq_len": 9,
            "seed": seed,
            "n_train": n,
            "hinge": 1 / (n * share + seed),
        }
        for share in (1, 2)
        for seed in (0, 1)
        for n in (8, 2, 4)
    ]
    found = numbers_needed(pd.DataFrame(rows), 0.2).set_index(["n_relevant", "seed"])["n_needed"]
    assert found[1, 0] == pytest.approx(5)
    assert found[2, 0] == pytest.approx(2.5)
    assert found[1, 1] < found[1, 0]


def test_a_column_stands_by_value_and_seed():
    table = pd.DataFrame({"value": [10.0, 0.01, 10.0], "seed": [5, 3, 4], "x": [1, 2, 3]})
    found = by_value(table, "x")
    assert list(found) == ["0.01", "10"]
    assert found["10"].to_dict() == {4: 3.0, 5: 1.0}


SWEPT = {
    "permuted": False,
    "hinge": 0.1,
    "hinge_at_rank_2": 0.3,
    "hinge_at_rank_below": 0.5,
    "hinge_at_rank_k": 0.2,
    "small_share": 0.6,
    "large_over_small": 3.0,
}
# energy, energy_2 and gap of each matrix
OF_MATRICES = {
    "W_Q": (0.8, 0.73, 0.1),
    "W_K": (0.9, 0.62, 0.4),
    "W_V": (0.85, 0.54, 0.25),
    "W_O": (0.7, 0.81, 0.35),
}


def swept(**changed):
    """What one sweep of one training shows, of its only value and seed."""
    keys = ("energy", "energy_2", "gap")
    of_matrices = {
        f"{name}_{key}": value
        for name, values in OF_MATRICES.items()
        for key, value in zip(keys, values, strict=True)
    }
    row = {"varies": "noise", "value": 2.0, "seed": 7, **SWEPT, **of_matrices, **changed}
    found = one_sweep(pd.DataFrame([row]))
    assert all(list(by) == ["2"] and list(by["2"].index) == [7] for by in found.values())
    return {name: by["2"][7] for name, by in found.items()}


def test_of_matrices_that_are_judged_together_the_worse_counts():
    both = {"rank_2_cost": 0.2, "energy_QK": 0.8, "gap_QK": 0.4}
    assert swept() == pytest.approx(both | {"small_share": 0.6, "large_over_small": 3.0})
    labelled = {"energy_2_VO": 0.54, "hinge_at_rank_below": 0.5, "hinge_at_rank_k": 0.2}
    assert swept(varies="labels") == pytest.approx(both | labelled)


def test_of_a_null_the_matrix_counts_that_is_nearest_to_low_rank():
    assert swept(varies="labels", permuted=True) == pytest.approx({"gap_QK": 0.1})
