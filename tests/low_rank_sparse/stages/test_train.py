"""Trainings on made samples are SGD by autograd on the hinge loss, from the same draws: every
snapshot and row.
"""

import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from lib.training import gradient_descent
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import files, read_run

SIZES = {"n_train": 13, "n_test": 9, "seq_len": 6, "d_model": 8}
TIED = {"name": "one", "readout": "tied", "learning_rate": 0.5, "n_seeds": 3, "first_seed": 3}
UNTIED = {"name": "each", "readout": "untied", "n_steps": 5, "first_seed": 2}
PERMUTED = TIED | {"name": "chance", "labels": "permuted", "n_seeds": 2, "n_steps": 3}
PARAMS = {
    "device": "cpu",
    "seeds_together": 2,
    "n_neurons": 10,
    "init_scale": 0.4,
    "value_error": 0.3,
    "query_key_error": 0.7,
    "batch_size": 4,
    "learning_rate": 2,
    "n_steps": 7,
    "snapshot_steps": [6, 2, 50],
    "fitted_loss": 0.8,
}
MATRICES = ["W_Q", "W_K", "W_V", "W_O"]


@pytest.fixture
def dataset(tmp_path):
    return reference.write_samples(tmp_path / "samples", [4, 5, 2, 11, 3], **SIZES)


@pytest.fixture
def train(stage, tmp_path, dataset):
    """Run the stage on the made samples; its losses."""

    def run(params, *configurations):
        reference.write_cases(tmp_path / "configurations", configurations)
        paths = {name: tmp_path / name for name in ("configurations", "runs", "losses")}
        paths["dataset"] = tmp_path / "samples"
        sections = {"train": params, "data": {"n_seeds": 2}}
        stage("low_rank_sparse.train", sections, section="train", n_seeds="data.n_seeds", **paths)
        return pd.read_parquet(tmp_path / "losses")

    return run


def check(dataset, params, configuration, folder, losses, atol=1e-5):
    """A run and its losses are what the trainings from its seeds give; returns its table."""
    way = params | {"n_seeds": 2, "labels": "given"} | configuration
    layout, snapshots, table = read_run(folder / "runs" / way["name"])
    seeds = list(range(way["first_seed"], way["first_seed"] + way["n_seeds"]))
    way["permuted"] = way["labels"] == "permuted"
    train = {seed: reference.of_seed(dataset, "train", seed) for seed in seeds}
    trainings = {seed: reference.training(way, of, seed) for seed, of in train.items()}
    n_steps = way["n_steps"]
    saved = sorted({0, n_steps, *(s for s in way["snapshot_steps"] if s < n_steps)})
    rows = []
    for number, (step, weights) in enumerate(zip(saved, snapshots, strict=True)):
        assert sorted(weights) == sorted([*MATRICES, "readout"])
        for i, (seed, (a, states, course)) in enumerate(trainings.items()):
            for name, W in {**states[step], "readout": a}.items():
                torch.testing.assert_close(weights[name][i], W.float(), rtol=1e-5, atol=atol)
            row = {"snapshot": number, "step": step, "seed": seed}
            row["loss"] = course[step - 1] if step else float("nan")
            row["fitted_step"] = reference.fitted_step(course[:step], way["fitted_loss"])
            test = reference.of_seed(dataset, "test", seed)
            rows.append(row | reference.scores(states[step], a, test))
    pd.testing.assert_frame_equal(table, pd.DataFrame(rows), rtol=1e-4, atol=atol)
    assert layout == {
        "family": "low_rank_sparse",
        "matrices": {name: ["seed", "row", "col"] for name in MATRICES},
        "products": {"W_KQ": ["W_K", "W_Q"], "W_VO": ["W_V", "W_O"]},
        "gauge": {},
        "cell": {"configuration": way["name"], "readout": way["readout"], "labels": way["labels"]},
        "seeds": seeds,
        "format": "transformer dynamics run 1",
    }
    found = losses[losses["configuration"] == way["name"]].set_index(["seed", "step"])["loss"]
    wanted = [loss for _, _, course in trainings.values() for loss in course]
    assert found.sort_index().tolist() == pytest.approx(wanted, rel=1e-4, abs=atol)
    return table


def test_every_snapshot_and_row_is_that_of_autograd(train, tmp_path, dataset):
    """This holds as well for a seed that is trained beside another, or in another configuration."""
    old = tmp_path / "runs" / "older" / "steps.parquet"
    old.parent.mkdir(parents=True)
    old.touch()
    ways = (TIED, UNTIED, PERMUTED)
    losses = train(PARAMS, *ways)
    tables = [check(dataset, PARAMS, way, tmp_path, losses) for way in ways]
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"one", "each", "chance"}
    fitted = set(pd.concat(tables)["fitted_step"])
    assert fitted == {-1, 1, 5, 6}, "soon, late, and never within the steps"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_alike(train, tmp_path, dataset):
    params = PARAMS | {"device": "cuda"}
    losses = train(params, UNTIED)
    check(dataset, params, UNTIED, tmp_path, losses)


def test_a_training_at_rest_is_what_all_its_steps_would_make_of_it(
    train, tmp_path, dataset, monkeypatch
):
    """It ends early, yet each later snapshot, row and loss is that of autograd over every step, and
    all steps are told to the progress bar.
    """
    numbers, told = [], []
    monkeypatch.setattr("stages.low_rank_sparse.train.advance", told.append)
    whole = gradient_descent.gradient_descent
    monkeypatch.setattr(
        "stages.low_rank_sparse.train.gradient_descent",
        lambda *args: (numbers.append(step.number) or step for step in whole(*args)),
    )
    long = TIED | {"n_steps": 120, "n_seeds": 1, "learning_rate": 1}
    params = PARAMS | {"batch_size": 6, "snapshot_steps": [3, 100]}
    table = check(dataset, params, long, tmp_path, train(params, long), atol=1e-3)
    assert max(numbers) < 90
    assert sum(told) == 120
    assert table["loss"].tolist()[-2:] == [0, 0]
    assert table["least_margin"].nunique() == 3


def test_a_batch_at_the_threshold_is_not_yet_fitted(train, tmp_path, dataset):
    """Neurons that begin at almost nothing give the loss 1, to the last bit."""
    params = PARAMS | {"init_scale": 1e-30, "fitted_loss": 1, "seeds_together": 7}
    table = check(dataset, params, TIED, tmp_path, train(params, TIED))
    assert -1 in set(table["fitted_step"])
    assert 0 not in set(table["fitted_step"])


def test_seeds_without_data_are_refused_before_any_is_trained(train, monkeypatch):
    monkeypatch.setattr("stages.low_rank_sparse.train.train_chunk", lambda *_: pytest.fail("ran"))
    wanted = r"seeds: wanted seeds of the data set, \[4, 5, .*, got 6"
    with pytest.raises(InputError, match=wanted):
        train(PARAMS, TIED | {"n_seeds": 4})


@pytest.mark.parametrize(
    ("params", "configuration", "message"),
    [
        ({"n_neurons": 1}, TIED, r"n_neurons: wanted a number in \[2, 1e6\], got 1"),
        ({"batch_size": 14}, TIED, "batch_size: wanted at most the 13 samples, got 14"),
    ],
)
def test_what_is_no_training_is_refused(train, tmp_path, params, configuration, message):
    with pytest.raises(InputError, match=message):
        train(PARAMS | params, configuration)
    assert files(tmp_path) == ["configurations", "params.yaml", "samples"]
