import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.checkpoints.checkpoints_made import number, written


@pytest.fixture
def measures(stage, tmp_path):
    models = [written(tmp_path, model) for model in ("llama", "gpt2")]
    stage("checkpoints.evaluate", {}, Path("metrics"), models)
    return json.loads(Path("metrics/measures.json").read_text())


def values(measures, name):
    return dict(zip(measures[name]["cases"], measures[name]["values"], strict=True))


def test_plans_are_compared_in_every_cell(measures):
    pairs = {
        "attributed_less_uniform": ("attributed", "uniform"),
        "attributed_less_energy": ("attributed", "energy"),
        "energy_less_uniform": ("energy", "uniform"),
        "water_filling_less_uniform": ("water-filling", "uniform"),
    }
    for name, (one, other) in pairs.items():
        found = values(measures, name)
        assert len(found) == 2 * 4 * 2
        for cell, value in found.items():
            model, run, budget = cell.split()
            wanted = number(model, run, int(budget), one, 0) - number(
                model, run, int(budget), other, 0
            )
            assert value == pytest.approx(wanted, abs=1e-5)
    for cell, value in values(measures, "attributed_less_shuffled").items():
        model, run, budget = cell.split()
        shares = [number(model, run, int(budget), "attributed", shuffle) for shuffle in range(3)]
        assert value == pytest.approx(shares[0] - min(shares[1:]), abs=1e-5)


def test_the_other_measures_by_hand(measures):
    for cell, value in values(measures, "attribution_error").items():
        assert value == pytest.approx(0.1 * number(*cell.split()), rel=1e-4)
    for name, wanted in (
        ("rounded_over_exact_rank_slight", 11 / 6),
        ("rounded_over_exact_rank", 19 / 6),
    ):
        assert list(values(measures, name).values()) == pytest.approx([wanted] * 8, rel=1e-5)
    for cell, value in values(measures, "random_over_smallest").items():
        losses = [
            1 + number(*cell.split(), f"updates, {how}", 0.5)
            for how in ("at random", "smallest first")
        ]
        random, smallest = (loss - 0.9 for loss in losses)
        assert value == pytest.approx(random / smallest, rel=1e-4)
    for product in ("KQ", "VO"):
        for model, value in values(measures, f"permuted_over_learned_{product}").items():
            means = [
                np.mean(
                    [
                        1 + number(model, text, 8, head, f"W_{product}", 0, "update")
                        for head in (1, 2)
                    ]
                )
                for text in ("permuted", "language")
            ]
            assert value == pytest.approx(means[0] / means[1], rel=1e-5)
    assert measures["setup"] == {
        "budgets": "1 and 2",
        "largest_budget": 2.0,
        "least_budget": 1.0,
        "n_seeds": 2.0,
        "pruning_rate": "50%",
        "slight": "0.02",
    }


def test_shares_lost_are_of_the_largest_and_the_least_budget(measures):
    for rule, (name, budget) in itertools.product(
        ("attributed", "uniform"), (("", 2), ("_least", 1))
    ):
        found = values(measures, f"share_lost_{rule}{name}")
        assert len(found) == 2 * 4
        for cell, value in found.items():
            wanted = number(*cell.split(), budget, rule, 0)
            assert value == pytest.approx(wanted, abs=1e-5)


def test_tables_for_the_figures_are_small_and_whole(measures):
    tables = {path.stem: pd.read_parquet(path) for path in Path("metrics/tables").iterdir()}
    assert set(tables) == {
        "plans",
        "modules",
        "losses",
        "pruning",
        "budgets",
        "rounding",
        "heads",
    }
    assert len(tables["plans"]) == 2 * 4 * 2 * 6
    assert set(tables["heads"]["text"]) == {"language", "permuted"}
    assert set(tables["heads"]["step"]) == {1, 8}, "before its first step nothing was learned"
