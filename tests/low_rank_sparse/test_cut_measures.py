"""What cuts cost and where updates lie, of small tables by hand."""

import pandas as pd
import pytest

from lib.low_rank_sparse.measures import direction_measures, neuron_measures, truncation_measures


def truncations(seed, shift):
    kinds = [("all", 0, 9), ("all", 1, 8), ("all", 2, 5), ("all", 7, 2), ("pairs 3 and 4", 2, 6)]
    kinds += [
        ("random directions", 2, 4),
        ("gaussian", 7, 11),
        ("W_Q and W_K", 0, 3),
        ("W_Q and W_K", 1, 7),
    ]
    rows = [
        {"seed": seed, "kind": kind, "rank": rank, "hinge": float(hinge + shift)}
        for kind, rank, hinge in kinds
    ]
    return [
        row | {"attention": row["hinge"] / 10, "attention_of_relevant": row["hinge"] / 5}
        for row in rows
    ]


def test_a_cut_costs_the_loss_over_that_of_the_largest_rank():
    table = pd.DataFrame([*truncations(4, 1), *truncations(2, 0)])
    found = {name: of.to_dict() for name, of in truncation_measures(table).items()}
    assert found["rank_2_cost"] == {2: 3, 4: 3}
    assert found["rank_2_attention_lost"] == pytest.approx({2: -0.3, 4: -0.3})
    assert found["random_directions_attention_lost"] == pytest.approx({2: -0.2, 4: -0.2})
    hinges = {"rank_1": 8, "random_directions": 4, "gaussian": 11}
    hinges |= {"without_attention": 3, "rank_1_attention": 7}
    for name, hinge in hinges.items():
        assert found[f"{name}_hinge"] == {2: hinge, 4: hinge + 1}
    assert len(found) == 8


def test_directions_are_those_of_the_keys_on_the_side_of_the_tokens_at_the_last_step():
    span, alone = "with mean irrelevant", "discriminative"
    rows = [
        (3, "W_K", "input", span, 0.9),
        (3, "W_K", "output", span, 0.1),
        (3, "W_K", "input", alone, 0.7),
        (3, "W_V", "input", span, 0.5),
        (1, "W_K", "input", span, 0.3),
    ]
    table = pd.DataFrame(rows, columns=["step", "matrix", "side", "span", "alignment"]).assign(
        seed=8
    )
    found = {name: of.to_dict() for name, of in direction_measures(table).items()}
    assert found == {
        "alignment_K": {8: 0.9},
        "alignment_without_mean": {8: 0.7},
    }


def test_small_neurons_are_measured_by_their_norm_at_the_start():
    rows = [(3, 0.8, 2.0, 4.0), (1, 0.9, 1.0, 1.0)]
    columns = ["seed", "bimodality", "small_norm", "initial_norm"]
    found = {
        name: of.to_dict()
        for name, of in neuron_measures(pd.DataFrame(rows, columns=columns)).items()
    }
    assert found == {
        "bimodality": {1: 0.9, 3: 0.8},
        "small_over_initial": {1: 1, 3: 0.5},
    }
