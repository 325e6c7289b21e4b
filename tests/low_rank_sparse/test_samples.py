"""How many samples are needed, where losses rise by chance, and the exponents between shares."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.low_rank_sparse.samples import local_exponents, numbers_of_falling_losses
from lib.low_rank_sparse.swept_models import measure_seed
from lib.pages.measures import read_measures
from published.samples import run as published
from tests.pipeline.project import ROOT


def scored(losses):
    numbers = [2, 4, 8, 16][: len(losses)]
    rows = pd.DataFrame({"n_train": numbers, "hinge": losses})
    return rows.assign(sweep="a", n_relevant=1, seq_len=4, seed=0).sample(frac=1, random_state=1)


@pytest.mark.parametrize(
    ("losses", "number"),
    [
        ([0.4, 0.1, 0.025], 4),  # a falling course stays
        ([0.8, 0.1, 0.4, 0.05], 8 * 2**0.5),  # 0.1 and 0.4 are both 0.2
        ([0.8, 0.0, 0.1, 0.0], 2 * 2 ** (math.log(8) / math.log(80))),  # zero is a hundredth
        ([0.4, 0.1, 0.4], math.nan),
    ],
)
def test_a_loss_that_rises_by_chance_is_levelled(losses, number):
    [found] = numbers_of_falling_losses(scored(losses), 0.1)["n_needed"]
    assert found == pytest.approx(number, nan_ok=True)


def test_exponents_are_those_of_powers_between_neighbouring_shares():
    rows = [
        (share, seed, share**-power) for share in (0.1, 0.4) for seed, power in enumerate((1, 2))
    ]
    rows += [(0.8, seed, 0.4**-power / 8) for seed, power in enumerate((1, 2))]
    found = local_exponents(pd.DataFrame(rows, columns=["share", "seed", "n_needed"]))
    np.testing.assert_allclose(found.index, [0.2, 0.32**0.5])
    np.testing.assert_allclose(found, [[-1, -2], [-3, -3]])


def test_attention_that_is_not_trained_stays_and_all_else_is_the_stage_s(monkeypatch):
    monkeypatch.setattr(published, "GRID", (2, 4))
    sizes = {"d_model": 6, "n_patterns": 5, "seq_len": 8, "noise": 0.01, "n_test": 20}
    start = {"init_scale": 0.01, "value_error": 0, "query_key_error": 0, "learning_rate": 1}
    base = sizes | start | published.OWN | {"n_neurons": 20, "n_steps": 30}
    plain, frozen = (
        published.of_seed(base, {1: {3: 4}}, held, 0.01, 0)["trainings"] for held in (False, True)
    )
    assert list(plain["n_train"]) == [2, 4]
    assert list(frozen["sweep"]) == ["confused_untrained_attention"] * 2
    untrained = published.of_seed(base | {"n_steps": 1}, {1: {3: 4}}, True, 0.01, 0)["trainings"]
    np.testing.assert_allclose(frozen["attention"], untrained["attention"])
    assert (plain["attention"] > frozen["attention"] + 0.01).all()
    own = {"n_relevant": 3, "n_confusion": 1, "n_train": 4, "batch_size": 4}
    problem = published.parse(base | own, published.Problem, "")
    wanted = measure_seed("cpu", 0.01, problem, (), 0)
    for name in ("hinge", "margin", "fitted_step"):
        assert plain[name].iloc[1] == pytest.approx(wanted[name], rel=1e-4)


def test_what_is_published_is_measured_of_its_tables(tmp_path, monkeypatch):
    folder = ROOT / "published" / "samples"
    monkeypatch.setattr(published, "OUT", tmp_path)
    trainings = pd.read_parquet(folder / "tables" / "trainings.parquet")
    kept = read_measures(folder / "measures.csv")
    published.written(trainings, kept["setup"]["threshold"])
    assert read_measures(tmp_path / "measures.csv") == kept
    least = trainings[trainings["n_train"] == trainings["n_train"].min()]
    # No number needed is the grid's least.
    assert (least["hinge"] > kept["setup"]["threshold"]).all()
