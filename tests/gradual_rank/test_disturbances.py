"""What comes back after a disturbance, on paths of three points."""

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.measures import by_case, end_distances, share_below


def test_the_distance_at_the_end_is_the_largest_of_any_product():
    paths = pd.DataFrame({"seed": 2, "point": [0, 0, 1], "after": [5.0, 1.0, 5.0]})
    paths["p"] = [np.array([1.0, 2.0]), np.array([9.0, 9.0]), np.array([0.5])]
    paths["p_undisturbed"] = [np.array([1.1, 1.5]), np.array([0.0, 0.0]), np.array([0.5])]
    found = end_distances(paths)
    assert list(found) == ["seed", "point", "after", "distance"]
    assert found["distance"].tolist() == pytest.approx([0.5, 0])


def test_cases_are_named_and_their_shares_are_each_seeds():
    table = pd.DataFrame({"seed": [3, 3, 11], "stage": [2, 10, 1], "error": [0.1, 0.3, 0.2]})
    assert by_case(table, "error", "stage").to_dict() == {
        "seed 3, stage 2": 0.1,
        "seed 3, stage 10": 0.3,
        "seed 11, stage 1": 0.2,
    }
    assert share_below(table, "error", 0.2).to_dict() == {
        3: 0.5,
        11: 0.0,
    }  # the bar itself is not below
